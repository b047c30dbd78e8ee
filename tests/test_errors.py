"""Messages that say what to install: it must be there to be installed."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

from unspoken.comparison.plots import plot
from unspoken.errors import UnspokenError

ROOT = Path(__file__).parent.parent


def test_without_matplotlib_the_extra_is_named_and_how_a_clone_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name == "matplotlib":
            raise ImportError(name)
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        UnspokenError, match=r"needs matplotlib.*in a clone.*'\.\[plots\]' \(or, once.*'unspoken\[plots\]'\)\."
    ):
        plot([], "accuracy", tmp_path / "plot.png")


def test_no_page_and_no_message_names_only_an_index_that_does_not_have_the_package() -> None:
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    files += [file for folder in ("unspoken", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    found = [
        f"{file.relative_to(ROOT)}: {match.group()}"
        for file in files
        for match in re.finditer(r".{0,160}unspoken\[\w+\].{0,80}", file.read_text(encoding="utf-8"), re.DOTALL)
        if "clone" not in match.group()
    ]
    assert len(files) > 100
    assert found == []
