"""Evidence against a dealer of SecAgg: shares that it marked, and that do not give what it committed to.

The statement has the marks of all shares and the commitments to all seeds, signed by the dealer. The exhibit has at
least a threshold of its shares of one secret. Nobody can make up other shares with the same marks, and a threshold of
an honest dealer's shares always gives the secret. The secret mask key is committed to by its public key, in the
statement of the dealer's keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unspoken.summation import shamir
from unspoken.summation.base import SignedStatement
from unspoken.summation.introductions import keys_beginning
from unspoken.summation.keys import PUBLIC_BYTES, public_key
from unspoken.summation.secagg_messages import (
    COMMITMENT_BYTES,
    MARK_BYTES,
    SHARE_BYTES,
    commitment,
    dealt_statement,
    mark_of,
)
from unspoken.types import Words

_POINT_BYTES = 4
_ROW_BYTES = _POINT_BYTES + SHARE_BYTES


def exhibit_of(points: Words, shares: Words) -> bytes:
    """Shares of one secret (points, symbols), each after its point."""
    return b"".join(
        int(point).to_bytes(_POINT_BYTES, "big") + share.astype("<u4").tobytes()
        for point, share in zip(points, shares, strict=True)
    )


def has_misdealt(
    dealt: SignedStatement, others: Sequence[SignedStatement], label: str, dealer: int, components: int, threshold: int
) -> bool:
    """Whether the exhibit shows that the dealer's shares do not give what it committed to."""
    beginning = dealt_statement(label, dealer, b"", [])
    if not dealt.statement.startswith(beginning) or len(dealt.exhibit) % _ROW_BYTES:
        return False
    content, size = dealt.statement[len(beginning) :], COMMITMENT_BYTES * (1 + components)
    commitments, marks = content[:size], content[size:]
    rows = [dealt.exhibit[start : start + _ROW_BYTES] for start in range(0, len(dealt.exhibit), _ROW_BYTES)]
    shares = {int.from_bytes(row[:_POINT_BYTES], "big"): row[_POINT_BYTES:] for row in rows}
    if len(shares) < threshold:
        return False
    number = _number_of(shares, marks, label, dealer, 2 + components)
    if number is None:
        return False
    points = np.array(list(shares)[:threshold], dtype=np.uint64)
    symbols = [np.frombuffer(shares[int(point)], dtype="<u4") for point in points]
    secret = shamir.combine(np.array(symbols, dtype=np.uint64), points)
    if number:
        start = COMMITMENT_BYTES * (number - 1)
        return commitment(label, dealer, secret) != commitments[start : start + COMMITMENT_BYTES]
    return any(_mask_key(each, label, dealer) not in (b"", public_key(secret)) for each in others)


def _number_of(shares: dict[int, bytes], marks: bytes, label: str, dealer: int, secrets: int) -> int | None:
    """The number of the secret that these are shares of, by the dealer's marks; None if it did not mark them all."""
    for number in range(secrets):
        places = range(number * MARK_BYTES, len(marks), secrets * MARK_BYTES)
        marked = {marks[start : start + MARK_BYTES] for start in places}
        if all(mark_of(label, dealer, point - 1, number, share) in marked for point, share in shares.items()):
            return number
    return None


def _mask_key(statement: SignedStatement, label: str, dealer: int) -> bytes:
    """The mask key in a statement of the dealer's keys; nothing if it is another statement."""
    beginning = keys_beginning(label, dealer)
    if not statement.statement.startswith(beginning):
        return b""
    return statement.statement[len(beginning) :][PUBLIC_BYTES : 2 * PUBLIC_BYTES]
