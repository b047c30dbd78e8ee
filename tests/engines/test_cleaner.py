"""A process waits beside a program that uses a cluster. It cleans up after one that was killed, and delays nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cluster_runs import assert_gone, is_running
from unspoken.engines.cluster.cleaner import Cleaner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody waits")
SECONDS = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cluster" / "r").mkdir(parents=True)
    return tmp_path / "cluster"


def test_a_program_that_is_done_does_not_wait_for_its_children(folder: Path) -> None:
    """One that was forked meanwhile has the pipe open as well, and lives on."""
    cleaner = Cleaner(folder)
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
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_program_leaves_of_its_cluster_is_ended_and_removed(folder: Path) -> None:
    """A process is the cluster's if its command line has the cluster's folder: another may have got its number."""
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    clusters, other = map(int, program.stdout.split())
    try:
        assert program.returncode == -signal.SIGKILL
        assert program.stderr.startswith("unspoken: the program was ended while its Ray cluster ran")
        assert_gone([clusters])
        assert is_running(other)
        assert not folder.exists()
    finally:
        os.kill(other, signal.SIGKILL)
