"""Evidence: signed statements from which anyone can see who is to blame for a sum that failed.

Some statements convict their signer, whoever shows them: two one-time keys for one sum, two lists for one vote, dealt
shares that do not give what was committed to, or messages of a shuffle that contradict each other or what came before
them. The protocol decides what convicts whom (`Convicting.convicts`), from the study, the roster and the signatures
alone. There is no such evidence where an abort blames someone for silence, or for something that only one other
participant saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from unspoken.errors import UnspokenError, printable
from unspoken.summation.base import COORDINATOR, Rejected, Roster, SignedStatement, address_of
from unspoken.summation.errors import spoken
from unspoken.summation.keys import verify

_TEXTS = ("statement", "signature", "exhibit")


class Convicting(Protocol):
    """The protocol of a sum or of a list of tokens, which decides what convicts whom."""

    @property
    def roster(self) -> Roster: ...

    @property
    def helper_addresses(self) -> tuple[str, ...]: ...

    def convicts(self, evidence: Sequence[SignedStatement]) -> dict[str, str]: ...


def convicted(protocol: Convicting, evidence: Sequence[SignedStatement]) -> dict[str, str]:
    """The addresses that these statements prove at fault, and the fault; `Rejected` if one is not genuine.

    `protocol` is that of the attempt at the sum or list that the statements are about, with the roster.
    """
    for each in evidence:
        verify(_key_of(each.signer, protocol), each.statement, each.signature, spoken(each.signer))
    return protocol.convicts(evidence)


def to_json(evidence: Iterable[SignedStatement]) -> list[dict[str, str]]:
    """The statements for a file: bytes are hexadecimal."""
    return [{"signer": each.signer, **{name: getattr(each, name).hex() for name in _TEXTS}} for each in evidence]


def from_json(content: Any) -> tuple[SignedStatement, ...]:
    """The statements of a file. Statements that an error or a result has are taken as they are."""
    try:
        return tuple(
            each
            if isinstance(each, SignedStatement)
            else SignedStatement(str(each["signer"]), *(bytes.fromhex(each[name]) for name in _TEXTS))
            for each in content
        )
    except (KeyError, TypeError, ValueError):
        raise UnspokenError(
            "the evidence is not a list of statements; each has a signer, and a statement, a signature and an exhibit "
            "in hexadecimal digits."
        ) from None


def by_party(evidence: Iterable[SignedStatement], parties: int) -> dict[int, list[SignedStatement]]:
    """The statements of each party, by its index."""
    indices, found = {address_of(index): index for index in range(parties)}, defaultdict(list)
    for each in evidence:
        if each.signer in indices:
            found[indices[each.signer]].append(each)
    return dict(found)


def differ(signed: Iterable[SignedStatement], beginning: bytes) -> bool:
    """Whether two different statements have this beginning. An honest signer signs only one."""
    return len({each.statement for each in signed if each.statement.startswith(beginning)}) > 1


def _key_of(signer: str, protocol: Convicting) -> bytes:
    """The public key of an address."""
    roster = protocol.roster
    keys = {address_of(party): key for party, key in enumerate(roster.parties)}
    keys |= {COORDINATOR: roster.coordinator} | dict(zip(protocol.helper_addresses, roster.helpers, strict=False))
    if signer not in keys:
        raise Rejected(f'a statement is signed by "{printable(signer, 60)}", which takes no part in the study')
    return keys[signer]
