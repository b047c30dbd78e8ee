"""Before anything is sent a party is told what it agrees to, and whoever answers, the answer is written down."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from network.town import NAMES, STUDY, Town
from unspoken import writing
from unspoken.cli import app
from unspoken.engines.network.cards import read_card
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger, OverLimit
from unspoken.report import consents
from unspoken.report.consents import ConsentError
from unspoken.report.policy import refusal, total_limit
from unspoken.study import Study, StudyError, fingerprint, make_study
from unspoken.study.policy import Policy, read_policy
from unspoken.summation.keys import Identity

TABLE = STUDY.replace(
    "features = 4\nclasses = 2",
    'label = "died"\nclasses = ["no", "yes"]\ncolumns = {{ age = {{ min = 0, max = 110 }} }}',
)


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    found = Town(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / NAMES[0]))
    return found


def join(*more: str, answer: str = "") -> Result:
    """A party whose coordinator is not there: after a yes it says that it is not reached."""
    command = ["join", "study.toml", "--data", f"{NAMES[0]}.npz", "--coordinator", "127.0.0.1:9", "--patience", "0"]
    return CliRunner().invoke(app, [*command, *more], input=answer)


def answers() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(CliRunner().invoke(app, ["consents", "--json"]).stdout)["answers"]
    return found


def carded(town: Town, name: str) -> str:
    """A name with the digits of its card."""
    return f"{name} ({fingerprint(read_card(town.key(name).with_suffix('.card')).key)})"


def test_the_screen_says_what_is_agreed_to(town: Town) -> None:
    said = join(answer="n\n")
    shown = " ".join(said.output.split())
    for part in (
        "learns helmet",
        "from 4 features; the label, one of 2 classes; nothing else",
        "protects one record",
        "promise epsilon = 2, delta = 1e-05",
        f"coordinator {carded(town, 'hub')}",
        f"parties {', '.join(carded(town, name) for name in NAMES)}",
        "compare the digits with those that each of them reads from its own card",
        "must not collude any 2 of the 3 parties; 1 may, even with a coordinator that lies",
        "you are St Mary, with 40 records, which stay here",
        "your ledger “St Mary” has spent nothing yet. There is no limit.",
        "would cost at most epsilon = 2 at delta = 1e-05, with every attempt that it may make; all studies together",
        "Guarantee. Whoever sees",
        "Take part? [y/N]:",
    ):
        assert part in shown, part
    assert said.exit_code == 4
    assert "the person who was asked said no; nothing was sent." in said.stderr


def test_keys_roster_and_the_screen_show_the_same_digits(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CliRunner().invoke(app, ["keys", "Ward", "--folder", "ward"]).stdout
    key = read_card(Path("ward/Ward.card")).key
    assert made.rstrip().endswith(" ".join(key[place : place + 4] for place in (0, 4, 8, 12, 16)))
    shown = CliRunner().invoke(app, ["roster", "study.toml"]).stdout
    told = json.loads(CliRunner().invoke(app, ["roster", "study.toml", "--json"]).stdout)
    everyone = [("coordinator", "hub"), *(("party", name) for name in NAMES)]
    assert [(each["role"], each["name"]) for each in told["roster"]] == everyone
    screen = " ".join(join(answer="n\n").output.split())
    for each in told["roster"]:
        assert re.search(rf"{each['fingerprint']} +{each['role']} +{each['name']}", shown)
        assert f"{each['name']} ({each['fingerprint']})" in screen
        assert each["key"].startswith(each["fingerprint"].replace(" ", ""))


def test_what_cannot_be_is_told_before_anybody_is_asked(town: Town) -> None:
    """Too few records, and a limit: nobody agrees to it, and nothing is kept."""
    np.savez("few.npz", X=np.zeros((39, 4)), y=np.zeros(39, int))
    few = join("--data", "few.npz", answer="y\n")
    assert few.exit_code == 2
    assert "this party has 39 records, but the study's [parties] asks for at least 40" in few.stderr
    limit = [
        "ledger",
        "limit",
        "--data",
        f"{NAMES[0]}.npz",
        "--dataset",
        "wards",
        "--epsilon",
        "1.9",
        "--delta",
        "1e-5",
    ]
    assert CliRunner().invoke(app, limit).exit_code == 0
    over = join("--json", answer="y\n")
    assert over.exit_code == 4
    assert json.loads(over.stdout)["outcome"] == "refused"
    assert json.loads(over.stdout)["reason"].startswith('the ledger\'s limit for "wards" is epsilon = 1.9')
    assert "Take part?" not in few.output + over.output
    assert answers() == []
    assert not (town.folder / "homes" / NAMES[0] / "states").exists()


def test_a_folder_that_takes_no_file_is_told_before_anybody_is_asked(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its mode says: root may write to every folder, but not to a disk that is read-only."""

    def read_only(**given: Any) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(writing.tempfile, "mkdtemp", read_only)
    said = join("--output", "results", answer="y\n")
    assert said.exit_code == 2
    assert "results: cannot be written to (Read-only file system)" in said.stderr
    assert "choose another --output" in said.stderr
    assert (answers(), Path("results").exists()) == ([], False)
    monkeypatch.setenv("UNSPOKEN_HOME", str(town.folder / "homes" / "hub"))
    told: list[str] = []
    monkeypatch.setattr("unspoken.sites.serve", lambda *given, **named: told.append("it serves"))
    served = CliRunner().invoke(app, ["serve", "study.toml", "--listen", "127.0.0.1:0", "--output", "results"])
    assert (served.exit_code, told) == (2, [])


def test_every_answer_is_in_the_log_with_who_gave_it(town: Town) -> None:
    assert join(answer="n\n").exit_code == 4
    assert join().exit_code == 4, "nobody is there to answer"
    assert join(answer="y\n").exit_code == 3
    assert join("--yes").exit_code == 3
    found = answers()
    assert [(each["answer"], each["by"]) for each in found] == [
        ("refused", "person"),
        ("refused", "person"),
        ("agreed", "person"),
        ("agreed", "--yes"),
    ]
    assert "nobody answered" in found[1]["reason"]
    for each in found:
        assert (each["study_sha256"], each["party"], each["dataset"]) == (town.study.digest(), "St Mary", "St Mary")
    file = town.folder / "homes" / NAMES[0] / "consent.jsonl"
    assert file.stat().st_mode & 0o777 == 0o600
    shown = CliRunner().invoke(app, ["consents"]).stdout
    assert "agreed by --yes: “sites”" in shown
    assert "Every answer follows from the one before it" in shown


def test_for_programs_there_is_one_object_and_the_promise_is_on_standard_error(town: Town) -> None:
    said = join("--json", answer="n\n")
    ended = json.loads(said.stdout)
    assert (ended["outcome"], ended["survivors"], ended["files"]) == ("refused", 0, {})
    assert ended["reason"] == "the person who was asked said no; nothing was sent."
    assert "must not collude" in said.stderr
    gone = join("--json", "--yes")
    assert gone.exit_code == 3
    assert json.loads(gone.stdout)["outcome"] == "aborted"
    assert "ask its coordinator for the model and the certificate" in json.loads(gone.stdout)["reason"]


def test_without_the_log_nothing_is_agreed_to(town: Town) -> None:
    (town.folder / "homes" / NAMES[0] / "consent.jsonl").mkdir()
    said = join("--yes")
    assert said.exit_code == 2
    assert "consent.jsonl: cannot be written to" in said.stderr
    assert not (town.folder / "homes" / NAMES[0] / "states").exists()


def whole(town: Town, **other: str) -> str:
    """A policy that covers the town's study, with other values."""
    key = read_card(town.key("hub").with_suffix(".card")).key
    rules = {
        "coordinators": f'hub = "{key}"',
        "parties": "\n".join(f'"{name}" = "{read_card(town.key(name).with_suffix(".card")).key}"' for name in NAMES),
        "studies": 'methods = ["helmet"]\nprotocols = ["secagg+"]',
        "data": "features = 4",
        "limits": "epsilon = 2.0\ndelta = 1e-5\ntotal_epsilon = 2.5\ntotal_delta = 1e-5\nparties = 3\nunit = 'record'",
    } | other
    return "\n".join(f"[{section}]\n{text}" for section, text in rules.items())


def test_a_policy_answers_also_for_whoever_says_yes(town: Town) -> None:
    home = town.folder / "homes" / NAMES[0]
    (town.folder / "rules.toml").write_text(whole(town))
    assert join("--policy", "rules.toml").exit_code == 3, "it was agreed to, and the coordinator is not there"
    (home / "policy.toml").write_text(whole(town, studies='methods = ["moments"]\nprotocols = ["secagg+"]'))
    said = join("--yes", "--json")
    assert said.exit_code == 4
    told = '[studies] methods is ["moments"], but the study\'s method is "helmet"; nothing was sent.'
    assert json.loads(said.stdout)["reason"].endswith(told)
    first, second = answers()
    assert (first["answer"], first["by"], first["policy"]) == ("agreed", "policy", "rules.toml")
    assert first["policy_sha256"] == read_policy(Path("rules.toml")).sha256
    assert (second["answer"], second["by"]) == ("refused", "policy")


OTHER = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
LIMITS = "epsilon = 2.0\ndelta = 1e-5\ntotal_epsilon = 2.5\ntotal_delta = 1e-5\nparties = 3\nunit = 'record'"
RULES = [
    (
        {"coordinators": f'hub = "{"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"}"'},
        r"\[coordinators",
    ),
    ({"coordinators": ""}, r"\[coordinators\] is \{\}, but the study is coordinated by \"hub\""),
    ({"studies": 'methods = ["moments"]\nprotocols = ["secagg+"]'}, r"\[studies\] methods .* method is \"helmet\""),
    ({"studies": 'methods = ["helmet"]\nprotocols = []'}, r"\[studies\] protocols is \[\], but .* \"secagg\+\""),
    ({"studies": 'methods = ["helmet"]'}, r"\[studies\] protocols is missing: the policy says nothing about it"),
    ({"data": "features = 3"}, r"\[data\] features is 3, but the study uses 4"),
    ({"data": 'columns = ["age"]'}, r"\[data\] features is missing"),
    ({"limits": LIMITS.replace("epsilon = 2.0", "epsilon = 1.5")}, r"\[limits\] epsilon is 1.5, but .* epsilon = 2\."),
    (
        {"limits": LIMITS.replace("delta = 1e-5", "delta = 1e-6", 1)},
        r"\[limits\] delta is 1e-06, but the study's is",
    ),
    ({"limits": LIMITS.replace("parties = 3", "parties = 4")}, r"\[limits\] parties is 4, but the study has 3 parties"),
    (
        {"limits": LIMITS.replace("'record'", "{ group = 2 }")},
        r"unit is .*group.*, but the study protects \"record\"",
    ),
    ({"limits": LIMITS + "\ncolluding = 2"}, r"\[limits\] colluding is 2, but the study allows 0"),
    ({"limits": LIMITS.replace("'record'", "'party'")}, r"\[limits\] unit is \"party\", but the study protects"),
    (
        {"limits": LIMITS.replace("total_epsilon = 2.5", "total_epsilon = 1.9")},
        r"total_epsilon is 1.9, but all",
    ),
]


@pytest.mark.parametrize(("other", "told"), RULES)
def test_a_refusal_names_the_rule(other: dict[str, str], told: str, town: Town) -> None:
    file, plan = town.folder / "rules.toml", plan_for(town.study)
    file.write_text(whole(town))
    assert refusal(read_policy(file), plan, Ledger()) is None
    file.write_text(whole(town, **other))
    found = refusal(read_policy(file), plan, Ledger())
    assert found is not None
    assert re.search(rf"rules\.toml(, line \d+)?: .*{told}", found), found


def test_a_policy_may_allow_what_it_does_not_cover(town: Town) -> None:
    plan = plan_for(town.study)
    assert refusal(Policy(refuse_uncovered=False), plan, Ledger()) is None
    assert "[coordinators] is missing" in (refusal(Policy(), plan, Ledger()) or "")


def test_columns_are_those_of_the_policy_at_most_and_the_label_is_one(tmp_path: Path) -> None:
    town = Town(tmp_path, text=TABLE)
    plan = plan_for(town.study)
    only = Policy.model_validate({"refuse_uncovered": False, "data": {"columns": ["age"]}})
    both = Policy.model_validate({"refuse_uncovered": False, "data": {"columns": ["age", "died", "sex"]}})
    assert 'but the study uses "died" too' in (refusal(only, plan, Ledger()) or "")
    assert refusal(both, plan, Ledger()) is None


def test_the_total_counts_what_was_spent_and_a_study_that_was_begun_once(town: Town) -> None:
    plan, ledger = plan_for(town.study), Ledger()
    limits = {"total_epsilon": 2.5, "total_delta": 1e-5}
    policy = Policy.model_validate({"refuse_uncovered": False, "limits": limits})
    other = make_study(
        {**town.study.model_dump(mode="json", exclude_none=True), "study": {"name": "b", "task": "classification"}}
    )
    ledger.charge(plan.ledger_run("one"), "first", plan.costs)
    assert refusal(policy, plan, ledger, 0, "one") is None, "it goes on"
    assert "would come to" in (refusal(policy, plan, ledger, 0, "two") or ""), "a simulation is no beginning"
    assert "would come to" in (refusal(policy, plan_for(other), ledger) or "")


def changed(town: Town, **sections: dict[str, object]) -> Study:
    content = town.study.model_dump(mode="json", exclude_none=True)
    return make_study({**content, **{name: {**content[name], **keys} for name, keys in sections.items()}})


def test_a_promise_that_rests_on_less_is_refused_unless_the_policy_allows_it(town: Town) -> None:
    curious = plan_for(changed(town, summation={"protocol": "secagg+", "coordinator": "curious"}))
    enclaves = plan_for(changed(town, privacy={"enclaves": True}))
    strict = Policy(refuse_uncovered=False)
    lax = Policy.model_validate({"refuse_uncovered": False, "studies": {"coordinator": "curious", "enclaves": True}})
    assert "does not hold against a coordinator that lies" in (refusal(strict, curious, Ledger()) or "")
    assert "rests on enclaves" in (refusal(strict, enclaves, Ledger()) or "")
    assert refusal(lax, curious, Ledger()) is refusal(lax, enclaves, Ledger()) is None


def test_whole_parties_do_not_stand_for_groups_of_records_at_several_parties(town: Town) -> None:
    party = plan_for(changed(town, privacy={"unit": "party"}))
    for unit, is_kept in (({"group": 3}, False), ("record", True), ("party", True)):
        policy = Policy.model_validate({"refuse_uncovered": False, "limits": {"unit": unit}})
        assert (refusal(policy, party, Ledger()) is None) is is_kept


def test_helpers_are_those_of_the_policy(town: Town) -> None:
    keys = [Identity(bytes([number]) * 32).public.hex() for number in range(3)]
    study = changed(town, summation={"protocol": "compute-nodes"}, roster={"helpers": keys})
    plan = plan_for(study)
    few = Policy.model_validate({"refuse_uncovered": False, "helpers": {"node": keys[0]}})
    all_of_them = Policy.model_validate({"refuse_uncovered": False, "helpers": dict(zip("abc", keys, strict=True))})
    assert "the study has the helpers" in (refusal(few, plan, Ledger()) or "")
    assert refusal(all_of_them, plan, Ledger()) is None
    assert study.roster is not None
    parties = dict(zip(NAMES, study.roster.parties, strict=True))
    covered = {"coordinators": {"hub": study.roster.coordinator}, "parties": parties}
    assert "[helpers] is missing" in (refusal(Policy.model_validate(covered), plan, Ledger()) or "")


def test_two_studies_that_were_both_agreed_to_keep_the_policy_s_total(town: Town) -> None:
    """Both fit when they are asked about, and only one when the second is charged."""
    plan, ledger = plan_for(town.study), Ledger()
    policy = Policy.model_validate({"limits": {"total_epsilon": 2.5, "total_delta": 1e-5}})
    limit = total_limit(policy)
    assert limit is not None
    ledger.cap(limit)
    ledger.charge(plan.ledger_run("one"), "first", plan.costs)
    with pytest.raises(OverLimit, match="the policy's limit"):
        ledger.charge(plan.ledger_run("two"), "first", plan.costs)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[limits]\nepsilom = 1\n",
            r"rules\.toml, line 2: \[limits\] epsilom is an unknown key; did you mean",
        ),
        ("[limits]\nepsilon = -1\n", r"rules\.toml, line 2: \[limits\] epsilon is -1, but should be a number above 0"),
        ('[coordinators]\nhub = "ab"\n', r'rules\.toml, line 1: \[coordinators\] is "ab", but should be keys by names'),
        ("[limits\n", r"rules\.toml: is not valid TOML"),
        ("[sha256]\n", r"\[sha256\] is an unknown section; remove it"),
    ],
)
def test_a_mistake_in_a_policy_is_named(text: str, told: str, town: Town) -> None:
    (town.folder / "rules.toml").write_text(text)
    with pytest.raises(StudyError, match=told):
        read_policy(town.folder / "rules.toml")
    said = join("--policy", "rules.toml", "--yes")
    assert (said.exit_code, answers()) == (2, [])


def test_the_policy_of_the_documentation_is_one(town: Town) -> None:
    page = (Path(__file__).parents[2] / "docs" / "network.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    (town.folder / "rules.toml").write_text(re.sub("[0-9a-f]{4}…", OTHER, text))
    found = read_policy(town.folder / "rules.toml")
    assert found.refuse_uncovered
    assert (found.coordinators, found.parties) == ({"hub": OTHER}, dict.fromkeys(NAMES[:2], OTHER))


def test_a_line_that_was_changed_taken_out_or_put_in_shows(tmp_path: Path) -> None:
    file = tmp_path / "home" / "consent.jsonl"
    for number in range(4):
        consents.append(file, {"answer": "agreed", "study": f"study {number}"})
    lines = file.read_text().splitlines(keepends=True)
    assert [entry["study"] for entry in consents.read(file)] == [f"study {number}" for number in range(4)]
    for kept, where in (
        ([lines[0], lines[2], lines[3]], 2),
        (lines[1:], 1),
        ([lines[0], lines[1].replace("agreed", "refused"), *lines[2:]], 3),
        ([lines[0], lines[0], *lines[1:]], 2),
        ([lines[0], "junk\n", *lines[2:]], 3),
    ):
        file.write_text("".join(kept))
        with pytest.raises(ConsentError, match=rf"consent\.jsonl, line {where}: does not follow the line before it"):
            consents.read(file)
    file.write_text("".join([*lines, "{}\n"]))
    with pytest.raises(ConsentError, match=r"consent\.jsonl, line 5: is no answer"):
        consents.read(file)


def test_a_line_that_a_crash_has_torn_counts_for_nothing_and_the_log_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "consent.jsonl"
    consents.append(file, {"answer": "agreed"})
    with file.open("a") as log:
        log.write('{"answer": "agr')
    consents.append(file, {"answer": "refused"})
    assert [entry["answer"] for entry in consents.read(file)] == ["agreed", "torn", "refused"]


@pytest.mark.parametrize("address", ["https://127.0.0.1:8765", "hub", "hub:", "hub:99999", "me@hub:8765"])
def test_an_address_that_is_none_is_told_before_anybody_is_asked(address: str, town: Town) -> None:
    said = CliRunner().invoke(app, ["join", "study.toml", "--data", "hub.npz", "--coordinator", address, "--yes"])
    assert (said.exit_code, answers()) == (2, [])
    assert "should be HOST:PORT" in said.output
