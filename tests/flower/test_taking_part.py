"""Sites take part with what their own files name, as `unspoken join` does: consent, ledger, state, signed results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flower.site_nodes import SiteTown, Stopped
from network.town import NAMES, NODES
from unspoken import verify
from unspoken.engines.flower.exchanges import AskingSide, Begins, Declines, Hello, Joins, Packet, Taken
from unspoken.engines.flower.server import FlowerServer
from unspoken.engines.network.cards import read_identity
from unspoken.engines.network.frames import Ending, Signatures, unpacked
from unspoken.engines.network.relay import Peer
from unspoken.engines.network.sign_in import SignInRefused
from unspoken.engines.outcome import NETWORK
from unspoken.errors import UnspokenError
from unspoken.flower import taking_part
from unspoken.flower.site import read_site
from unspoken.privacy.ledger import Ledger
from unspoken.privacy.ledger_pages import Charged
from unspoken.report import consents
from unspoken.study import read_study
from unspoken.summation.base import Aborted, Roster


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowerServer, "poll_seconds", 0.005)
    monkeypatch.setattr(FlowerServer, "again_seconds", 0.01)
    monkeypatch.setenv("UNSPOKEN_HOME", "/nowhere")


@pytest.fixture
def towns(tmp_path: Path) -> Iterator[Callable[..., SiteTown]]:
    made: list[SiteTown] = []

    def make(*given: Any, **said: Any) -> SiteTown:
        made.append(SiteTown(tmp_path, *given, **said))
        return made[-1]

    yield make
    for town in made:
        town.stop()


@pytest.mark.parametrize("protocol", ["secagg+", "compute-nodes"])
def test_everyone_has_the_same_signed_result_and_has_paid_for_it(
    towns: Callable[..., SiteTown], protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    town = towns(protocol)
    served = town.run()
    assert served.certificate["happened"]["engine"].startswith("Flower")
    assert served.certificate["happened"]["survivors"] == 3
    assert served.certificate["simulation"] is False
    assert len(served.signatures) == 1 + 3
    for name in ("hub", *NAMES):
        results = town.home(name) / "results"
        checked = verify(results / "sites.certificate.json", town.town.file, results / "sites.model.skops")
        assert checked
    for name in NAMES:
        spent = Ledger(town.home(name) / "ledger.sqlite", name).guarantee(delta=1e-5)
        assert spent.epsilon == pytest.approx(2.0, rel=0.01)
        assert [entry["answer"] for entry in consents.read(town.home(name) / "consent.jsonl")] == ["agreed"]
    assert "Signed by the coordinator and 3 of 3 parties." in capsys.readouterr().out


def test_a_site_that_has_signed_has_the_result_though_the_last_word_is_lost(
    towns: Callable[..., SiteTown], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends in bounded time, and nobody is asked after it."""
    monkeypatch.setattr(FlowerServer, "farewell_seconds", 0.3)
    town, end = towns(), Peer.end

    def lost(peer: Peer, body: bytes) -> None:
        if peer.address != "party:0" or isinstance(unpacked(body, Ending | Signatures), Ending):
            end(peer, body)

    monkeypatch.setattr(Peer, "end", lost)
    town.run()
    counts = []
    for name in NAMES:
        results = town.home(name) / "results"
        certificate = results / "sites.certificate.json"
        assert verify(certificate, town.town.file, results / "sites.model.skops")
        assert sorted(file.name for file in results.iterdir()) == ["sites.certificate.json", "sites.model.skops"]
        counts.append(len(json.loads(certificate.read_text())["signatures"]))
    assert sorted(counts) == [2, 4, 4]


def test_a_study_that_has_ended_is_not_run_again(
    towns: Callable[..., SiteTown], capsys: pytest.CaptureFixture[str]
) -> None:
    town = towns()
    first = town.run()
    asked = [node.questions for node in town.grid.there.values()]
    assert "ended before" not in capsys.readouterr().out
    again = town.run()
    assert "This study has ended before; its results are there." in capsys.readouterr().out
    assert again.is_old
    assert again.certificate == first.certificate
    assert [node.questions for node in town.grid.there.values()] == asked


def test_where_nobody_says_yes_a_party_takes_no_part_and_tells_only_its_own_people(
    towns: Callable[..., SiteTown], capsys: pytest.CaptureFixture[str]
) -> None:
    town = towns()
    town.site("St Mary", yes=False)
    town.greet()
    said = capsys.readouterr()
    place = town.home("St Mary")
    assert f"let {place / 'policy.toml'} decide, or write yes = true in {place / 'site.toml'}; nothing was" in said.err
    assert "its own log says why" in said.out
    assert "nobody can be asked" not in said.out
    (entry,) = consents.read(place / "consent.jsonl")
    assert (entry["answer"], entry["by"]) == ("refused", "nobody")
    pages = Ledger(town.home("St Mary") / "ledger.sqlite", "St Mary").account().pages
    assert not [page for page in pages if isinstance(page, Charged)]


def write_policy(town: SiteTown, name: str, limits: str) -> None:
    roster = town.town.study.roster
    assert roster is not None
    rules = f'refuse_uncovered = false\n[coordinators]\nhub = "{roster.coordinator}"\n[limits]\n{limits}\n'
    (town.home(name) / "policy.toml").write_text(rules)


def test_a_policy_answers_even_where_the_file_says_yes(
    towns: Callable[..., SiteTown], capsys: pytest.CaptureFixture[str]
) -> None:
    town = towns()
    write_policy(town, "St Mary", "epsilon = 1.0")
    town.greet()
    assert "epsilon is 1.0, but" in capsys.readouterr().err
    (entry,) = consents.read(town.home("St Mary") / "consent.jsonl")
    assert (entry["answer"], entry["by"]) == ("refused", "policy")


def test_a_policys_total_holds_for_every_vector_though_each_is_made_by_another_process(
    towns: Callable[..., SiteTown], capsys: pytest.CaptureFixture[str]
) -> None:
    """The limit is lowered when the party has agreed and its vector has not left."""
    town = towns()
    write_policy(town, "St Mary", "total_epsilon = 3.0")

    def lower(pushed: Any) -> None:
        if town.grid.there[0].questions == 1:
            write_policy(town, "St Mary", "total_epsilon = 0.5")

    town.grid.before = lower
    with pytest.raises(Aborted):
        town.run()
    said = capsys.readouterr()
    assert "the policy's limit" in said.err
    assert "its ledger does not allow more" in said.out


class Asking:
    """A coordinator that asks one site what it likes."""

    def __init__(self, town: SiteTown, name: str) -> None:
        hub, roster = read_identity(town.town.key("hub"))[1], Roster.of(town.town.study)
        self._side, self._file = AskingSide(town.town.study.digest(), hub, roster, []), town.site(name)

    def ask(self, asked: Any) -> Any:
        """The site's answer; that it declines is one, too."""
        content, nonce = self._side.question(asked, "party:0")
        try:
            return self._side.answer(taking_part.answer(content, str(self._file)), nonce)[1]
        except SignInRefused as reason:
            return reason


@pytest.mark.parametrize("how", ["no yes", "a policy that refuses", "no policy any more"])
def test_a_session_ends_when_what_consent_rested_on_has_changed(towns: Callable[..., SiteTown], how: str) -> None:
    """A coordinator that does not greet the site again cannot go on with what was agreed to before."""
    town = towns()
    asking, policy = Asking(town, "St Mary"), town.home("St Mary") / "policy.toml"
    if how == "no policy any more":
        write_policy(town, "St Mary", "epsilon = 2.0")
    packet = Packet(asking.ask(Hello()).process, (0, 0), ())
    assert isinstance(asking.ask(packet), Taken)
    if how == "a policy that refuses":
        write_policy(town, "St Mary", "epsilon = 1.0")
    else:
        town.site("St Mary", yes=False)
        policy.unlink(missing_ok=True)
    assert isinstance(asking.ask(packet), Begins)
    assert isinstance(asking.ask(Hello()), SignInRefused)


def test_a_session_ends_when_the_site_refuses_a_greeting(towns: Callable[..., SiteTown]) -> None:
    """The refusal is recorded as one after which nothing was sent."""
    town = towns()
    asking = Asking(town, "St Mary")
    packet = Packet(asking.ask(Hello()).process, (0, 0), ())
    town.site("St Mary", yes=False)
    assert isinstance(asking.ask(Hello()), SignInRefused)
    town.site("St Mary")
    assert isinstance(asking.ask(packet), Begins)
    answers = [entry["answer"] for entry in consents.read(town.home("St Mary") / "consent.jsonl")]
    assert answers == ["agreed", "refused"]


def test_whoever_is_greeted_begins_a_session_anew(towns: Callable[..., SiteTown]) -> None:
    """A helper, too: a coordinator that begins again counts its messages from 0, and old sessions would skip them."""
    town = towns("compute-nodes")
    side = AskingSide(
        town.town.study.digest(), read_identity(town.town.key("hub"))[1], Roster.of(town.town.study), ["n"]
    )
    processes = set()
    for name in (NAMES[0], NODES[0]) * 2:
        content, nonce = side.question(Hello())
        joins = side.answer(taking_part.answer(content, str(town.site(name))), nonce)[1]
        assert isinstance(joins, Joins)
        processes.add(joins.process)
    assert len(processes) == 4


def test_a_copy_of_the_study_that_was_changed_is_refused_on_both_sides(
    towns: Callable[..., SiteTown], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    town = towns()
    changed = tmp_path / "changed.toml"
    changed.write_text(town.town.file.read_text().replace("epsilon = 2.0", "epsilon = 2.5"))
    town.site("St Mary", study=str(changed))
    town.greet()
    said = capsys.readouterr()
    assert "its copy of the study differs" in said.out
    assert f"{changed} (digest {read_study(changed).digest()[:16]}): this site takes no part: its copy" in said.err


def test_a_study_file_that_is_not_the_pinned_one_is_refused(towns: Callable[..., SiteTown]) -> None:
    town = towns()
    digest = town.town.study.digest()
    assert read_site(town.site("St Mary", digest=digest[:16])).read_study().digest() == digest
    with pytest.raises(UnspokenError, match=r"digest is ffffffffffffffff, but .* it was changed"):
        read_site(town.site("St Mary", digest="f" * 16)).read_study()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"polcy": "x"}, "site.toml, line 5: polcy is an unknown key; did you mean 'policy'?"),
        ({"study": None}, "site.toml: study is missing; it should be the path"),
        ({"yes": "true"}, 'site.toml, line 3: yes is "true", but should be true or false'),
        ({"digest": "short"}, "16 or more"),
        ({"source": "x"}, "source is an unknown key"),
        ({"study": "nowhere.toml"}, "nowhere.toml"),
        ({"keys": "nowhere.secret"}, "nowhere.secret"),
        ({"data": "nowhere.npz"}, "nowhere.npz"),
        ({"output": "St Mary.card"}, "St Mary.card: is a file, but output should be a folder"),
    ],
)
def test_a_mistake_in_a_sites_file_is_told_to_its_own_people_alone(
    towns: Callable[..., SiteTown], said: dict[str, str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    town = towns()
    file = town.site("St Mary", **said)
    town.grid.there = {0: town.grid.there[0]}
    town.greet()
    told = capsys.readouterr()
    assert problem in told.err
    assert problem not in told.out
    assert unpacked(taking_part.answer(b"nothing", str(file)), Declines).reason


def test_a_node_without_a_site_file_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(unpacked(taking_part.answer(b"anything", None), Declines), Declines)
    assert "--node-config" in capsys.readouterr().err


def test_a_session_that_cannot_be_kept_is_not_answered(
    towns: Callable[..., SiteTown], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer that left without it would be given again under another number."""
    town, keep = towns(), taking_part._TakingPart.keep

    def full(place: Any, session: bytes) -> None:
        if place.data and place.data.stem == "St Mary" and town.grid.there[0].questions > 2:
            raise OSError(28, "No space left on device")
        keep(place, session)

    monkeypatch.setattr(taking_part._TakingPart, "keep", full)
    with pytest.raises(Aborted):
        town.run()
    said = capsys.readouterr()
    assert "No space left" in said.err
    assert "it could not keep its state" in said.out


def test_a_certificate_that_says_that_the_study_ran_elsewhere_is_not_signed(
    towns: Callable[..., SiteTown], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the promise rests on is not the same over Flower as on our own network."""
    monkeypatch.setattr(FlowerServer, "engine", NETWORK)
    town = towns()
    assert len(town.run().signatures) == 1
    assert capsys.readouterr().err.count("ran elsewhere than over Flower") >= 3
    assert not (town.home("St Mary") / "results").exists()


def test_what_fails_at_a_site_stays_there(
    towns: Callable[..., SiteTown], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flower sends the text of an error to the coordinator, and that may say what is in a record."""
    town = towns()

    def fail(*given: Any) -> None:
        raise ValueError("the patient is Smith")

    monkeypatch.setattr(taking_part, "read_with_digest", fail)
    town.greet()
    told = capsys.readouterr()
    assert "the patient is Smith" in told.err
    assert "Smith" not in told.out
    assert b"Smith" not in taking_part.answer(b"", str(town.site("St Mary")))


def test_paths_are_from_the_files_own_folder(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('study = "study.toml"\ndata = "mine.csv"\nkeys = "/etc/x.secret"\n')
    site = read_site(tmp_path / "site.toml")
    assert site.path(site.data) == tmp_path / "mine.csv"
    assert site.path(site.keys) == Path("/etc/x.secret")
    assert site.path(site.policy) is None


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"study": ""}, "names no study"),
        ({"stage-seconds": 0.0}, "stage-seconds=0.0"),
        ({"study": "/no"}, "/no"),
        ({"study": "heart.toml"}, f"{Path.cwd()}/heart.toml: there is no such file"),  # from where Flower runs
        ({"study": 3}, "study=3, but it should be a path in quotes"),
        ({"output": __file__}, "is a file, but output should be a folder; choose another"),
    ],
)
def test_a_mistake_in_the_runs_configuration_is_one_sentence(
    towns: Callable[..., SiteTown], said: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UnspokenError, match=problem) as error:
        towns().run(**said)
    assert "\n" not in str(error.value)


def test_a_tilde_in_the_runs_configuration_is_the_home_folder(
    towns: Callable[..., SiteTown], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell expands it: it stands in quotes. Results would go to a folder of that name, wherever Flower runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    town = towns()
    town.run(output="~/results")
    assert not (tmp_path / "~").exists()
    assert (tmp_path / "user" / "results" / "sites.model.skops").exists()


def test_a_coordinator_that_was_stopped_goes_on(towns: Callable[..., SiteTown]) -> None:
    """A second `flwr run` of the study: sessions are new, roles and the coordinator's log are not."""
    town = towns()

    def stop(pushed: Any) -> None:
        if sum(node.questions for node in town.grid.there.values()) == 8:
            raise Stopped

    town.grid.before = stop
    with pytest.raises(Stopped):
        town.run()
    town.grid.before = lambda pushed: None
    town.grid.pushed.clear()
    served = town.run()
    assert served.certificate["happened"]["survivors"] == 3
    assert json.loads((town.home("St Mary") / "results/sites.certificate.json").read_text())["signatures"]
