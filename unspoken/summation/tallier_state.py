"""All that a tallier remembers of a vote."""

from __future__ import annotations

from unspoken.summation.abortable import AbortableState
from unspoken.summation.ballots import Agreement, Introduction


class TallierState(AbortableState):
    secret: bytes
    """The key for this vote only"""
    seed: bytes
    """This tallier's contribution to the seed that breaks ties"""
    root: bytes
    """The root of its contributions to the keys of groups"""
    begun: bool = False
    asked: int | None = None
    """The number of ballots that the coordinator knows of, while it waits for the others"""
    ballots: dict[int, tuple[bytes, bytes]] = {}
    """Each party's one-time key, and the part that it sent, in the order of arrival"""
    signatures: dict[int, bytes] = {}
    """Each party's signature of its one-time key"""
    peers: dict[int, Introduction] = {}
    agreements: dict[int, Agreement] = {}
    survivors: bytes = b""
    """The only list that is counted, once it is known"""
    counted: bytes = b""
    """The digest of this list and its one-time keys"""
    approval: bytes = b""
    """The coordinator's signature of the digest"""
    agreed: bool = False
    """True when all talliers count the same"""
    begin: bool = False
    """True when the coordinator asks to begin"""
    early: dict[int, dict[int, bytes]] = {}
    """Words of future rounds, by round and sender"""
    received: list[list[bytes]] = []
    """The words of all rounds so far, to replay the computation"""
    opening: bytes = b""
