"""Questions and answers over a federation are known by their keys, of any size, and end with one certificate."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from small_studies import KEY
from unspoken.engines.flower.exchanges import (
    AnsweringSide,
    AskingSide,
    Begins,
    Hello,
    Joins,
    Packet,
    Question,
    SignedAnswer,
    Taken,
)
from unspoken.engines.flower.session import _MOST_AHEAD, Session
from unspoken.engines.network.frames import ENDING, PIECE_BYTES, Done, Ending, Piece, Signatures, packed
from unspoken.engines.network.link import WINDOW_BYTES, Link
from unspoken.engines.network.participant import Told
from unspoken.engines.network.sign_in import SignInRefused, series
from unspoken.methods.parameters import Refused
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Envelope, Rejected, Roster
from unspoken.summation.keys import Identity
from unspoken.summation.simulated_keys import SimulatedKeys

LARGEST = 8 << 20
"""The most bytes that were seen to pass Flower in one record"""


@pytest.fixture
def sides() -> tuple[AskingSide, AnsweringSide]:
    keys = SimulatedKeys(SecretStream(KEY), 3, 0)
    asking = AskingSide("study", keys.coordinator, keys.roster, [])
    return asking, AnsweringSide("study", keys.identity(1), keys.roster)


def test_a_question_and_its_answer_are_known_by_their_keys(sides: tuple[AskingSide, AnsweringSide]) -> None:
    asking, answering = sides
    content, nonce = asking.question(Hello())
    assert answering.read(content) == Hello()
    address, answered = asking.answer(answering.answer(Joins(b"p")), nonce)
    assert (address, answered) == ("party:1", Joins(b"p"))


def test_an_answer_to_another_question_is_refused(sides: tuple[AskingSide, AnsweringSide]) -> None:
    asking, answering = sides
    _, other = asking.question(Hello())
    answering.read(asking.question(Hello())[0])
    with pytest.raises(SignInRefused, match="does not match"):
        asking.answer(answering.answer(Joins(b"p")), other)


def test_an_answer_that_was_changed_is_refused(sides: tuple[AskingSide, AnsweringSide]) -> None:
    asking, answering = sides
    content, nonce = asking.question(Hello())
    answering.read(content)
    changed = answering.answer(Joins(b"p")).replace(b"\xc4\x01p", b"\xc4\x01q")
    with pytest.raises(SignInRefused, match="does not match"):
        asking.answer(changed, nonce)


def test_only_the_rosters_coordinator_asks(sides: tuple[AskingSide, AnsweringSide]) -> None:
    _, answering = sides
    keys = SimulatedKeys(SecretStream(KEY), 3, 0)
    false = AskingSide("study", Identity(bytes(32)), keys.roster, [])
    with pytest.raises(SignInRefused, match="coordinator's key"):
        answering.read(false.question(Hello())[0])


def test_a_question_for_another_party_or_of_another_study_is_refused(sides: tuple[AskingSide, AnsweringSide]) -> None:
    asking, answering = sides
    keys = SimulatedKeys(SecretStream(KEY), 3, 0)
    packet = Packet(b"", (0, 0), ())
    with pytest.raises(SignInRefused, match="somebody else"):
        answering.read(asking.question(packet, "party:0")[0])
    with pytest.raises(SignInRefused, match="for nobody"):
        answering.read(asking.question(packet)[0])
    with pytest.raises(SignInRefused, match="differs"):
        answering.read(AskingSide("other", keys.coordinator, keys.roster, []).question(Hello())[0])


def test_a_signature_counts_for_one_use_one_study_and_one_receiver() -> None:
    """The coordinator's key may be a party's as well here, and those of another study may be the same."""
    keys = SimulatedKeys(SecretStream(KEY), 3, 0)
    roster = Roster((keys.coordinator.public, keys.identity(1).public), keys.coordinator.public)
    asking, other = (AskingSide(study, keys.coordinator, roster, []) for study in ("study", "other"))
    content, nonce = asking.question(Packet(b"", (0, 0), ()), "party:0")
    question = msgspec.msgpack.decode(content, type=Question)
    with pytest.raises(SignInRefused, match="does not match"):
        asking.answer(packed(SignedAnswer(question.key, question.body, question.signature)), nonce)
    foreign = msgspec.msgpack.decode(other.question(Hello())[0], type=Question)
    answering = AnsweringSide("study", keys.identity(1), roster)
    for changed in (
        msgspec.structs.replace(foreign, study="study"),
        msgspec.structs.replace(question, key=keys.identity(1).public),
    ):
        with pytest.raises(SignInRefused, match="coordinator's key"):
            answering.read(packed(changed))


class Echo:
    """A role that sends back what it gets."""

    largest = 1 << 26

    def receive(self, body: bytes) -> list[Envelope]:
        return [Envelope(COORDINATOR, body)]

    def leave(self) -> None:
        """The study is over."""


@pytest.mark.parametrize("lengths", [[1], [WINDOW_BYTES, 1], [2 * WINDOW_BYTES + 5, 7, WINDOW_BYTES - 1]], ids=str)
def test_messages_of_any_size_take_as_many_exchanges_as_they_need(lengths: list[int]) -> None:
    """And none of these is larger than what passes Flower, though every third answer is lost."""
    mine = Link(lambda: Echo.largest)
    process, came, kept, stands = b"", [], b"", (0, 0)
    bodies = [bytes(range(251)) * (length // 251) + b"." * (length % 251) for length in lengths]
    for body in bodies:
        mine.put(COORDINATOR, body)
    more = True
    for exchange in range(200):
        if not more and mine.is_empty:
            break
        session = Session(Echo(), 0, Told(), kept)  # type: ignore[arg-type]
        if not process:
            joins = session.answer(Hello())
            assert isinstance(joins, Joins)
            process, kept = joins.process, session.dump()
            continue
        mine.resume(stands)
        packet = Packet(process, mine.expects, tuple(mine.pieces()))
        assert len(packed(packet)) < LARGEST
        taken = session.answer(packet)
        assert isinstance(taken, Taken)
        assert len(packed(taken)) < LARGEST
        kept = session.dump()
        if exchange % 3 == 2:
            continue
        stands, more = taken.expects, taken.more
        mine.resume(stands)
        for piece in taken.pieces:
            if (piece.number, piece.offset) >= mine.expects and (arrived := mine.take(piece)[1]) is not None:
                came.append(arrived.body)
    assert came == bodies


def test_a_coordinator_that_sends_more_than_was_acknowledged_is_not_heard() -> None:
    session = Session(Echo(), 0, Told())  # type: ignore[arg-type]
    joins = session.answer(Hello())
    assert isinstance(joins, Joins)
    part = memoryview(bytes(PIECE_BYTES))
    Echo.largest, before = PIECE_BYTES, Echo.largest
    try:
        for number in range(2 * _MOST_AHEAD // PIECE_BYTES):
            answer = session.answer(Packet(joins.process, (0, 0), (Piece(number, COORDINATOR, PIECE_BYTES, 0, part),)))
            if isinstance(answer, Begins):
                break
        assert isinstance(answer, Begins)
    finally:
        Echo.largest = before


def ending(session: Session, process: bytes, *said: Ending | Signatures) -> Taken:
    link = Link(lambda: 1 << 20)
    for each in said:
        link.put(ENDING, packed(each))
    answer = session.answer(Packet(process, (0, 0), tuple(link.pieces())))
    assert isinstance(answer, Taken)
    return answer


def begun(agrees: Callable[[Ending], bytes]) -> tuple[Session, bytes]:
    session = Session(Echo(), 1 << 20, Told(agrees=agrees))  # type: ignore[arg-type]
    joins = session.answer(Hello())
    assert isinstance(joins, Joins)
    return session, joins.process


def test_one_certificate_is_signed_and_no_other() -> None:
    session, process = begun(lambda ending: b"signed " + ending.certificate)
    taken = ending(session, process, Ending(b"one"), Ending(b"two"), Signatures({"party:0": b"s"}))
    assert taken.signature == b"signed one"
    assert session.finished is not None
    assert session.finished.ending.certificate == b"one"
    assert session.finished.signatures == {"party:0": b"s"}


def test_a_certificate_that_is_not_agreed_with_is_not_signed() -> None:
    def refuse(ending: Ending) -> bytes:
        raise Refused("it says something else")

    session, process = begun(refuse)
    taken = ending(session, process, Ending(b"one"), Signatures({}))
    assert taken.signature == b""
    assert session.finished is not None
    assert session.finished.disagrees == "it says something else"


def test_a_study_without_a_result_ends_with_its_reason() -> None:
    session, process = begun(lambda ending: b"never")
    taken = ending(session, process, Ending(reason="too few"))
    assert taken.signature == b""
    assert session.finished is not None
    assert session.finished.ending.reason == "too few"


def test_a_result_that_was_signed_stays_one_whatever_is_said_later() -> None:
    session, process = begun(lambda ending: b"signed " + ending.certificate)
    taken = ending(session, process, Ending(b"one"), Ending(reason="given up"))
    assert taken.signature == b"signed one"
    assert session.finished is not None
    assert session.finished.ending.certificate == b"one"


def test_a_message_without_an_answer_is_to_be_repeated_to_a_session_that_begins_anew() -> None:
    """The coordinator keeps what came since the last answer: a role may need it after a crash."""
    silent = Echo()
    silent.receive = lambda body: []  # type: ignore[method-assign]
    session = Session(silent, 0, Told())  # type: ignore[arg-type]
    joins = session.answer(Hello())
    assert isinstance(joins, Joins)
    link = Link(lambda: 1)
    link.put(COORDINATOR, b".")
    taken = session.answer(Packet(joins.process, (0, 0), tuple(link.pieces())))
    assert isinstance(taken, Taken)
    assert taken.done == Done(0, -1)


def test_a_coordinator_cannot_fill_a_sites_log() -> None:
    def refuse(body: bytes) -> list[Envelope]:
        raise Rejected(f"it begins with {body!r}")

    echo, lines, link = Echo(), list[str](), Link(lambda: 1)
    echo.receive = refuse  # type: ignore[method-assign]
    session = Session(echo, 0, Told(line=lines.append))  # type: ignore[arg-type]
    joins = session.answer(Hello())
    assert isinstance(joins, Joins)
    for number in range(1000):
        link.put(COORDINATOR, bytes([number % 250]))
    session.answer(Packet(joins.process, (0, 0), tuple(link.pieces())))
    assert 0 < len(lines) < 100


def test_a_coordinator_of_another_version_is_refused_by_name(sides: tuple[AskingSide, AnsweringSide]) -> None:
    asking, answering = sides
    question = msgspec.msgpack.decode(asking.question(Hello())[0], type=Question)
    for theirs in ("0.0.1", "9.9"):
        with pytest.raises(SignInRefused, match=rf"and the coordinator has {theirs}, which may promise something else"):
            answering.read(packed(msgspec.structs.replace(question, version=theirs)))
    with pytest.raises(SignInRefused, match=r"the coordinator has unspoken 9\.9 and speaks 2\. All need the same"):
        answering.read(packed(msgspec.structs.replace(question, version="9.9", wire=2)))
    same = msgspec.structs.replace(question, version=f"{series(question.version)}.99")
    assert answering.read(packed(same)) == Hello()
