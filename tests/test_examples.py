"""Every example of a method is installed as an installer would, the commands of its README are run, and then its own
tests. The app for Flower is in tests/flower."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from unspoken import plugins
from unspoken.cli import app

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
METHODS = [path for path in EXAMPLES if "unspoken.methods" in (path / "pyproject.toml").read_text()]


@pytest.fixture(params=METHODS, ids=lambda path: path.name)
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
    folders = [path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert sorted(folders) == EXAMPLES
    assert METHODS


def test_the_commands_of_the_readme_run(example: Path) -> None:
    """All but those that install. What a comparison repeats is done once."""
    blocks = re.findall(r"```sh\n(.*?)```", (example / "README.md").read_text(), flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("pip ")]
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "unspoken":
            arguments += ["--repeats", "1"] if arguments[0] == "compare" else []
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, f"{line}\n{done.output}"
        else:
            assert program == "python"
            subprocess.run([sys.executable, *arguments], check=True)
    facts = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    (certificate,) = example.glob("*.certificate.json")
    assert json.loads(certificate.read_text())["versions"][facts["name"]] == facts["version"]


@pytest.mark.long
def test_its_own_tests_pass(example: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error"]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.long
def test_the_promise_suite_attacks_its_method(example: Path) -> None:
    """As someone does who installs it beside a clone."""
    entries = tomllib.loads((example / "pyproject.toml").read_text())["project"]["entry-points"]
    (name,) = entries["unspoken.methods"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", name, "tests/promises"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    attacked = re.search(r"(\d+) passed", done.stdout)
    assert attacked is not None
    module, variants = entries["unspoken.variants"][name].split(":")
    assert int(attacked[1]) >= 3 * len(getattr(importlib.import_module(module), variants)) > 3


@pytest.fixture
def kmeans(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield import_module("kmeans")
    sys.modules.pop("kmeans", None)


@pytest.mark.parametrize("method", ["cape", "moments"])
def test_private_k_means_finds_the_middles_in_five_turns_under_one_budget(
    kmeans: ModuleType, method: str, seeded: None
) -> None:
    points, middles = kmeans.made_up()
    found = kmeans.clustered(points, np.arange(len(points)) % kmeans.PARTIES, 2.0, method)
    centres = found.parameters.reshape(kmeans.CENTRES, -1)
    far = np.linalg.norm(middles[:, None] - centres[None], axis=2).min(axis=1)
    assert far.max() < 0.05
    assert len(found.totals) == kmeans.TURNS
    assert found.guarantee.epsilon <= 2.0
    planned = found.simulation.plan.sum_named("function")
    assert planned.count == kmeans.TURNS
    assert found.guarantee.mu == pytest.approx(np.sqrt(kmeans.TURNS) * planned.mu)


def test_a_row_moves_the_numbers_of_k_means_by_at_most_what_it_states(kmeans: ModuleType) -> None:
    """Opposite rows at different centres and at the same one, and the same rows at different centres."""
    rng = np.random.default_rng(0)
    furthest = 0.0
    for _ in range(500):
        rows = rng.normal(size=(2, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        centres = rng.uniform(-1.0, 1.0, 2 * kmeans.CENTRES)
        one, other = (kmeans.assigned(row[None], centres) for row in rows)
        furthest = max(furthest, float(np.linalg.norm(one - other)))
    assert 1.9 < furthest <= 2.0 + 1e-12
