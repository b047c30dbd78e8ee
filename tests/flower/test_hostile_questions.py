"""A coordinator asks a site whatever it likes, with the roster's key: no vector leaves uncharged, in two forms, or
without consent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flower.site_nodes import SiteTown
from unspoken.data.digests import digest_of
from unspoken.engines.flower.exchanges import AskingSide, Begins, Declines, Hello, Joins, Leaving, Packet, Taken
from unspoken.engines.network.cards import read_identity
from unspoken.engines.network.frames import ENDING, Ending, packed
from unspoken.engines.network.link import Link
from unspoken.engines.network.sign_in import SignInRefused
from unspoken.flower import taking_part
from unspoken.privacy.ledger import Ledger, recognised
from unspoken.report import consents
from unspoken.roles.attempts import next_attempt
from unspoken.roles.messages import Ask, Over
from unspoken.summation.base import COORDINATOR, Roster

SITE, ADDRESS = "St Mary", "party:0"


class Asking:
    """A coordinator and one site. Over compute nodes a party needs nothing but a request to send its vector."""

    def __init__(self, folder: Path) -> None:
        self.town = SiteTown(folder, "compute-nodes")
        self.home, self._file = self.town.home(SITE), self.town.site(SITE)
        roster = Roster.of(self.town.town.study)
        hub = read_identity(self.town.town.key("hub"))[1]
        self._side = AskingSide(self.town.town.study.digest(), hub, roster, [])
        self._link, self.process = Link(lambda: 1 << 20), b""

    def ask(self, asked: Hello | Packet) -> Any:
        """The site's answer; that it declines is one, too."""
        content, nonce = self._side.question(asked, ADDRESS)
        try:
            return self._side.answer(taking_part.answer(content, str(self._file)), nonce)[1]
        except SignInRefused as reason:
            return reason

    def greet(self) -> Any:
        answered = self.ask(Hello())
        if isinstance(answered, Joins):
            self.process, self._link = answered.process, Link(lambda: 1 << 20)
        return answered

    def put(self, body: bytes, sender: str) -> None:
        """Let a message go together with the next one that is said."""
        self._link.put(sender, body)

    def say(self, body: bytes, sender: str = COORDINATOR) -> tuple[Any, list[bytes]]:
        """The last answer to a message, and the messages that have come with the answers to it: vectors."""
        self.put(body, sender)
        came: list[bytes] = []
        while True:
            answered = self.ask(Packet(self.process, self._link.expects, tuple(self._link.pieces())))
            if not isinstance(answered, Taken):
                return answered, came
            self._link.resume(answered.expects)
            new = [piece for piece in answered.pieces if (piece.number, piece.offset) >= self._link.expects]
            if not new:
                return answered, came
            came += [arrived.body for piece in new if (arrived := self._link.take(piece)[1]) is not None]

    @property
    def charges(self) -> int:
        """The number of charges in the site's own ledger, whatever the data set."""
        ledger = self.home / "ledger.sqlite"
        return sum(len(Ledger(ledger, name).account().charges) for name in (SITE, "Charité"))


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    monkeypatch.setenv("UNSPOKEN_HOME", "/nowhere")
    made = Asking(tmp_path)
    assert isinstance(made.greet(), Joins)
    yield made
    made.town.stop()


def request(attempt: bytes = b"", **said: Any) -> bytes:
    return packed(Ask(**{"attempt": attempt or next_attempt(), "kind": "sum", "name": "model", "turn": 0, **said}))


def test_however_it_is_asked_one_vector_leaves_and_is_charged_once(asking: Asking) -> None:
    attempt = next_attempt()
    first = request(attempt)
    vectors = asking.say(first)[1]
    assert len(vectors) == 3
    # Its answer was lost; then its node has begun anew.
    assert asking.say(first)[1] == vectors
    asking.greet()
    assert asking.say(first)[1] == vectors
    for other in [request(attempt, turn=1), request(attempt, numbers=bytes(8)), request(), request(turn=1)]:
        assert asking.say(other)[1] == []
    asking.say(packed(Over(attempt)))
    assert asking.say(first)[1] == []
    assert asking.charges == 1


@pytest.mark.parametrize("content", [b"", b"nothing", packed(Ending(b"{}"))])
def test_what_is_no_question_is_declined_with_a_sentence_in_the_site_s_log(
    content: bytes, asking: Asking, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert taking_part.answer(content, str(asking.home / "site.toml")) == packed(Declines(taking_part._DECLINES))
    said = capsys.readouterr().err
    assert said.startswith("unspoken: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("lost", ["the session", "the answer"])
def test_a_vector_whose_answer_did_not_leave_is_the_same_when_it_is_asked_for_again(
    lost: str, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was charged, and then the disk was full, or the process was killed."""
    first, keep, answers = request(), taking_part._TakingPart.keep, list[Any]()

    def full(place: Any, session: bytes) -> None:
        raise OSError(28, "No space left on device")

    def kept(place: Any, session: bytes) -> None:
        keep(place, session)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(taking_part._TakingPart, "keep", full if lost == "the session" else kept)
        answer, vectors = asking.say(first)
        assert isinstance(answer, Leaving)
        assert not vectors
        assert asking.charges == 1
    for _ in range(2):
        asking.greet()
        answers.append(asking.say(first)[1])
    assert len(answers[0]) == 3
    assert answers[0] == answers[1]
    assert asking.charges == 1


@pytest.mark.parametrize("damaged", [lambda kept: kept[:40], lambda kept: kept[:-9] + b"\xc1" * 9])
def test_a_session_whose_file_is_damaged_is_begun_anew(damaged: Callable[[bytes], bytes], asking: Asking) -> None:
    """The role's own state says what has left: the site need not stay away for good."""
    vectors = asking.say(first := request())[1]
    (file,) = (asking.home / "states").glob("*.session")
    file.write_bytes(damaged(file.read_bytes()))
    answer, came = asking.say(first)
    assert isinstance(answer, Begins)
    assert not came
    assert isinstance(asking.greet(), Joins)
    assert asking.say(first)[1] == vectors
    assert asking.charges == 1


def test_two_nodes_with_one_site_file_do_not_both_make_a_vector(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is asked while the first one has not answered yet."""
    first, keep, meanwhile = request(), taking_part._TakingPart.keep, list[Any]()

    def slow(place: Any, session: bytes) -> None:
        if not meanwhile:
            meanwhile.append(None)
            meanwhile[0] = asking.ask(Packet(asking.process, (0, 0), ()))
        keep(place, session)

    monkeypatch.setattr(taking_part._TakingPart, "keep", slow)
    assert len(asking.say(first)[1]) == 3
    assert isinstance(meanwhile[0], Leaving)
    assert asking.charges == 1


def test_other_records_than_those_that_were_agreed_to_are_not_used(asking: Asking) -> None:
    """The site's file names another data set meanwhile: the site decides again, and its log names both."""
    asking.town.site(SITE, data=str(asking.town.town.folder / "Charité.npz"))
    answer, vectors = asking.say(request())
    assert isinstance(answer, Begins)
    assert not vectors
    assert asking.charges == 0
    asking.greet()
    assert len(asking.say(request())[1]) == 3
    assert asking.charges == 1
    assert [entry["dataset"] for entry in consents.read(asking.home / "consent.jsonl")] == [SITE, "Charité"]


def test_a_file_that_has_other_records_than_those_that_were_agreed_to_is_decided_on_again(asking: Asking) -> None:
    """Under the same name: the ledger may know these as another data set, with another account."""
    folder, ledger = asking.town.town.folder, asking.home / "ledger.sqlite"
    other = folder / "Charité.npz"
    recognised(ledger, digest_of([other]), "Charité", str(other)).set_limit(3.0, 1e-5)
    (folder / f"{SITE}.npz").write_bytes(other.read_bytes())
    answer, vectors = asking.say(request())
    assert isinstance(answer, Begins)
    assert not vectors
    assert asking.charges == 0
    asking.greet()
    assert len(asking.say(request())[1]) == 3
    assert [entry["dataset"] for entry in consents.read(asking.home / "consent.jsonl")] == [SITE, "Charité"]


@pytest.mark.parametrize("other", [{"dataset": "Mary's"}, {"ledger": "other.sqlite"}], ids=str)
def test_what_was_agreed_to_is_charged_to_the_ledger_that_the_person_or_policy_saw(
    other: dict[str, str], asking: Asking
) -> None:
    asking.town.site(SITE, **other)
    answer, vectors = asking.say(request())
    assert isinstance(answer, Begins)
    assert not vectors


def test_after_the_study_has_ended_no_vector_leaves_unless_the_site_decides_again(
    asking: Asking, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was given up: nobody waits for a vector, so nothing is charged for one."""
    asking.say(packed(Ending(reason="too few are left")), ENDING)
    assert "the study ended without a result here: too few are left" in capsys.readouterr().err
    for _ in range(2):
        answer, vectors = asking.say(request())
        assert isinstance(answer, Taken)
        assert not vectors
    assert "no vector leaves after it" in capsys.readouterr().err
    assert asking.charges == 0
    asking.town.site(SITE, yes=False)
    assert isinstance(asking.greet(), SignInRefused)
    asking.town.site(SITE)
    asking.greet()
    assert len(asking.say(request())[1]) == 3
    answers = [entry["answer"] for entry in consents.read(asking.home / "consent.jsonl")]
    assert answers == ["agreed", "refused", "agreed"]


def test_a_site_hears_from_its_own_ledger_what_a_study_without_a_result_has_cost_it(
    asking: Asking, capsys: pytest.CaptureFixture[str]
) -> None:
    """The coordinator counts what may have left anybody."""
    over = packed(Ending(reason="stopped. Vectors may have left once, so epsilon = 2 of the planned 2 is spent"))
    asking.say(over, ENDING)
    assert "of the planned 2 is spent. Here, of this study nothing is spent." in capsys.readouterr().err
    asking.greet()
    assert len(asking.say(request())[1]) == 3
    asking.say(over, ENDING)
    assert "is spent. Here, of this study 1 vector has left, at epsilon = " in capsys.readouterr().err


def test_a_certificate_that_is_not_signed_ends_the_session_too(asking: Asking) -> None:
    answer, _ = asking.say(packed(Ending(b"{}")), ENDING)
    assert isinstance(answer, Taken)
    assert answer.signature == b""
    assert asking.say(request())[1] == []
    assert asking.charges == 0


ELSEWHERE = Ending(b'{"happened": {"engine": "another one"}}')


@pytest.mark.parametrize("ending", [Ending(reason="too few are left"), Ending(b"{}"), ELSEWHERE])
def test_a_request_that_comes_together_with_the_end_gets_no_vector(ending: Ending, asking: Asking) -> None:
    asking.put(packed(ending), ENDING)
    answer, vectors = asking.say(request())
    assert isinstance(answer, Taken)
    assert not vectors
    assert asking.charges == 0
