"""Whoever has noticed a fault says whose it was when the study is over, and others can check it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import unspoken
from network.town import NAMES, NODES, STUDY, Town
from unspoken import sites
from unspoken.cli import app
from unspoken.engines.network.cards import read_identity
from unspoken.engines.network.frames import Ending
from unspoken.engines.network.participant import Finished
from unspoken.methods.base import Sum
from unspoken.methods.registry import plan_for
from unspoken.noise.stream import SecretStream
from unspoken.roles.planned_requests import protocol_for
from unspoken.sites.joining import helper_of
from unspoken.summation.base import Aborted, Envelope, SignedStatement
from unspoken.summation.compute_nodes import ComputeNodesParty
from unspoken.summation.keys import public_key
from unspoken.summation.node_messages import key_statement
from unspoken.writing import NotWritten


def test_who_was_left_out_for_a_fault_is_named_with_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One party tells a node another one-time key than the others. The study goes on without it."""
    submit = ComputeNodesParty.submit

    def with_two_keys(self: ComputeNodesParty, vector: Any) -> list[Envelope]:
        sent = submit(self, vector)
        if self._index:
            return sent
        facts = self._session, self._roster, self._nodes, self._index, self._identity
        return [submit(ComputeNodesParty(*facts, SecretStream()), vector)[0], *sent[1:]]

    monkeypatch.setattr(ComputeNodesParty, "submit", with_two_keys)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / "hub"))
    town = Town(tmp_path, "compute-nodes", STUDY.replace("delta = 1e-5", "delta = 1e-5\ndropouts = 1"))
    serving, port = town.serve()
    others = [town.join(name, port) for name in NAMES] + [town.assist(name, port) for name in NODES]
    served = serving.result(300)
    for other in others:
        other.result(300)
    town.stop()
    assert served.certificate["happened"]["survivors"] == 2
    assert list(served.blamed) == ["party:0"]
    monkeypatch.setattr(sites, "serve", lambda *given, **named: served)
    told = CliRunner().invoke(app, ["serve", str(town.file), "--output", str(tmp_path / "out"), "--json"])
    assert "St Mary is to blame: it signed two one-time keys" in told.stderr
    assert json.loads(told.stdout)["blamed"] == ["party:0"]
    kept = json.loads(told.stdout)["files"]["evidence"]
    assert f"what they signed is in {kept}, for others to check" in told.stderr
    assert unspoken.verify_evidence(kept, town.file).convicted == {"party:0": "it signed two one-time keys"}
    assert_convicted(town, told.stdout)


def test_a_study_that_was_given_up_leaves_what_proves_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People who did not ask for --json have it, too; earlier files stay, and a full disk keeps the reason."""
    town, output = Town(tmp_path), tmp_path / "out"
    town.stop()
    # As the end of a run is told: with what it has cost, and a full stop.
    reason = "there is no total. To blame: party 2 (it lied). So epsilon = 2 of the planned 2 is spent."

    def ended(*given: Any, **named: Any) -> None:
        raise Aborted(reason, ("party:2",), (SignedStatement("party:2", b"\1", b"\2", b"\3"),))

    monkeypatch.setattr(sites, "serve", ended)
    command = ["serve", str(town.file), "--output", str(output)]
    for name in ("sites", "sites-2"):
        told, file = CliRunner().invoke(app, command), output / f"{name}.evidence.json"
        assert (told.exit_code, told.stdout) == (3, "")
        assert "To blame: party 2 (it lied)." in told.stderr
        assert told.stderr.endswith(
            f"of the planned 2 is spent; what they signed is in {file}, for others to check "
            "(`unspoken verify --evidence`).\n"
        )
        content = json.loads(file.read_text(encoding="utf-8"))
        assert (content["study_sha256"], content["blamed"]) == (town.study.digest(), ["party:2"])
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["files"] == {
        "evidence": str(output / "sites-3.evidence.json")
    }

    def full(*given: Any) -> None:
        raise NotWritten(output, OSError(28, "No space left on device"))

    monkeypatch.setattr("unspoken.report.results.write_evidence", full)
    told = CliRunner().invoke(app, command)
    assert (told.exit_code, told.stderr) == (3, f"unspoken: {reason}\n")


def assert_convicted(town: Town, told: str) -> None:
    """What a command has printed for programs convicts the first party."""
    file = town.folder / "told.json"
    file.write_text(told, encoding="utf-8")
    checked = CliRunner().invoke(app, ["verify", "--evidence", str(file), "--study", str(town.file)])
    assert "Convicted: St Mary (party 0): it signed two one-time keys." in checked.stdout


def test_what_a_helper_has_noticed_is_told_when_the_study_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No coordinator need hand it on, and there may be no result."""
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / NODES[0]))
    town = Town(tmp_path, "compute-nodes")
    town.stop()
    plan, (_, identity) = plan_for(town.study), read_identity(town.key(NAMES[0]))
    label = protocol_for(plan, Sum(plan.sums[0].name), 0, bytes(15) + b"\1").session.label()
    keys = [key_statement(label, 0, public_key(bytes([number]) * 32)) for number in (1, 2)]
    both = tuple(SignedStatement("party:0", key, identity.sign(key)) for key in keys)
    with helper_of(town.study, None) as helper:
        helper.role._blame(Aborted("two keys came", {"party:0": "it signed two one-time keys"}, both))
        joined = helper.joined(Finished(Ending(reason="too few are left")), 0)
    monkeypatch.setattr(sites, "assist", lambda *given, **named: joined)
    told = CliRunner().invoke(app, ["assist", str(town.file), "--coordinator", "127.0.0.1:9", "--json"])
    assert told.exit_code == 3
    assert json.loads(told.stdout)["blamed"] == ["party:0"]
    assert_convicted(town, told.stdout)
    kept = joined.save_evidence(tmp_path / "out")["evidence"]
    assert list(unspoken.verify_evidence(kept, town.file).convicted) == ["party:0"]
