"""A summation that adds in the clear is for simulations: no door lets records out by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from network.town import NAMES, STUDY, Town
from unspoken import sites
from unspoken.cli import app
from unspoken.data.federation import party_block
from unspoken.data.files import read_records
from unspoken.engines.network.cards import read_identity
from unspoken.methods.registry import method_for
from unspoken.privacy.ledger import Ledger
from unspoken.roles.party import Party
from unspoken.study import StudyError
from unspoken.summation.base import Roster

SAID = r'\[summation\] protocol is "ideal", by which every contribution leaves in the clear, without noise'


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Town(tmp_path, "ideal")


@pytest.mark.parametrize("charged", [True, False])
def test_nobody_serves_or_joins(town: Town, charged: bool) -> None:
    """With a ledger or without. Nothing is charged, and nothing of the study is kept."""
    ledger, mine = Ledger(), town.folder / f"{NAMES[0]}.npz"
    doors: list[Callable[[], object]] = [
        lambda: sites.serve(town.study, key=town.key("hub")),
        lambda: sites.join(town.study, mine, town.where(1), key=town.key(NAMES[0]), ledger=ledger if charged else None),
    ]
    for door in doors:
        with pytest.raises(StudyError, match=SAID):
            door()
    assert not ledger.account().runs
    assert not (town.folder / "home").exists()


def test_commands_say_so_and_write_nothing(town: Town) -> None:
    cards = [str(town.key(name).with_suffix(".card")) for name in (*NAMES, "hub")]
    Path("new.toml").write_text(STUDY.format(protocol="ideal"))
    before = sorted(Path().rglob("*"))
    key, mine = str(town.key(NAMES[0])), f"{NAMES[0]}.npz"
    for command in (
        ["roster", "new.toml", *cards[:3], "--coordinator", cards[3]],
        ["serve", "study.toml", "--keys", str(town.key("hub")), "--listen", "127.0.0.1:0"],
        ["join", "study.toml", "--keys", key, "--data", mine, "--coordinator", "127.0.0.1:1", "--yes"],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2, done.output
        assert 'protocol is "ideal", by which every contribution leaves in the clear' in done.stderr
        assert done.stderr.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    assert Path("new.toml").read_text() == STUDY.format(protocol="ideal")


def test_a_party_with_a_ledger_is_none_of_a_simulation(town: Town) -> None:
    """Without one it may be, in one process with the others."""
    method = method_for(town.study)
    block = party_block(town.study, read_records(town.folder / f"{NAMES[0]}.npz", town.study), method.directions)
    facts = (method, block, read_identity(town.key(NAMES[0]))[1], Roster.of(town.study))
    with pytest.raises(StudyError, match=SAID):
        Party(*facts, ledger=Ledger())
    Party(*facts)
