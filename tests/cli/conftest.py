"""Folders with a study and records, in which commands run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commands import KINDS, METHOD, STUDY, measured, people


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of a table, with data to learn from and to test on."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    people().to_csv(tmp_path / "train.csv", index=False)
    people(seed=1).to_parquet(tmp_path / "test.parquet")
    return tmp_path


LABEL = KINDS["classification"]


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    """A folder with data and a study for a task and a method."""
    measured().to_csv(tmp_path / "train.csv", index=False)

    def make(task: str, method: str, more: str = "") -> Path:
        text = STUDY.replace(LABEL, KINDS[task]).replace('task = "classification"', f'task = "{task}"')
        text = text.replace(METHOD, f'[method]\nname = "{method}"\n{more}')
        assert f'name = "{method}"' in text
        (tmp_path / "study.toml").write_text(text, encoding="utf-8")
        return tmp_path

    return make
