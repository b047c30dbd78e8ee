"""Every block of code in the README runs as it stands, from top to bottom."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unspoken.cli import app
from unspoken.methods.registry import METHODS

ROOT = Path(__file__).resolve().parent.parent
INSTALLS = "python3 -m venv"
"""What begins so makes an environment: .ci/run does that."""
NOTES = """
mkdir calls && n=100
python3() { cat > calls/$((n++)).py; }
unspoken() { printf '%s\\n' "$@" > calls/$((n++)).txt; }
"""
"""A shell reads the commands and notes which programs they start: this process runs them, with all imports done."""


def test_every_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(
        r"^```(sh|python)\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert len(blocks) > 6
    # All Python blocks are one program, as a reader would run them.
    program = "\n".join(code for language, code in blocks if language == "python")
    commands = [code for language, code in blocks if language == "sh" and not code.startswith(INSTALLS)]
    assert program.count("unspoken.compute(") == program.count("unspoken.simulate(") == 1
    assert any("unspoken compare" in code for code in commands)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-euc", "\n".join([NOTES, *commands])], check=True)  # noqa: S607 (as the reader's)
    calls = sorted(Path("calls").iterdir())
    assert len(calls) > 3
    for call in calls:
        if call.suffix == ".py":
            _run(call.read_text("utf-8"))
            continue
        done = CliRunner().invoke(app, call.read_text("utf-8").splitlines())
        assert done.exit_code == 0, done.output
    _run(program)


def _run(program: str) -> None:
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102 (it is our own)


def test_the_imports_that_contributing_lists_for_a_method_are_there() -> None:
    (listed,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL | re.M)
    assert "DeclaredSum" in listed
    _run(listed)


def test_the_table_says_when_to_use_each_method() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    table = text[text.index("## Which method?") : text.index("## What the promise means")]
    own = {name for name, kind in METHODS.items() if kind.__module__.startswith("unspoken.")}
    assert len(own) > 10
    assert not [name for name in own if f"`{name}`" not in table]


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md")))])
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []
