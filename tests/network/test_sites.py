"""A study across real processes, by the commands that people type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from network.town import NAMES, STUDY
from unspoken.cli import app
from unspoken.engines.network.cards import read_card
from unspoken.privacy.ledger import Ledger
from unspoken.study import read_study


class Sites:
    """A folder for each site, and programs that are all ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[str]] = []

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        place = {"UNSPOKEN_HOME": str(self.folder / "homes" / name), "PYTHONPATH": os.pathsep.join(sys.path)}
        program = subprocess.Popen(
            [sys.executable, "-m", "unspoken", *command],
            cwd=self.folder,
            env={**os.environ, **place},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._running.append(program)
        return program

    def run(self, name: str, *command: str) -> str:
        """What a command that must succeed prints."""
        out, err = self.start(name, *command).communicate(timeout=300)
        assert self._running[-1].returncode == 0, err
        return out

    def stop(self) -> None:
        for program in self._running:
            program.kill()
            program.communicate()


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    found = Sites(tmp_path)
    yield found
    found.stop()


def prepare(sites: Sites, protocol: str) -> None:
    """Keys, cards, a roster, records."""
    from unspoken.engines.network.cards import make_keys, roster_text, with_roster

    rng = np.random.default_rng(0)
    cards = {}
    for name in (*NAMES, "hub", "node 0", "node 1", "node 2"):
        key = sites.folder / "homes" / name / f"{name}.secret"
        cards[name] = make_keys(name, key, key.with_suffix(".card"))
        y = rng.integers(0, 2, 40)
        X = rng.normal(size=(40, 4)) * 0.1 + (y[:, None] - 0.5)
        np.savez(sites.folder / f"{name}.npz", X=X, y=y)
    helpers = [cards[f"node {index}"] for index in range(3)] if protocol == "compute-nodes" else []
    text = roster_text([cards[name] for name in NAMES], cards["hub"], helpers)
    (sites.folder / "study.toml").write_text(with_roster(STUDY.format(protocol=protocol), text), encoding="utf-8")


def port_of(serving: subprocess.Popen[str]) -> str:
    assert serving.stderr is not None
    for line in serving.stderr:
        if "listening on" in line:
            return line.rpartition(":")[2].strip()
    raise AssertionError("The coordinator does not listen.")


def test_keys_and_cards_become_a_roster(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same functions as the commands, in this process."""
    monkeypatch.chdir(sites.folder)
    (sites.folder / "study.toml").write_text(STUDY.format(protocol="secagg+"), encoding="utf-8")
    for name in (*NAMES, "hub"):
        monkeypatch.setenv("UNSPOKEN_HOME", str(sites.folder / "homes" / name))
        said = CliRunner().invoke(app, ["keys", name, "--json"])
        file = Path(json.loads(said.output)["secret"])
        assert file.stat().st_mode & 0o777 == 0o600
        assert read_card(Path(json.loads(said.output)["card"])).key == json.loads(said.output)["key"]
    *given, hub = (f"homes/{name}/{name}.card" for name in (*NAMES, "hub"))
    command = ["roster", "study.toml", *given, "--coordinator", hub]
    before = (sites.folder / "study.toml").read_bytes()
    refused = CliRunner().invoke(app, [*command, "--helper", given[0]])
    assert '"secagg+" has no helpers here, but 1 card is given by --helper; leave it out.' in refused.stderr
    assert (refused.exit_code, (sites.folder / "study.toml").read_bytes()) == (2, before)
    assert CliRunner().invoke(app, command).exit_code == 0
    study = read_study(sites.folder / "study.toml")
    assert study.roster is not None
    assert [study.roster.name_of(key) for key in study.roster.parties] == list(NAMES)


@pytest.mark.long
# With nodes, the commands of services (test_deploy.py) run a study as well.
@pytest.mark.parametrize("protocol", ["secagg+", pytest.param("compute-nodes", marks=pytest.mark.rare)])
def test_a_study_runs_from_serve_to_a_certificate_that_all_have_signed(protocol: str, sites: Sites) -> None:
    prepare(sites, protocol)
    serving = sites.start("hub", "serve", "study.toml", "--listen", "127.0.0.1:0", "--output", "out", "--json")
    where = f"127.0.0.1:{port_of(serving)}"
    joining = [
        sites.start(
            name,
            "join",
            "study.toml",
            "--data",
            f"{name}.npz",
            "--coordinator",
            where,
            "--yes",
            "--json",
            "--output",
            f"{name}-out",
        )
        for name in NAMES
    ]
    if protocol == "compute-nodes":
        helpers = [f"node {index}" for index in range(3)]
        joining += [sites.start(name, "assist", "study.toml", "--coordinator", where, "--json") for name in helpers]
    out, err = serving.communicate(timeout=300)
    assert serving.returncode == 0, err
    content = json.loads(Path(sites.folder / json.loads(out)["files"]["certificate"]).read_text(encoding="utf-8"))
    assert len(content["signatures"]) == 1 + len(NAMES)
    assert json.loads(out)["epsilon"] == content["happened"]["epsilon"] <= 2.0
    for each in joining:
        told, err = each.communicate(timeout=300)
        assert each.returncode == 0, err
        ended = json.loads(told)
        assert (ended["outcome"], ended["survivors"]) == ("released", 3)
        if each in joining[: len(NAMES)]:
            assert set(ended["files"]) == {"model", "certificate"}
            assert (ended["spent"]["vectors"], ended["spent"]["total"]["epsilon"]) == (1, ended["spent"]["epsilon"])
        assert all((sites.folder / file).exists() for file in json.loads(told)["files"].values())
    for name in NAMES:
        ledger = Ledger(sites.folder / "homes" / name / "ledger.sqlite", name)
        assert len(ledger.account().charges) == 1
        assert ledger.guarantee(1e-5).epsilon == pytest.approx(content["guarantee"]["epsilon"])


def test_a_study_that_the_ledger_does_not_allow_is_left_before_anything_is_sent(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(sites, "secagg+")
    monkeypatch.chdir(sites.folder)
    monkeypatch.setenv("UNSPOKEN_HOME", str(sites.folder / "homes" / NAMES[0]))
    limit = ["ledger", "limit", "--data", "hub.npz", "--dataset", "wards", "--epsilon", "1.9", "--delta", "1e-5"]
    assert CliRunner().invoke(app, limit).exit_code == 0
    # Nobody listens there: it does not come to that.
    command = ["join", "study.toml", "--data", "hub.npz", "--coordinator", "127.0.0.1:9", "--patience", "1", "--yes"]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 4
    assert 'the ledger\'s limit for "wards" is epsilon = 1.9 at delta = 1e-05' in said.stderr


def test_a_person_who_says_no_sends_nothing(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(sites, "secagg+")
    monkeypatch.chdir(sites.folder)
    monkeypatch.setenv("UNSPOKEN_HOME", str(sites.folder / "homes" / NAMES[0]))
    command = ["join", "study.toml", "--data", "hub.npz", "--coordinator", "127.0.0.1:9"]
    said = CliRunner().invoke(app, command, input="n\n")
    assert said.exit_code == 4
    assert "coordinator hub" in " ".join(said.output.split())
    assert "epsilon = 2" in said.output.replace("\n", " ")
    assert not (sites.folder / "homes" / NAMES[0] / "states").exists()


def test_a_coordinator_that_gives_up_says_so_in_one_object(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(sites, "secagg+")
    monkeypatch.chdir(sites.folder)
    monkeypatch.setenv("UNSPOKEN_HOME", str(sites.folder / "homes" / "hub"))
    command = ["serve", "study.toml", "--listen", "127.0.0.1:0", "--join-seconds", "0.1", "--output", "out", "--json"]
    said = CliRunner().invoke(app, command)
    ended = json.loads(said.stdout)
    assert (said.exit_code, ended["outcome"], ended["survivors"], ended["files"]) == (3, "aborted", 0, {})
    assert "0 of 3 parties" in ended["reason"]
    assert not (sites.folder / "out").exists()
