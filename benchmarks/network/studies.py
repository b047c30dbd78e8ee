"""Whole studies by the commands that people type, each participant in a process of its own on this machine."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import say
from benchmarks.network.exchange import SECONDS, memory_of
from unspoken.engines.network.cards import make_keys, roster_text, with_roster

STUDY = """
[study]
name = "speed"
task = "classification"
[data]
features = {features}
classes = 2
[parties]
count = {parties}
records = {records}
[privacy]
epsilon = 2.0
delta = 1e-5
[method]
name = "helmet"
regularization = 0.1
[summation]
protocol = "secagg+"
"""


class Studied(NamedTuple):
    """A study that ended."""

    seconds: float
    """From the moment at which the last party had joined to the certificate with all signatures"""
    parties: list[int]
    """The most memory that each party's process occupied, in bytes"""
    coordinator: int


def data_of(party: int, features: int, records: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(party)
    y = rng.integers(0, 2, records)
    return rng.normal(size=(records, features)) / np.sqrt(features) + 0.1 * (y[:, None] - 0.5) / features, y


def prepare(folder: Path, parties: int, features: int, records: int) -> None:
    """Keys, cards, a roster, records."""
    cards = []
    for name in ("hub", *map(str, range(parties))):
        key = folder / name / f"{name}.secret"
        cards.append(make_keys(name, key, key.with_suffix(".card")))
        if name != "hub":
            X, y = data_of(int(name), features, records)
            np.savez(folder / f"{name}.npz", X=X, y=y)
    text = STUDY.format(parties=parties, features=features, records=records)
    (folder / "study.toml").write_text(with_roster(text, roster_text(cards[1:], cards[0], [])), encoding="utf-8")


def start(folder: Path, name: str, *command: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    return subprocess.Popen(  # noqa: S603 (this very program)
        [sys.executable, "-m", "unspoken", *command, "--json"],
        cwd=folder,
        env={**os.environ, "UNSPOKEN_HOME": str(folder / name), "PYTHONPATH": path},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if name == "hub" else subprocess.DEVNULL,
    )


def studied(folder: Path, parties: int, features: int, records: int) -> Studied:
    """Serve, join, and wait for the end."""
    prepare(folder, parties, features, records)
    serving = start(folder, "hub", "serve", "study.toml", "--listen", "127.0.0.1:0", "--output", "out")
    joining: list[subprocess.Popen[str]] = []
    try:
        assert serving.stderr is not None
        lines = iter(serving.stderr)
        port = next(line for line in lines if "listening on" in line).rpartition(":")[2].strip()
        for index in range(parties):
            command = ("join", "study.toml", "--data", f"{index}.npz", "--coordinator", f"127.0.0.1:{port}", "--yes")
            joining.append(start(folder, str(index), *command, "--output", f"out-{index}"))
        with Memories([serving, *joining], folder / "out") as memories:
            last = _last_join(lines, parties)
            serving.wait(SECONDS)
        seconds = memories.written - last
        if serving.returncode:
            raise SystemExit(f"the coordinator ended with status {serving.returncode}")
        return Studied(seconds, memories.most[1:], memories.most[0])
    finally:
        for each in (serving, *joining):
            each.kill()
            each.wait()
        if serving.stderr is not None:
            serving.stderr.close()


def _last_join(lines: Iterator[str], parties: int) -> float:
    """When the last party had joined; all that is said is read, to its end."""
    joined, last = 0, time.perf_counter()
    for line in lines:
        if "has joined" in line and joined < parties:
            joined, last = joined + 1, time.perf_counter()
            say(f"{joined} of {parties} have joined")
    return last


class Memories:
    """Samples the memory of processes until they end, and notes when a certificate is in a folder."""

    def __init__(self, programs: list[subprocess.Popen[str]], folder: Path) -> None:
        self._folder, self.written = folder, math.inf
        self._programs, self._stop = programs, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = [0] * len(programs)

    def __enter__(self) -> Memories:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            if self.written == math.inf and any(self._folder.glob("*.certificate.json")):
                self.written = time.perf_counter()
            found = [memory_of(program.pid) for program in self._programs]
            self.most = [max(pair) for pair in zip(self.most, found, strict=True)]
