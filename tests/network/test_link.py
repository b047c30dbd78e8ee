"""Messages in pieces over connections that are cut anywhere: all arrive, in order, once; nothing impossible does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.engines.network import link as module
from unspoken.engines.network.frames import Got, Piece
from unspoken.engines.network.link import Link
from unspoken.summation.base import Rejected

LARGEST = 10_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 100)
    monkeypatch.setattr(module, "WINDOW_BYTES", 300)


def pair() -> tuple[Link, Link]:
    return Link(lambda: LARGEST), Link(lambda: LARGEST)


def piece(number: int = 0, offset: int = 0, size: int = 10, part: bytes = b"x" * 10) -> Piece:
    return Piece(number, "party:0", size, offset, memoryview(part))


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20),
)
def test_all_messages_arrive_in_order_wherever_connections_are_cut(
    sizes: list[int], cuts: list[tuple[int, int]]
) -> None:
    """A cut loses some pieces and some acknowledgements. Then a new connection begins."""
    sender, receiver = pair()
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    for body in bodies:
        sender.put("party:0", body)
    arrived: list[bytes] = []
    for pieces, acknowledgements in [*cuts, *[(1000, 1000)] * 200]:
        on_the_way = list(sender.pieces())[:pieces]
        answers: list[Got] = []
        for each in on_the_way:
            got, whole = receiver.take(each)
            answers.append(got)
            arrived += [] if whole is None else [whole.body]
        for got in answers[:acknowledgements]:
            sender.acknowledge(got)
        if len(on_the_way) == pieces or len(answers) > acknowledgements:
            sender.resume(receiver.expects)
        if sender.is_empty:
            break
    assert arrived == bodies
    assert sender.is_empty


def test_no_more_than_a_window_is_under_way() -> None:
    sender, receiver = pair()
    for _ in range(5):
        sender.put("party:0", bytes(100))
    first = list(sender.pieces())
    assert len(first) == 3
    sender.acknowledge(receiver.take(first[0])[0])
    assert len(list(sender.pieces())) == 1


def test_what_is_taken_back_is_sent_again_from_where_the_other_side_stands() -> None:
    sender, receiver = pair()
    sender.put("party:0", b"x" * 250)
    sender.acknowledge(receiver.take(next(sender.pieces()))[0])
    lost = [(piece.offset, bytes(piece.part)) for piece in sender.pieces()]
    sender.take_back()
    assert (
        [(piece.offset, bytes(piece.part)) for piece in sender.pieces()]
        == lost
        == [(100, b"x" * 100), (200, b"x" * 50)]
    )
    empty = Link(lambda: LARGEST)
    empty.take_back()
    assert not list(empty.pieces())


def test_what_is_dropped_is_skipped() -> None:
    sender, receiver = pair()
    sender.put("party:0", bytes(250))
    sender.acknowledge(receiver.take(next(sender.pieces()))[0])
    sender.drop()
    sender.put("party:0", b"new")
    (only,) = sender.pieces()
    got, whole = receiver.take(only)
    assert whole is not None
    assert whole.body == b"new"
    sender.acknowledge(got)
    assert sender.is_empty


@pytest.mark.parametrize("under_way", range(4))
def test_what_is_dropped_from_the_middle_is_skipped_whatever_of_it_is_under_way(under_way: int) -> None:
    """Messages 1 and 2 are dropped. So many pieces have been sent by then, and are acknowledged afterwards."""
    sender, receiver = pair()
    for size in (150, 150, 50):
        sender.put("party:0", bytes([size]) * size)
    pieces, whole = sender.pieces(), list[bytes]()
    sent = [next(pieces) for _ in range(min(under_way, 3))]
    pieces.close()
    sender.drop(1)
    sender.put("party:0", b"new")
    while sent or (sent := list(sender.pieces())):
        got, arrived = receiver.take(sent.pop(0))
        sender.acknowledge(got)
        whole += [] if arrived is None else [arrived.body]
    assert sender.is_empty
    assert sender.left == 0
    assert whole[0] == bytes([150]) * 150
    assert whole[-1] == b"new"
    assert len(whole) == 2
    sender.put("party:0", bytes(1000))
    assert len(list(sender.pieces())) == 3, "a whole window is free again"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (piece(offset=5), "byte 5 of message 0 came, and byte 0 of 0 was due"),
        (piece(number=3, offset=1), "byte 1 of message 3 came"),
        (piece(size=10**10), "10,000,000,000 bytes was announced, where 10,000 are the most"),
        (piece(size=0, part=b""), "a message of 0 bytes"),
        (piece(size=200, part=b""), "a piece of 0 bytes"),
        (piece(size=200, part=bytes(101)), "a piece of 101 bytes"),
        (piece(size=9), "a piece of 10 bytes"),
    ],
)
def test_impossible_pieces_are_rejected(wrong: Piece, reason: str) -> None:
    receiver = pair()[1]
    with pytest.raises(Rejected, match=reason):
        receiver.take(wrong)
    assert receiver.expects[1] == 0


def test_impossible_acknowledgements_are_rejected() -> None:
    sender = pair()[0]
    sender.put("party:0", bytes(250))
    next(sender.pieces())
    for wrong in (Got(0, 101), Got(0, 0), Got(1, 5)):
        with pytest.raises(Rejected, match="acknowledged, which was not sent"):
            sender.acknowledge(wrong)
    sender.acknowledge(Got(0, 100))


@pytest.mark.parametrize("wrong", [(5, 0), (-1, 0), (0, 251), (0, -1)])
def test_nobody_can_stand_where_nothing_was_sent(wrong: tuple[int, int]) -> None:
    sender = pair()[0]
    sender.put("party:0", bytes(250))
    with pytest.raises(Rejected, match="is expected, which was never sent"):
        sender.resume(wrong)
