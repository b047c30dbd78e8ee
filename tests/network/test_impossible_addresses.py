"""`serve` where it cannot begin, as at an address that it cannot listen on: one sentence, and nothing is stored."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import complaint, contents
from network.town import STUDY, Town
from unspoken import sites
from unspoken.engines.network.door import CannotListen
from unspoken.errors import UnspokenError
from unspoken.sites import serving
from unspoken.study import StudyError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_leaves_nothing_behind(town: Town, taken: int) -> None:
    command = ["serve", "study.toml", "--keys", str(town.key("hub")), "--output", "."]
    for place in (f"127.0.0.1:{taken}", "192.0.2.1:8765", "no-such-machine.invalid:8765"):
        said = complaint(town.folder, *command, "--listen", place)
        assert said.startswith(f"{place}: cannot be listened on (")
        assert said.endswith("; choose another --listen.")
    before = contents(town.folder)
    with pytest.raises(CannotListen):
        sites.serve(town.study, sites.Entrance("127.0.0.1", taken), key=town.key("hub"))
    assert contents(town.folder) == before


def test_a_clock_that_is_wrong_leaves_nothing_behind(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "EARLIEST", serving.EARLIEST.replace(year=9000))
    before = contents(town.folder)
    with pytest.raises(UnspokenError, match="clock says"):
        sites.serve(town.study, sites.Entrance("127.0.0.1", 0), key=town.key("hub"))
    assert contents(town.folder) == before


def test_a_file_that_only_the_coordinator_needs_is_missed_before_anyone_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = 'name = "cross-silo"\nvalidation = "absent.npz"'
    town = Town(tmp_path, text=STUDY.replace('name = "helmet"', keys))
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / "hub"))
    before = contents(town.folder)
    with pytest.raises(StudyError, match=r"\[method\] validation is .absent.npz., but there is no such file"):
        sites.serve(town.study, sites.Entrance("127.0.0.1", 0), key=town.key("hub"))
    assert contents(town.folder) == before
