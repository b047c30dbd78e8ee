"""Messages of any size over connections that may be cut: in pieces, in order, each once.

A link does no input or output. Both sides keep it as long as their processes live. A new connection goes on where the
other side says that it stands. A message is kept until it has arrived as a whole; at most one window of bytes is under
way at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import NamedTuple

import msgspec

from unspoken.engines.network.frames import ADDRESS_LENGTH, PIECE_BYTES, Got, Piece
from unspoken.summation.base import Rejected

WINDOW_BYTES = 16 * PIECE_BYTES
"""How much may be under way without having been acknowledged"""


class Arrived(NamedTuple):
    """A whole message."""

    number: int
    peer: str
    body: bytes


class _Outgoing(NamedTuple):
    number: int
    peer: str
    body: memoryview


class _Kept(msgspec.Struct, array_like=True):
    """A link between two connections."""

    queue: list[tuple[int, str, bytes]]
    numbered: int
    expected: int
    part: bytes
    """What has come of the message that is expected"""


class Link:
    """One side of a connection that outlives its sockets."""

    def __init__(self, largest: Callable[[], int]) -> None:
        """`largest` returns the size that an incoming message may have at this time."""
        self._largest = largest
        self._queue: deque[_Outgoing] = deque()
        """Messages that have not arrived as a whole, in their order"""
        self._numbered = 0
        self._place = self._sent = 0
        """The place in the queue of the message that is being sent, and how many bytes of it were"""
        self._acknowledged = self._under_way = 0
        """How many bytes of the first message have arrived, and how many of all were sent and have not"""
        self._expected, self._buffer, self._have = 0, BytesIO(), 0

    def dump(self) -> bytes:
        """The link as it is between two connections, for a process that ends with each of them."""
        queue = [(number, peer, bytes(body)) for number, peer, body in self._queue]
        return msgspec.msgpack.encode(_Kept(queue, self._numbered, self._expected, self._buffer.getvalue()))

    def load(self, content: bytes) -> None:
        """Go on with a link that was dumped; a new connection begins (`resume`)."""
        kept = msgspec.msgpack.decode(content, type=_Kept)
        self._queue = deque(_Outgoing(number, peer, memoryview(body)) for number, peer, body in kept.queue)
        self._numbered, self._expected = kept.numbered, kept.expected
        self._buffer = BytesIO()
        self._have = self._buffer.write(kept.part)
        self._place = self._sent = self._acknowledged = self._under_way = 0

    def put(self, peer: str, body: bytes) -> int:
        """Queue a message; its number."""
        self._queue.append(_Outgoing(self._numbered, peer, memoryview(body)))
        self._numbered += 1
        return self._numbered - 1

    def drop(self, first: int = 0) -> None:
        """Forget all messages from this number on that have not arrived: the other side skips them."""
        while self._queue and self._queue[-1].number >= first:
            self._queue.pop()
        if self._place >= len(self._queue):
            self._place, self._sent = len(self._queue), 0
            self._acknowledged = self._acknowledged if self._queue else 0
            self._under_way = self.left

    def is_waiting(self, number: int) -> bool:
        """Whether a message has not arrived as a whole."""
        return bool(self._queue) and self._queue[0].number <= number

    @property
    def expects(self) -> tuple[int, int]:
        """Where the other side is to go on."""
        return self._expected, self._have

    @property
    def is_empty(self) -> bool:
        """Whether all that was put has arrived."""
        return not self._queue

    @property
    def left(self) -> int:
        """The number of bytes that were put and have not arrived."""
        return sum(len(message.body) for message in self._queue) - self._acknowledged

    def take_back(self) -> None:
        """What was sent and is not known to have arrived counts as not sent."""
        self._place, self._sent, self._under_way = 0, self._acknowledged, 0

    def resume(self, expects: tuple[int, int]) -> None:
        """A new connection: go on where the other side stands. `Rejected` if it cannot stand there."""
        number, offset = expects
        while self._queue and self._queue[0].number < number:
            self._queue.popleft()
        begun = self._queue[0] if self._queue and self._queue[0].number == number else None
        if not 0 <= number <= self._numbered or not 0 <= offset <= (len(begun.body) if begun else PIECE_BYTES << 20):
            raise Rejected(f"byte {offset} of message {number} is expected, which was never sent")
        self._place, self._under_way = 0, 0
        self._sent = self._acknowledged = offset if begun else 0

    def pieces(self) -> Iterator[Piece]:
        """What can be sent now. Each piece counts as sent when it is taken from here."""
        while self._place < len(self._queue) and self._under_way < WINDOW_BYTES:
            number, peer, body = self._queue[self._place]
            part = body[self._sent : self._sent + PIECE_BYTES]
            piece = Piece(number, peer, len(body), self._sent, part)
            self._sent += len(part)
            self._under_way += len(part)
            if self._sent == len(body):
                self._place, self._sent = self._place + 1, 0
            yield piece

    def acknowledge(self, got: Got) -> None:
        """The other side has so much of a message. `Rejected` if it cannot have."""
        if not self._queue or got.number < self._queue[0].number:
            return
        first = self._queue[0]
        sent = len(first.body) if self._place else self._sent
        if got.number > first.number or not self._acknowledged < got.offset <= sent:
            raise Rejected(f"byte {got.offset} of message {got.number} is acknowledged, which was not sent")
        self._under_way -= got.offset - self._acknowledged
        self._acknowledged = got.offset
        if got.offset == len(first.body):
            self._queue.popleft()
            self._place, self._acknowledged = self._place - 1, 0

    def take(self, piece: Piece) -> tuple[Got, Arrived | None]:
        """A piece has come: what to acknowledge, and the message if it is whole now. `Rejected` ends the connection."""
        if piece.number > self._expected and piece.offset == 0:
            # The other side has dropped messages.
            self._expected, self._buffer, self._have = piece.number, BytesIO(), 0
        number, offset = self.expects
        if (piece.number, piece.offset) != (number, offset):
            raise Rejected(f"byte {piece.offset} of message {piece.number} came, and byte {offset} of {number} was due")
        if len(piece.peer) > ADDRESS_LENGTH:
            raise Rejected(f"an address of {len(piece.peer):,} characters came, where {ADDRESS_LENGTH} are the most")
        largest = self._largest()
        if not 0 < piece.size <= largest:
            raise Rejected(f"a message of {piece.size:,} bytes was announced, where {largest:,} are the most")
        if not 0 < len(piece.part) <= min(PIECE_BYTES, piece.size - offset):
            raise Rejected(f"a piece of {len(piece.part):,} bytes came, which cannot be")
        self._have += self._buffer.write(piece.part)
        got = Got(number, self._have)
        if self._have < piece.size:
            return got, None
        # The very bytes of the buffer, not a copy of them: a large message is held once.
        body = self._buffer.getvalue()
        self._expected, self._buffer, self._have = self._expected + 1, BytesIO(), 0
        return got, Arrived(number, piece.peer, body)
