"""Baselines that need all records in one place are refused across machines, with the reason, and write nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import complaint
from network.town import NAMES, STUDY, Town
from unspoken import sites
from unspoken.study import StudyError

SAID = "for which somebody must have all records: it is a baseline for simulations; choose a method that parties run"


@pytest.mark.parametrize("method", ["central", "none"])
def test_nobody_puts_it_into_a_roster_serves_it_or_joins(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "home"))
    text = STUDY.replace('name = "helmet"', f'name = "{method}"')
    town = Town(tmp_path, text=text)
    (tmp_path / "new.toml").write_text(text.format(protocol="secagg+"), encoding="utf-8")
    cards = [str(town.key(name).with_suffix(".card")) for name in (*NAMES, "hub")]
    where = ("--coordinator", "127.0.0.1:9", "--yes")
    mine, hub = (str(town.key(name)) for name in (NAMES[0], "hub"))
    for command in (
        ("roster", "new.toml", *cards[:3], "--coordinator", cards[3]),
        ("serve", "study.toml", "--keys", hub, "--listen", "127.0.0.1:0"),
        ("join", "study.toml", "--keys", mine, "--data", f"{NAMES[0]}.npz", *where),
    ):
        assert f'[method] name is "{method}", {SAID}' in complaint(tmp_path, *command)
    with pytest.raises(StudyError, match=SAID):
        sites.prepare(town.study, tmp_path / f"{NAMES[0]}.npz", key=town.key(NAMES[0]))
