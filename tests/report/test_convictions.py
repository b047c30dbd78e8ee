"""Evidence of a run that was given up: whom it convicts is found from the study and its roster alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import unspoken
from factories import make
from unspoken.cli import app
from unspoken.methods.base import Cancel, Request, Sum, ZeroSum
from unspoken.methods.registry import plan_for
from unspoken.roles.planned_requests import protocol_for
from unspoken.study import Study
from unspoken.summation.base import SignedStatement
from unspoken.summation.evidence import from_json, to_json
from unspoken.summation.keys import Identity, public_key
from unspoken.summation.mixnet import onion_bytes
from unspoken.summation.node_messages import key_statement
from unspoken.summation.shuffle_course import Announce, Confirm, Publish, Signed, Submit, statement

IDENTITIES = [Identity(bytes([number]) * 32) for number in range(9)]
"""Five parties, the coordinator, three helpers"""
KEYS = [identity.public.hex() for identity in IDENTITIES]
ROSTER = {"parties": KEYS[:5], "coordinator": KEYS[5], "helpers": KEYS[6:], "names": {"St Mary": KEYS[2]}}
FAULT = "it signed two one-time keys"


@pytest.fixture(scope="module")
def agreed() -> Study:
    return make("moments", task="statistics", summation="compute-nodes", roster=ROSTER)


@pytest.fixture(scope="module")
def file(agreed: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.toml"
    names = ", ".join(f'"{name}" = "{key}"' for name, key in ROSTER["names"].items())  # type: ignore[attr-defined]
    path.write_text(
        '[study]\nname = "test"\ntask = "statistics"\n[data]\nfeatures = 4\n[parties]\ncount = 5\n'
        '[privacy]\nepsilon = 1.0\ndelta = 1e-6\n[method]\nname = "moments"\n[summation]\nprotocol = "compute-nodes"\n'
        f"[roster]\nparties = {ROSTER['parties']}\ncoordinator = '{KEYS[5]}'\nhelpers = {ROSTER['helpers']}\n"
        f"names = {{ {names} }}\n"
    )
    assert unspoken.read_study(path).digest() == agreed.digest()
    return path


def two_keys(
    agreed: Study, party: int, signer: int | None = None, asked: Request | None = None
) -> list[dict[str, str]]:
    """What party `party` would have signed twice for one sum, the plan's first unless another is `asked` for; by
    somebody else's key, if `signer` says so."""
    plan = plan_for(agreed)
    asked = asked or Sum(plan.sums[0].name)
    label = protocol_for(plan, asked, asked.turn, bytes(15) + b"\1").session.label()
    signed = [key_statement(label, party, public_key(os.urandom(32))) for _ in range(2)]
    identity = IDENTITIES[party if signer is None else signer]
    return to_json(SignedStatement(f"party:{party}", each, identity.sign(each)) for each in signed)


@pytest.mark.parametrize("asked", [ZeroSum("function"), Cancel("function", 0), Cancel("function", 1)])
def test_evidence_of_a_sum_of_noise_convicts_too(asked: Request) -> None:
    order = "noise-first" if isinstance(asked, ZeroSum) else "messages-first"
    keys = {"name": "cape", "order": order, "function": "network", "steps": 2, "hidden": 3}
    agreed = make(method=keys, summation="compute-nodes", roster=ROSTER)
    assert unspoken.verify_evidence(two_keys(agreed, 2, asked=asked), agreed).convicted == {"party:2": FAULT}


@pytest.mark.parametrize(
    ("kind", "tokens", "fault"),
    [
        (Announce, None, {}),
        (Submit, 20, {}),
        (Submit, 19, {"party:2": "it submitted"}),
        (Submit, 21, {"party:2": "it submitted"}),
        (Announce, 1, {"party:2": "it announced"}),
        (Confirm, 1, {"party:2": "it revealed"}),
        (Publish, 1, {}),
    ],
)
def test_evidence_of_a_list_of_tokens_convicts_by_its_length(
    kind: type[Signed], tokens: int | None, fault: dict[str, str]
) -> None:
    agreed = make(
        method={"name": "cross-silo", "sampling": "without-replacement"},
        parties={"count": 5, "records": 20, "max_records": 20},
        summation="compute-nodes",
        roster=ROSTER,
    )
    label = plan_for(agreed).shuffle(1, bytes(15) + b"\1").session.label()
    body = bytes(64 if tokens is None else onion_bytes(5) * tokens)
    said = statement(kind(label, 2, bytes(32), memoryview(body), b""))
    shown = to_json([SignedStatement("party:2", said, IDENTITIES[2].sign(said))])
    found = unspoken.verify_evidence(shown, agreed).convicted
    assert {who: " ".join(what.split()[:2]) for who, what in found.items()} == fault


def given_up(evidence: Any, *blamed: str) -> dict[str, Any]:
    return {"outcome": "aborted", "reason": "…", "survivors": 0, "blamed": list(blamed), "evidence": evidence}


def test_the_evidence_of_a_run_convicts_whoever_signed_two_keys(agreed: Study) -> None:
    evidence = two_keys(agreed, 2)
    for shown in (evidence, given_up(evidence, "party:2"), from_json(evidence)):
        found = unspoken.verify_evidence(shown, agreed)
        assert found.convicted == {"party:2": FAULT}
        assert found.unproven == ()
        assert found.to_json()["convicted"] == [{"address": "party:2", "name": "St Mary", "fault": FAULT}]
    assert found.lines() == [
        "2 signed statements are genuine, and about test.",
        f"Convicted: St Mary (party 2): {FAULT}.",
    ]


def test_blame_without_proof_is_told_apart(agreed: Study) -> None:
    found = unspoken.verify_evidence(given_up(two_keys(agreed, 0)[:1], "party:0", "node:1"), agreed)
    assert found.convicted == {}
    assert found.unproven == ("party:0", "node:1")
    assert found.lines()[1:] == [
        "Nobody is convicted by them.",
        f"Blamed, without a statement that proves it: {KEYS[0][:8]}… (party 0), {KEYS[7][:8]}… (node 1).",
    ]


def test_the_command_says_it_to_people_and_to_programs(agreed: Study, file: Path, tmp_path: Path) -> None:
    shown = tmp_path / "given_up.json"
    shown.write_text(json.dumps(given_up(two_keys(agreed, 2), "party:2", "party:4")))
    command = ["verify", "--evidence", str(shown), "--study", str(file)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    assert f"Convicted: St Mary (party 2): {FAULT}." in done.stdout
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert told["convicted"] == [{"address": "party:2", "name": "St Mary", "fault": FAULT}]
    assert (told["statements"], told["unproven"]) == (2, ["party:4"])
    assert (told["study_sha256"], told["evidence"]) == (agreed.digest(), str(shown))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signer": "party:1"}, r"the evidence: .*party 1 does not match its identity.*; it proves nothing"),
        ({"signature": "00" * 64}, r"the evidence: .*party 2 does not match its identity.*; it proves nothing"),
        ({"statement": "00"}, r"the evidence: a statement is not about a sum of this study; it proves nothing"),
        ({"signer": "party:9"}, r'the evidence: a statement is signed by "party:9", which takes no part'),
        ({"signature": "not hexadecimal"}, "the evidence: the evidence is not a list of statements"),
    ],
)
def test_what_is_not_genuine_proves_nothing(agreed: Study, change: dict[str, str], words: str) -> None:
    one, other = two_keys(agreed, 2)
    with pytest.raises(unspoken.EvidenceError, match=words):
        unspoken.verify_evidence([one, other | change], agreed)


@pytest.mark.parametrize(
    "blamed", [["party:4\nConvicted: St Mary (party 2): it lied"], ["party:5"], [[1]], "party:4", 3]
)
def test_a_file_that_blames_something_else_than_addresses_of_the_study_is_refused(agreed: Study, blamed: Any) -> None:
    """Text of somebody else's would stand among the findings, and pass for one."""
    shown = given_up(two_keys(agreed, 0)) | {"blamed": blamed}
    with pytest.raises(unspoken.EvidenceError, match='the evidence: "blamed" is no list of addresses in this study'):
        unspoken.verify_evidence(shown, agreed)


@pytest.mark.parametrize("signer", ["party:" + "9" * 5000, "party:٢", "party:02", "node:9", "\x1b[2Jparty:2"])
def test_who_takes_no_part_has_signed_nothing(agreed: Study, signer: str) -> None:
    (one, _) = two_keys(agreed, 2)
    with pytest.raises(unspoken.EvidenceError, match="which takes no part in the study") as refused:
        unspoken.verify_evidence([one | {"signer": signer}], agreed)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


def test_a_turn_that_no_study_has_makes_no_reader_fail(agreed: Study) -> None:
    name = plan_for(agreed).sums[0].name
    said = f"share/unspoken-1/{agreed.digest()}/{name}/{'9' * 5000}/{'0' * 32}/".encode()
    shown = to_json([SignedStatement("party:2", said, IDENTITIES[2].sign(said))])
    with pytest.raises(unspoken.EvidenceError, match="a statement is not about a sum of this study"):
        unspoken.verify_evidence(shown, agreed)


def test_nobody_is_convicted_by_what_another_signed_in_their_name(agreed: Study) -> None:
    with pytest.raises(unspoken.EvidenceError, match="it proves nothing"):
        unspoken.verify_evidence(two_keys(agreed, 2, signer=3), agreed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there is nothing to verify: name a certificate, or evidence"),
        (["--evidence", "{none}", "--study", "{study}"], "cannot be read .*; name the file with the evidence"),
        (["--evidence", "{text}", "--study", "{study}"], "is not JSON .*; get the file with the evidence anew"),
        (["--evidence", "{empty}", "--study", "{study}"], 'has no "evidence"; give the evidence.json of a run, or'),
        (["--evidence", "{empty}"], "evidence is checked by the keys of its study; name the study with --study"),
        (["{empty}", "--evidence", "{empty}", "--study", "{study}"], "does not go with --evidence"),
        (["--evidence", "{list}", "--study", "{open}"], r"\[roster\] is missing, and evidence is checked by its keys"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], words: str, file: Path, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("none", "text", "empty", "list", "open")} | {"study": file}
    for name, content in (
        ("text", "no"),
        ("empty", "{}"),
        ("list", "[]"),
        ("open", file.read_text().split("[roster")[0]),
    ):
        places[name].write_text(content)
    done = CliRunner().invoke(app, ["verify", *(each.format(**places) for each in arguments)])
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert re.search(words, done.stderr), done.stderr
