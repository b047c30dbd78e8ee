"""The first thing that an endpoint does with an incoming message: decode it, and check that it belongs here."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import numpy as np

from unspoken.summation.base import Aborted, Rejected, Session
from unspoken.types import Flags


def bitmap(flags: Flags) -> bytes:
    return np.packbits(flags).tobytes()


def from_bitmap(packed: bytes, parties: int) -> Flags:
    """Flags from a bitmap; `Rejected` if it is not for so many parties."""
    if len(packed) != (parties + 7) // 8:
        raise Rejected(f"a list of parties has {len(packed)} bytes; {(parties + 7) // 8} are due")
    flags = np.unpackbits(np.frombuffer(packed, dtype=np.uint8)).astype(np.bool_)
    if flags[parties:].any():
        raise Rejected("a list of parties names parties that are not in the study")
    return flags[:parties]


def decode(incoming: bytes | memoryview, kind: Any) -> Any:
    """A typed message from its bytes; `Rejected` if they are not one."""
    try:
        return _decoder(kind).decode(incoming)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as error:
        raise Rejected(f"a message has a type that this endpoint does not take ({error})") from None


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Made once for a kind: for one of several messages that takes longer than to decode it."""
    return msgspec.msgpack.Decoder(kind)


def check_label(label: str, session: Session) -> None:
    """Refuse a message of another study, sum or shape."""
    if label != session.label():
        raise Rejected("a message belongs to another study or another sum")


def check_party(sender: int, parties: int) -> None:
    """Refuse a message from outside the study."""
    if not 0 <= sender < parties:
        raise Rejected(f"a message came from party {sender}; the study has {parties} parties")


def check_sender(sender: int, session: Session, seen: Flags) -> None:
    """Refuse a message from outside the study, or a second one from the same party."""
    check_party(sender, session.parties)
    if seen[sender]:
        raise Rejected(f"a second message came from party {sender}")


def check_survivors(count: int, session: Session) -> None:
    """Refuse a total over fewer parties than the noise is sized for."""
    if count < session.least_survivors:
        raise Aborted(
            f"only {count} of {session.parties} parties are left and the study asks for at least "
            f"{session.least_survivors}, so there is no total; have more of them stay, or agree on more dropouts"
        )
