"""Agreement on what a vote counts: one list of parties with their one-time keys, signed by the coordinator.

A tallier counts a list only if the coordinator signed it, if it has enough parties, and if it holds their ballots under
these very keys; and only after every other tallier has said that it counts the same. Talliers that find different lists
show the coordinator's two signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from unspoken.summation.ballots import Agreement, Count
from unspoken.summation.base import COORDINATOR, Aborted, Rejected, Session, SignedStatement
from unspoken.summation.incoming import check_survivors, from_bitmap
from unspoken.summation.keys import Identity, verify


def digest_of(label: str, survivors: bytes, keys: Iterable[bytes]) -> bytes:
    """A digest of the counted parties, and of the one-time keys (in their order) that identify their ballots."""
    return hashlib.sha256(label.encode() + survivors + b"".join(keys)).digest()


def approved(identity: Identity, label: str, survivors: bytes, keys: Iterable[bytes], begin: bool) -> Count:
    """The coordinator's request to count a list, with its signature."""
    counted = digest_of(label, survivors, keys)
    return Count(survivors, counted, identity.sign(count_statement(label, counted)), begin)


def approval(label: str, counted: bytes, signature: bytes) -> SignedStatement:
    """The coordinator's statement that it asks to count this."""
    return SignedStatement(COORDINATOR, count_statement(label, counted), signature)


def count_statement(label: str, counted: bytes) -> bytes:
    """The statement that the coordinator signs, one in an attempt: the digest of what is to be counted."""
    return f"count/{label}/".encode() + counted


def is_approved(label: str, counted: bytes, signature: bytes, coordinator: bytes) -> bool:
    try:
        verify(coordinator, count_statement(label, counted), signature, COORDINATOR)
    except Rejected:
        return False
    return True


def check_list(count: Count, keys: Mapping[int, bytes], session: Session, coordinator: bytes) -> list[int]:
    """The parties to count; `Rejected` or `Aborted` unless a tallier that holds ballots under these keys may do so."""
    survivors = from_bitmap(count.survivors, session.parties)
    if not is_approved(session.label(), count.counted, count.signature, coordinator):
        raise Rejected("the coordinator asks to count a list that it has not signed")
    try:
        check_survivors(int(survivors.sum()), session)
    except Aborted as error:
        raise Aborted(str(error), {COORDINATOR: "it asked to count too few"}) from None
    counted = [int(party) for party in np.flatnonzero(survivors)]
    if not keys.keys() >= set(counted):
        raise Rejected("the coordinator asks to count parties that this tallier has not heard from")
    if digest_of(session.label(), count.survivors, (keys[party] for party in counted)) != count.counted:
        raise Rejected("the coordinator asks to count other ballots of the same parties than this tallier holds")
    return counted


def check_same_count(mine: Agreement, theirs: Agreement, who: str, label: str, coordinator: bytes) -> None:
    """Refuse to go on if another tallier counts something else. If the coordinator signed both, it is to blame."""
    if theirs.counted == mine.counted:
        return
    reason = f"{who} counts other parties, or other ballots of the same parties; nothing was revealed"
    if not is_approved(label, theirs.counted, theirs.signature, coordinator):
        raise Aborted(reason, (who,))
    both = tuple(approval(label, each.counted, each.signature) for each in (mine, theirs))
    raise Aborted(reason, {COORDINATOR: "it signed both lists"}, both)
