"""What the tests of roles share."""

from __future__ import annotations

from pathlib import Path

import pytest

from disks import Folder
from small_studies import public_file


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
