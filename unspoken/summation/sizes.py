"""The size of messages in MessagePack, computed without encoding them.

A plan states what a party will upload, before there are keys, vectors or neighbours. See
https://github.com/msgpack/msgpack/blob/master/spec.md for the lengths of headers.
"""

from __future__ import annotations

from unspoken.summation.base import Message

_INTEGERS = ((1 << 7, 1), (1 << 8, 2), (1 << 16, 3), (1 << 32, 5), (1 << 64, 9))
"""Limits, and the bytes of integers below them"""


def of_integer(value: int) -> int:
    """The size of an integer from 0 to 2⁶⁴ − 1.

    >>> [of_integer(value) for value in (127, 128, 256, 65_536)]
    [1, 2, 3, 5]
    """
    return next(size for limit, size in _INTEGERS if value < limit)


def of_range(start: int, stop: int) -> int:
    """The size of a list of the integers from `start` to `stop` − 1.

    >>> of_range(120, 130)
    13
    """
    total, low = of_header(stop - start), 0
    for limit, size in _INTEGERS:
        total += size * max(0, min(stop, limit) - max(start, low))
        low = limit
    return total


def of_bytes(length: int) -> int:
    """The size of so many bytes, with their header.

    >>> of_bytes(32), of_bytes(256)
    (34, 259)
    """
    return length + (2 if length < 1 << 8 else 3 if length < 1 << 16 else 5)


def of_text(text: str) -> int:
    """The size of a text, with its header.

    >>> of_text("ε"), of_text("x" * 32)
    (3, 34)
    """
    length = len(text.encode())
    return length + 1 if length < 32 else of_bytes(length)


def of_header(items: int) -> int:
    """The size of the header of a list.

    >>> of_header(15), of_header(16)
    (1, 3)
    """
    return 1 if items < 16 else 3 if items < 1 << 16 else 5


def of_message(kind: type[Message], *fields: int) -> int:
    """The size of a message whose fields have these sizes; it is a list of tag and fields."""
    return of_header(1 + len(fields)) + of_text(str(kind.__struct_config__.tag)) + sum(fields)
