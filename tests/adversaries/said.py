"""All that left a party, and whether it ever said two different things of a kind: two vectors, or two openings."""

from __future__ import annotations

from typing import Any, NamedTuple

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
            saying = Saying(sender, to, carried.attempt, kind_of(bytes(carried.body)))
            self.bodies.setdefault(saying, set()).add(body)

    @property
    def twice(self) -> list[Saying]:
        """The kinds of messages of which a party sent two different ones in one attempt to the same participant."""
        return [saying for saying, bodies in self.bodies.items() if len(bodies) > 1]


def kind_of(body: bytes) -> str:
    """The tag of a party's message, within its frame and its authentication.

    >>> kind_of(msgspec.msgpack.encode(("ideal/clear", "session")))
    'ideal/clear'
    """
    tag: Any = msgspec.msgpack.decode(body)[0]
    if tag != "keys/framed":
        return str(tag)
    framed = bytes(msgspec.msgpack.decode(body, type=Framed).body)
    wrapping = 0 if b"keys/advertise" in framed[:20] else WRAPPING_BYTES
    return str(msgspec.msgpack.decode(framed[wrapping:])[0])
