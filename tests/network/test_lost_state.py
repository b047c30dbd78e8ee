"""A state or a ledger with which a study cannot go on is reported before anybody is asked to take part."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from network.town import NAMES, Town
from unspoken import sites
from unspoken.cli import app
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.roles.charging import run_name


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    found = Town(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / NAMES[0]))
    return found


def join(*more: str) -> Result:
    """A party whose coordinator is not there. It keeps its state all the same."""
    command = ["join", "study.toml", "--data", f"{NAMES[0]}.npz", "--coordinator", "127.0.0.1:9", "--patience", "0"]
    return CliRunner().invoke(app, [*command, *more], input="y\n")


def consents(town: Town) -> int:
    log = town.folder / "homes" / NAMES[0] / "consent.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def check_not_asked(town: Town, told: str) -> None:
    before = consents(town)
    said = join()
    assert (said.exit_code, consents(town)) == (2, before)
    assert told in said.stderr
    assert "Take part?" not in said.output


def charge(town: Town) -> Path:
    """Charge the party's ledger for a vector of this study."""
    home, plan = town.folder / "homes" / NAMES[0], plan_for(town.study)
    ready = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))
    name = run_name(plan, ready.identity)
    Ledger(home / "ledger.sqlite", NAMES[0]).charge(plan.ledger_run(name, seat=True), "00", plan.costs)
    return home


def announce(town: Town) -> None:
    """Have the attempt in the party's state that will be charged."""
    with sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0])).participant() as who:
        who.role._keeper.note(bytes(1))


def test_a_party_whose_state_is_older_than_a_charge_is_not_asked(town: Town) -> None:
    """As after both of its files were put back from a copy."""
    assert join().exit_code == 3
    charge(town)
    check_not_asked(town, "the ledger has charges for a vector that it has forgotten")


def test_a_party_whose_coordinator_is_gone_is_told_what_it_has_spent(town: Town) -> None:
    said = join()
    assert (said.exit_code, said.stderr.count("Of this study nothing is spent.")) == (3, 1)
    announce(town)
    charge(town)
    told = json.loads(join("--yes", "--json").stdout)
    assert (told["outcome"], told["spent"]["vectors"]) == ("aborted", 1)
    assert told["spent"]["epsilon"] == pytest.approx(2.0)
    said = join()
    assert said.exit_code == 3
    assert "Of this study 1 vector has left, at epsilon = 2 and delta = 1e-05; the ledger has it." in said.stderr


def test_a_party_that_was_charged_and_has_no_state_is_not_asked(town: Town) -> None:
    home = charge(town)
    check_not_asked(town, "the state of this party in it is gone")
    assert not (home / "states").exists()


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ("states/*.journal", "is gone, but its witness"),
        ("witnesses/*.witness", "has records, but its witness"),
    ],
)
def test_a_party_that_lost_a_half_of_its_state_is_not_asked(lost: str, told: str, town: Town) -> None:
    assert join().exit_code == 3
    (file,) = (town.folder / "homes" / NAMES[0]).glob(lost)
    file.unlink()
    check_not_asked(town, told)


def test_a_party_whose_state_is_in_use_is_not_asked_and_with_its_state_it_goes_on(town: Town) -> None:
    assert join().exit_code == 3
    ready = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))
    with ready.charged_to(Ledger(town.folder / "homes" / NAMES[0] / "ledger.sqlite", NAMES[0])).participant():
        check_not_asked(town, "is in use by another process")
    assert (join().exit_code, consents(town)) == (3, 2)


def test_a_ledger_that_cannot_be_written_is_told_before_anybody_is_asked(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the party would join, and leave when the others have sent their vectors."""
    ledger = town.folder / "homes" / NAMES[0] / "ledger.sqlite"
    Ledger(ledger, NAMES[0]).set_limit(9.0)
    write = Path.write_bytes

    def full(file: Path, content: bytes) -> int:
        if ledger.parent in file.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        check_not_asked(town, f"{ledger}: nothing could be charged: ")
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda file, mode: Path(file) != ledger)
        check_not_asked(town, f"{ledger}: may not be written to")


def test_a_ledger_in_a_folder_that_is_not_there_is_told_before_anybody_is_asked(town: Town) -> None:
    said = join("--ledger", "no/l.sqlite")
    assert said.exit_code == 2
    assert "no/l.sqlite: cannot be used as a ledger (there is no such folder)" in said.stderr
    assert consents(town) == 0
    assert not (town.folder / "no").exists()
