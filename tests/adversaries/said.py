"""All that left a party, and whether it ever said two different things of a kind: two vectors, or two openings."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from unspoken.roles.messages import Carried
from unspoken.summation.base import Envelope
from unspoken.summation.introductions import Framed
from unspoken.summation.keys import WRAPPING_BYTES


class Saying(NamedTuple):
    """What a message is, whatever it says."""

    sender: str
    to: str
    attempt: bytes
    kind: str


class Said:
    """The messages of parties as they left. The sender's own state is not asked: it may be what is wrong."""

    def __init__(self) -> None:
        self.bodies: dict[Saying, set[bytes]] = {}

    def note(self, sender: str, envelopes: list[Envelope]) -> None:
        for to, body in envelopes:
            carried = msgspec.msgpack.decode(body, type=Carried)
            content = without_wrapping(bytes(carried.body))
            saying = Saying(sender, to, carried.attempt, str(msgspec.msgpack.decode(content)[0]))
            self.bodies.setdefault(saying, set()).add(content)

    @property
    def twice(self) -> list[Saying]:
        """The kinds of messages of which a party sent two different ones in one attempt to the same participant."""
        return [saying for saying, bodies in self.bodies.items() if len(bodies) > 1]


def without_wrapping(body: bytes) -> bytes:
    """A party's message without its frame and its authentication, which has another nonce each time.

    >>> without_wrapping(msgspec.msgpack.encode(("ideal/clear", "session"))).hex()
    '92ab696465616c2f636c656172a773657373696f6e'
    """
    if msgspec.msgpack.decode(body)[0] != "keys/framed":
        return body
    framed = bytes(msgspec.msgpack.decode(body, type=Framed).body)
    return framed if b"keys/advertise" in framed[:20] else framed[WRAPPING_BYTES:]
