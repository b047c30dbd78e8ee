"""The three ways in which a sum fails: `Unsuitable` when it is planned, `Rejected` for one message, `Aborted` as a
whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from unspoken.errors import UnspokenError

if TYPE_CHECKING:
    from unspoken.summation.base import SignedStatement

_MOST_NAMED = 5


class Aborted(UnspokenError):
    """The sum was aborted, and nothing of it was revealed.

    `blamed` has the addresses of those who caused it, as far as that is known, and `evidence` has signed statements
    that prove it (`summation.evidence` checks them). If the reason does not say who did what, `blamed` maps each
    address to its fault, and the error's text lists them.
    """

    exit_status = 3

    def __init__(self, reason: str, blamed: Collection[str] = (), evidence: tuple[SignedStatement, ...] = ()) -> None:
        self.faults = dict(blamed) if isinstance(blamed, Mapping) else {}
        super().__init__(_with_blame(reason, self.faults))
        self.blamed, self.evidence = tuple(blamed), evidence
        self.files: dict[str, str] = {}
        """The files that were written nevertheless, by kind"""

    def with_blame(self, faults: Mapping[str, str], evidence: tuple[SignedStatement, ...]) -> Aborted:
        """The same end, with further faults, and with the evidence of all."""
        told = Aborted(str(self), faults, evidence)
        told.faults, told.blamed = {**self.faults, **faults}, (*self.blamed, *faults)
        return told


class Rejected(UnspokenError):
    """A message was refused: the protocol does not allow it at this point."""


class Unsuitable(UnspokenError):
    """A protocol cannot serve the study: `place` names the key, and `problem` says what to do."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem)
        self.place, self.problem = place, problem


def _with_blame(reason: str, faults: Mapping[str, str]) -> str:
    """The reason, and who is to blame for what.

    >>> _with_blame("no total came", {"party:2": "it sent no share", "coordinator": "it lied"})
    'no total came. To blame: party 2 (it sent no share), the coordinator (it lied)'
    """
    if not faults:
        return reason
    named = [f"{spoken(who)} ({why})" for who, why in faults.items()]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"{reason.rstrip('.')}. To blame: {', '.join(named[:_MOST_NAMED])}{more}"


def spoken(address: str) -> str:
    """An address in words.

    >>> spoken("node:1"), spoken("coordinator")
    ('node 1', 'the coordinator')
    """
    kind, _, number = address.partition(":")
    return f"{kind} {number}" if number else f"the {kind}"
