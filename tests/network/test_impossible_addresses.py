"""`serve` at an address that cannot be listened on: one sentence, and nothing is stored."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from commands import complaint, contents
from network.town import Town
from unspoken import sites
from unspoken.engines.network.door import CannotListen
from unspoken.errors import UnspokenError
from unspoken.sites import serving


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
