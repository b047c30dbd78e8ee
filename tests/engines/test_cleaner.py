"""A process waits beside a program that uses a cluster. It cleans up after one that was killed, and delays nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cluster_runs import assert_gone, is_running
from unspoken.engines.cluster.cleaner import Cleaner, end_failed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody waits")
SECONDS = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster" / "r").mkdir(parents=True)
    return tmp_path / "cluster"


def test_a_program_that_is_done_does_not_wait_for_its_children(folder: Path) -> None:
    """One that was forked meanwhile has the pipe open as well, and lives on."""
    cleaner = Cleaner(folder)
    assert os.getsid(cleaner._process.pid) == cleaner._process.pid  # no interrupt from a keyboard reaches it
    assert cleaner._process.stdin is not None
    pipe = cleaner._process.stdin.fileno()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[pipe])
    done = threading.Thread(target=cleaner.done)
    done.start()
    done.join(SECONDS)
    waits = done.is_alive()
    child.communicate(b"\n")
    done.join()
    assert not waits
    assert folder.exists()


PROGRAM = """
import os, signal, subprocess, sys
from pathlib import Path
from unspoken.engines.cluster.cleaner import cleaned_up

with cleaned_up(Path(sys.argv[1])) as cleaner:
    wait = [sys.executable, "-c", "import time; time.sleep(600)"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    begun = [subprocess.Popen([*wait, *more], **silent).pid for more in ([sys.argv[1]], [])]
    cleaner.started()
    print(*begun, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def run(folder: Path) -> Iterator[Callable[[str], subprocess.CompletedProcess[str]]]:
    """Runs the program; what it has started is ended afterwards."""
    begun: list[int] = []

    def made(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(folder), how]
        program = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        begun.extend(map(int, program.stdout.split()))
        return program

    yield made
    for process in begun:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_a_program_that_ends_by_itself_is_not_said_to_be_lost(
    folder: Path, run: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    """It ends its cluster and removes the folder by itself."""
    program = run("by itself")
    assert (program.returncode, program.stderr) == (0, "")
    assert all(map(is_running, map(int, program.stdout.split())))
    assert folder.exists()


def test_what_a_killed_program_leaves_of_its_cluster_is_ended_and_removed(
    folder: Path, run: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    """A process is the cluster's if its command line has the cluster's folder: another may have got its number."""
    program = run("killed")
    clusters, other = map(int, program.stdout.split())
    assert program.returncode == -signal.SIGKILL
    assert program.stderr.startswith("unspoken: the program was ended while its Ray cluster ran")
    assert_gone([clusters])
    assert is_running(other)
    assert not folder.exists()


def test_what_a_failed_start_has_left_is_ended_and_nothing_else(folder: Path) -> None:
    """Ray's head may still have a connection to this process, which Ray would end without it."""
    wait = [sys.executable, "-c", "input()"]
    named = [[*wait, f"--session={folder}/r"], [*wait, f"{folder}/r/gcs_server"], wait]
    begun = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in named]
    try:
        end_failed(folder)
        assert not is_running(begun[0].pid)
        assert [is_running(each.pid) for each in begun[1:]] == [True, True]
    finally:
        for each in begun:
            each.kill()
            with suppress(ChildProcessError):
                each.communicate()
