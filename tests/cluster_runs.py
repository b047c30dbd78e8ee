"""Small studies on a Ray cluster, and programs and commands that use one, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from factories import maker
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines.conditions import Conditions
from unspoken.engines.outcome import Outcome
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.study import Study
from unspoken.types import Integers

KEY = bytes(range(32))
PARTIES = 40
SECONDS = 450.0
"""How long a busy machine may take for what takes a few seconds."""
ALIKE = {"RAY_worker_niceness": "0"}
"""Ray would have its workers wait for all other programs of a busy machine"""
study = maker(data={"features": 6, "classes": 3}, method={"regularization": 0.1})


def records(count: int = 400) -> tuple[Records, Integers]:
    rng = np.random.default_rng(0)
    return Records(rng.normal(size=(count, 6)), rng.integers(0, 3, count)), np.arange(count) % PARTIES


def agreed_on(protocol: str = "compute-nodes", **said: Any) -> Study:
    return study(parties=PARTIES, summation=protocol, colluding=10, dropouts=4, **said)


def run(on: Callable[..., Outcome], agreed: Study, federation: Any = None, **how: Any) -> Any:
    """The weights of the released model."""
    method = method_for(agreed)
    federation = federation or ArrayFederation(agreed, *records())
    return on(method, method.plan(), federation, Conditions(secrets=SecretStream(KEY), drop=3, **how)).release.weights


def descendants(process: int) -> list[int]:
    found = [int(child) for tasks in Path(f"/proc/{process}/task").glob("*/children") for child in read(tasks).split()]
    return [*found, *(grandchild for child in found for grandchild in descendants(child))]


def read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def start(arguments: list[str], home: Path) -> subprocess.Popen[str]:
    return start_python(["-m", "unspoken", *arguments], home)


def start_python(arguments: list[str], home: Path, **more: str) -> subprocess.Popen[str]:
    """Start a program in a home of its own, with more variables in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # Whoever runs the tests in the background ignores interrupts, and so would what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "HOME": str(home), "TMPDIR": str(home), **ALIKE, **more},
        start_new_session=True,
    )


def sentences(errors: str) -> list[str]:
    """What was said, without notes on records and noise, and without what Ray itself logs when it is killed."""
    return [line for line in errors.splitlines() if not re.match(r"unspoken: note: |\[\d{4}-\d\d-\d\d .* W ", line)]


def assert_gone(processes: list[int]) -> None:
    until = time.monotonic() + SECONDS
    while any(map(is_running, processes)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [process for process in processes if is_running(process)]


def is_running(process: int) -> bool:
    return read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()[:1] not in ([], ["Z"])


def with_a(kind: str, process: subprocess.Popen[str]) -> list[int]:
    """The processes of a command, once one of them is of this kind."""
    found: list[int] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not named(kind, found) and process.poll() is None:
        time.sleep(0.02)
        found = descendants(process.pid)
    return found


def named(kind: str, processes: list[int]) -> list[int]:
    return [process for process in processes if kind in read(Path(f"/proc/{process}/comm"))]
