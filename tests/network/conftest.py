"""What most tests of the network begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from network.town import Town


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    """Three parties and their helpers with one home; what they started is stopped at the end."""
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "home"))
    found = Town(tmp_path)
    yield found
    found.stop()
