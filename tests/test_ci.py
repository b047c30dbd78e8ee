"""The lanes of .ci/run: none passes because nothing was run in it, and none leaves processes behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUN = (ROOT / ".ci" / "run").read_text("utf-8")
TESTS = Path(__file__).parent
LANES = {"cluster": r"--cluster -m cluster (.*)", "flower": r"--flower (.*)"}


@pytest.mark.parametrize("mark", LANES)
def test_every_test_that_needs_more_than_this_machine_has_is_in_a_lane(mark: str) -> None:
    (named,) = re.findall(LANES[mark], RUN)
    places = [ROOT / name for name in named.split()]
    marked = [file for file in TESTS.rglob("test_*.py") if f"mark.{mark}" in file.read_text("utf-8")]
    outside = [file for file in marked if not any(file.is_relative_to(place) for place in places)]
    assert [file.name for file in outside if file != Path(__file__)] == []


def test_what_the_lanes_name_is_there() -> None:
    named = re.findall(r"tests/[\w/]+(?:\.py)?", RUN)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("mark", LANES)
def test_what_is_asked_for_and_not_installed_fails(mark: str) -> None:
    """A test that is skipped where a package is missing or broken would pass."""
    marked = [file for file in TESTS.rglob("test_*.py") if f"mark.{mark}" in file.read_text("utf-8")]
    for file in [TESTS / "engines" / "conftest.py", *marked]:
        if file != Path(__file__):
            assert "importorskip" not in file.read_text("utf-8"), file
            assert "mark.skipif" not in file.read_text("utf-8"), file


def shell(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Lines for the shell, after the functions of .ci/run."""
    functions = re.findall(r"^(\w+\(\) \{(?:.*\}|\n(?:.*\n)*?\}))$", RUN, re.MULTILINE)
    assert len(functions) > 8
    script = "\n".join(["set -euo pipefail", *functions, *lines])
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("program", "runs", "status"),
    [("exit 9", 2, 1), ('touch "$work/cluster.xml"; exit 1', 1, 1), ("exit 0", 1, 0)],
)
def test_tests_on_a_cluster_are_run_again_only_if_they_did_not_come_to_an_end(
    program: str, runs: int, status: int, tmp_path: Path
) -> None:
    python = tmp_path / ".venv-ray" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho ran\n{program}\n")
    python.chmod(0o755)
    found = shell(tmp_path, f"export work='{tmp_path}'", "cluster")
    assert (found.stdout.count("ran\n"), found.returncode) == (runs, status)


INSTALLS = """
python3() {
    mkdir -p .venv-ray/bin .venv-ray/lib/python3.1/site-packages
    printf '#!/bin/sh\\n' >.venv-ray/bin/pip
    chmod +x .venv-ray/bin/pip
}
installed() {
    sleep 1
    mkdir -p clone/.venv/bin clone/.venv/lib/python3.1/site-packages
    touch clone/.venv/bin/unspoken
    chmod +x clone/.venv/bin/unspoken
}
"""


def test_the_environment_with_ray_waits_for_what_it_shares_with_the_others(tmp_path: Path) -> None:
    """Where the network is slow, this lane comes to it before the package is installed in the other one."""
    found = shell(tmp_path, INSTALLS, f"export work='{tmp_path}'", "installed &", "with_ray", "cat .venv-ray/lib/*/*/*")
    assert (found.returncode, found.stdout) == (0, f"{tmp_path}/clone/.venv/lib/python3.1/site-packages\n"), found


def test_a_demo_that_the_readme_does_not_have_fails(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("python3 -m venv .venv && echo the unspoken demo\n")
    assert "the unspoken demo\n" in shell(tmp_path, "python3() { :; }", "export -f python3", "demo").stdout
    (tmp_path / "README.md").write_text("unspoken demo\n")
    assert shell(tmp_path, "demo").returncode != 0


def test_what_a_lane_started_has_time_to_end_and_is_then_ended(tmp_path: Path) -> None:
    begin = 'set -m; (trap "sleep 1; touch ended; exit" TERM; touch begun; while :; do sleep 0.1; done) & set +m'
    wait, check = "until [ -e begun ]; do sleep 0.1; done", 'kill -0 -- "-$!" || echo gone'
    done = shell(tmp_path, begin, wait, 'stop "$!"', check)
    assert (done.returncode, done.stdout) == (0, "gone\n"), done.stderr
    assert (tmp_path / "ended").exists()


PROGRAM = """
import os, pathlib, pytest, signal, time

@pytest.fixture(scope="module")
def process():
    yield
    pathlib.Path("ended").touch()

def test_one(process):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

def test_two(process):
    pathlib.Path("goes on").touch()
"""


def test_tests_that_are_told_to_end_clean_up_first(tmp_path: Path) -> None:
    """With --flower. Without a handler of the signal, pytest would end at once and the federation would stay."""
    (tmp_path / "test_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "--flower"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix != ".py" and file.is_file()) == ["ended"]
