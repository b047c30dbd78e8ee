"""What a party or a helper does with a message and with the study's end, and what people may be told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from unspoken.engines.network.frames import Ending, News
from unspoken.engines.network.link import Arrived
from unspoken.engines.network.restraint import Restraint
from unspoken.engines.network.sign_in import SignInRefused
from unspoken.errors import printable
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.roles.charging import LimitReached
from unspoken.roles.messages import is_carried
from unspoken.roles.role import Role
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected


@dataclass
class Told:
    """What a person may want to be told. All functions do nothing unless replaced."""

    line: Callable[[str], None] = lambda line: None
    news: Callable[[News], None] = lambda news: None
    planned: Callable[[Plan], None] = lambda plan: None
    differs: Callable[[bytes], str | None] = lambda plan: None
    """How the coordinator's plan differs from one's own, in words; None if it does not"""
    agrees: Callable[[Ending], bytes] = lambda ending: b""
    """Signs the certificate, or raises `Refused` with the reason not to"""


def restrained(told: Told) -> Told:
    """The same, with lines that a coordinator cannot make too many of, whatever it sends."""
    restraint = Restraint(told.line)
    return replace(told, line=lambda line: restraint(COORDINATOR, line))


@dataclass(frozen=True)
class Finished:
    """How a study has ended for a participant."""

    ending: Ending
    signature: bytes = b""
    """Its own, of the certificate; nothing if it does not agree"""
    disagrees: str = ""
    """Why it has not signed"""
    signatures: Mapping[str, bytes] | None = None
    """All signatures, by addresses; None if they did not come"""


def agreeing(plan: bytes, theirs: str, told: Told) -> None:
    """`SignInRefused` if the coordinator, which has this version, plans the study otherwise.

    Nobody could say then what was promised: parties would add other noise than the coordinator and the others count on.
    """
    if plan and (problem := told.differs(plan)) is not None:
        raise SignInRefused(
            f"the coordinator's unspoken {printable(theirs, 40)} plans the study otherwise than this one, "
            f"{version('unspoken')}: {problem}; all need the same versions."
        )


def answers(role: Role[Any], arrived: Arrived, told: Told) -> list[Envelope]:
    """The role's answers to a message. `LimitReached` if its ledger does not allow to go on."""
    try:
        if arrived.peer != COORDINATOR and not is_carried(arrived.body):
            raise Rejected("it asks for something, and the coordinator has not sent it")
        return role.receive(arrived.body)
    except Rejected as reason:
        told.line(f"a message is ignored: {reason}")
    except LimitReached:
        raise
    except Refused as reason:
        told.line(f"a request is refused: {reason}")
    except Aborted as reason:
        told.line(f"an attempt is given up: {reason}")
    return []


def checked(ending: Ending, told: Told) -> Finished:
    """The certificate that came, signed if this participant agrees with it."""
    try:
        return Finished(ending, told.agrees(ending))
    except Refused as reason:
        told.line(f"the certificate is not signed: {reason}")
        return Finished(ending, disagrees=str(reason))
