"""A command that runs in a child process cleans up what the child has left, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a command does not go apart")
PROGRAM = """
import os, signal, subprocess, sys
import typer
from unspoken.cli import apart

@apart.apart
def command(engine):
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print(os.getppid(), left.pid, flush=True)
    if sys.argv[1:] == ["lost"]:
        os._exit(1)
    if sys.argv[1:] == ["waits"]:
        signal.pause()

try:
    command(engine="ray")
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start(tmp_path: Path, *given: str) -> subprocess.Popen[str]:
    """The program, by a shell that has a process of its own in the background and is then replaced by the program."""
    (tmp_path / "program.py").write_text(PROGRAM)
    script = 'sleep 600 & echo $!; exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, str(tmp_path / "program.py"), *given]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )


def lines_of(process: subprocess.Popen[str]) -> tuple[int, int]:
    """The process in the background, and the one that the child leaves."""
    assert process.stdout is not None
    other = int(process.stdout.readline())
    parent, left = map(int, process.stdout.readline().split())
    assert parent == process.pid
    return other, left


@pytest.mark.parametrize("how", ["ends", "lost"])
def test_what_the_child_has_left_is_ended_and_what_was_there_before_is_not(how: str, tmp_path: Path) -> None:
    process = start(tmp_path, how)
    other, left = lines_of(process)
    try:
        assert process.wait(60) == (how == "lost")
        assert is_running(other)
        assert not is_running(left)
        assert [file.name for file in tmp_path.iterdir()] == ["program.py"]
    finally:
        for each in (other, left):
            if is_running(each):
                os.kill(each, signal.SIGKILL)
        process.communicate()


def test_a_lost_cluster_is_told_with_the_option_that_each_command_goes_on_with(tmp_path: Path) -> None:
    """`compare` has no --checkpoint: it goes on from its table."""
    process = start(tmp_path, "lost")
    other, _ = lines_of(process)
    os.kill(other, signal.SIGKILL)
    errors = process.communicate(timeout=60)[1]
    assert "run the command again: with --checkpoint (of compare: --table) it goes on from there." in errors


def test_a_child_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    process = start(tmp_path, "waits")
    other, left = lines_of(process)
    (child,) = {int(one) for one in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()} - {
        other
    }
    try:
        process.kill()
        until = time.monotonic() + 60.0
        while is_running(child) and time.monotonic() < until:
            time.sleep(0.02)
        assert not is_running(child)
    finally:
        for each in (other, left, child):
            if is_running(each):
                os.kill(each, signal.SIGKILL)
        process.communicate()
