"""Evidence about a list of tokens: what the statements that its parties signed prove, to those who were not there.

A party's statement contains the kind and the length of a message, the digest of its body, and the digest of the history
that the party saw before it. So the history that goes with a statement is the one that its signer saw, whoever shows
it. Convicted is who signed

- two different messages of one kind: an honest party signs one for each list;
- a message of a wrong length, or a key that hides nothing;
- a list of another length than the numbers of tokens in its history call for;
- a part of the seed that does not match the commitment in its history.

Not convicted is who copied another party's key or onion (the order in which they came is only the coordinator's word),
who signed another history than the others (the coordinator may have shown it another one), whose list has an onion
twice (the proof would be the whole list), and who altered another party's onion (only the owner can tell).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.base import SignedStatement, address_of
from unspoken.summation.evidence import by_party
from unspoken.summation.mixnet import is_usable, onion_bytes
from unspoken.summation.shuffle_course import (
    DIGEST_BYTES,
    STAGES,
    Announce,
    Confirm,
    Exhibit,
    Publish,
    ShuffleSession,
    Signed,
    Submit,
    beginning,
    commitment,
    counts_in,
    digest_after,
)

_ANNOUNCED_BYTES = KEY_BYTES + DIGEST_BYTES


@dataclass(frozen=True)
class _Said:
    """A statement about one list of tokens."""

    kind: type[Signed]
    length: int
    statement: bytes
    exhibit: Exhibit
    """Empty, unless what was shown is what the statement is about"""


def convicted_parties(session: ShuffleSession, evidence: Sequence[SignedStatement]) -> dict[str, str]:
    """The parties that these statements prove at fault, and the fault."""
    found = {}
    for party, statements in by_party(evidence, session.parties).items():
        said = [each for signed in statements if (each := _read(session, party, signed)) is not None]
        if faults := list(dict.fromkeys([*_contradictions(said), *_faults(session, party, said)])):
            found[address_of(party)] = "; ".join(faults)
    return found


def _contradictions(said: Sequence[_Said]) -> Iterator[str]:
    for kind in STAGES:
        if len({each.statement for each in said if each.kind is kind}) > 1:
            yield f"it signed two different messages of the kind {_name(kind)}"


def _faults(session: ShuffleSession, party: int, said: Sequence[_Said]) -> Iterator[str]:
    """What is wrong with each statement by itself."""
    for each in said:
        history, body, length = each.exhibit.history, each.exhibit.body, each.length
        if each.kind is Announce and length != _ANNOUNCED_BYTES:
            yield f"it announced a key and a digest of {length} bytes"
        elif each.kind is Announce and body and not is_usable(body[:KEY_BYTES]):
            yield "it announced a key that hides nothing"
        elif each.kind is Submit and not _is_allowed(session, length):
            yield f"it submitted {length} bytes of onions, which no allowed number has"
        elif each.kind is Publish and len(history) > 1 and (counts := counts_in(history[1])) is not None:
            due = sum(counts) * onion_bytes(session.parties - party - 1)
            if length != due:
                yield f"it published a list of {length} bytes, where {due} were due"
        elif each.kind is Confirm and length != KEY_BYTES:
            yield f"it revealed a part of the seed of {length} bytes"
        elif each.kind is Confirm and body and history:
            announced = history[0][party * _ANNOUNCED_BYTES : (party + 1) * _ANNOUNCED_BYTES]
            if commitment(session.label(), party, body) != announced[KEY_BYTES:]:
                yield "it revealed another part of the seed than it had committed to"


def _is_allowed(session: ShuffleSession, length: int) -> bool:
    count, rest = divmod(length, onion_bytes(session.parties))
    return not rest and session.least <= count <= session.most


def _read(session: ShuffleSession, party: int, signed: SignedStatement) -> _Said | None:
    """A party's statement with its exhibit; None if it is about something else than this list."""
    kinds = {_name(kind): kind for kind in STAGES}
    label = re.escape(f"/{session.label()}/{party}/".encode())
    pattern = rb"tokens/(\w+)" + label + rb"(\d{1,15})/(.{%d})(.{%d})" % (DIGEST_BYTES, DIGEST_BYTES)
    found = re.fullmatch(pattern, signed.statement, re.DOTALL)
    if found is None or (kind := kinds.get(found[1].decode())) is None:
        return None
    exhibit = _exhibit(signed.exhibit, beginning(session.label()), found[3], found[4])
    return _Said(kind, int(found[2]), signed.statement, exhibit)


def _exhibit(shown: bytes, begun: bytes, after: bytes, digest: bytes) -> Exhibit:
    """What was shown with a statement, without what has other digests than those in the statement."""
    try:
        exhibit = msgspec.msgpack.decode(shown, type=Exhibit)
    except msgspec.DecodeError:
        return Exhibit()
    for entry in exhibit.history:
        begun = digest_after(begun, entry)
    body = exhibit.body if hashlib.sha256(exhibit.body).digest() == digest else b""
    return Exhibit(body, exhibit.history if begun == after else [])


def _name(kind: type[Signed]) -> str:
    """
    >>> _name(Publish)
    'publish'
    """
    return str(kind.__struct_config__.tag).removeprefix("tokens/")
