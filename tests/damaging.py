"""Messages that are damaged on their way."""

from __future__ import annotations

from hypothesis import strategies as st


def damage(body: bytes, data: st.DataObject, *, flips: bool = True) -> bytes:
    """The body cut, extended, replaced, or (where it is authenticated) with a flipped bit."""
    kind = data.draw(st.sampled_from(["cut", "random", "extend", "flip"] if flips else ["cut", "random", "extend"]))
    if kind == "flip":
        position = data.draw(st.integers(0, len(body) - 1))
        return body[:position] + bytes([body[position] ^ data.draw(st.integers(1, 255))]) + body[position + 1 :]
    if kind == "cut":
        return body[: data.draw(st.integers(0, len(body) - 1))]
    if kind == "extend":
        return body + data.draw(st.binary(min_size=1, max_size=9))
    return data.draw(st.binary(max_size=200).filter(lambda random: random != body))
