"""Every block of code in the README runs as it stands, from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INSTALLS = "python3 -m venv"
"""What begins so makes an environment: .ci/run does that."""


def test_every_block_of_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(
        r"^```(sh|python)\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) > 6
    # All Python blocks are one program, as a reader would run them.
    program = "\n".join(code for language, code in blocks if language == "python")
    commands = [code for language, code in blocks if language == "sh" and not code.startswith(INSTALLS)]
    assert program.count("unspoken.compute(") == program.count("unspoken.simulate(") == 1
    assert any("unspoken compare" in code for code in commands)
    for code in commands:
        _run(["bash", "-euc", code], tmp_path)
    _run([sys.executable, "-c", program], tmp_path)


def _run(command: list[str], folder: Path) -> None:
    """Run a command in a folder, in which `python3` and `unspoken` are those that run this test."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, arguments in (("python3", ""), ("unspoken", "-c 'from unspoken.cli import app; app()'")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    finished = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))])
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []
