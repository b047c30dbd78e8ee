"""Fixtures of the adversaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_studies import public_file


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))
