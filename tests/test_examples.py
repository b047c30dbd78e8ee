"""Every example is installed as an installer would, the commands of its README are run, and then its own tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unspoken import plugins
from unspoken.cli import app

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.name)
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the example's folder, with its package on the path: as `pip install` does it, without a network."""
    folder = shutil.copytree(request.param, tmp_path / "example")
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    facts, modules = project["project"], project["tool"]["setuptools"]["py-modules"]
    info = folder / f"{facts['name'].replace('-', '_')}-{facts['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {facts['name']}\nVersion: {facts['version']}\n")
    lines = [
        line
        for group, entries in facts["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(folder)
    plugins._declared.cache_clear()
    yield folder
    plugins._declared.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


def test_every_folder_is_an_example_that_can_be_installed() -> None:
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir()]
    assert sorted(folders) == EXAMPLES != []


def test_the_commands_of_the_readme_run(example: Path) -> None:
    """All but those that install."""
    blocks = re.findall(r"```sh\n(.*?)```", (example / "README.md").read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("pip ")]
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "unspoken":
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, f"{line}\n{done.output}"
        else:
            assert program == "python"
            subprocess.run([sys.executable, *arguments], check=True)
    facts = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    (certificate,) = example.glob("*.certificate.json")
    assert json.loads(certificate.read_text())["versions"][facts["name"]] == facts["version"]


def test_its_own_tests_pass(example: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error"]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
