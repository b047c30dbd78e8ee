"""Who says no to a study has named no data set."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from network.town import NAMES, Town
from unspoken.cli import app
from unspoken.privacy.ledger import datasets


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    Town(tmp_path).stop()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / NAMES[0]))
    return tmp_path / "homes" / NAMES[0] / "ledger.sqlite"


def join(dataset: str, answer: str) -> Result:
    where = ["--coordinator", "127.0.0.1:9", "--patience", "0"]
    return CliRunner().invoke(
        app, ["join", "study.toml", "--data", f"{NAMES[0]}.npz", "--dataset", dataset, *where], input=answer
    )


def test_a_no_names_nothing_and_the_file_can_get_another_name(ledger: Path) -> None:
    """A yes to a study that never began has charged nothing, and names nothing either."""
    assert join("wrong", "n\n").exit_code == 4
    assert join("wrong too", "y\n").exit_code == 3
    assert datasets(ledger) == []
    limit = ["ledger", "limit", "--data", f"{NAMES[0]}.npz", "--dataset", "wards", "--epsilon", "3"]
    assert CliRunner().invoke(app, limit).exit_code == 0
    assert datasets(ledger) == ["wards"]
    other = join("wrong", "n\n")
    assert other.exit_code == 2
    assert "known to the ledger" in other.stderr
    assert 'as "wards", not as "wrong"' in other.stderr
