"""What a program and all its processes have used: processor seconds by kind, and memory."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

from benchmarks.common import Sampling

_TICKS = os.sysconf("SC_CLK_TCK")


class Watch(Sampling):
    """Samples this process and all below it while a block of code runs.

    `seconds` has the processor seconds of the driver (this process), of tasks, of helpers and of the cluster's own
    processes; `slowest` those of the busiest helper; `peak_mb` the most memory of all, shared parts counted once.
    """

    def __init__(self, interval: float = 5.0) -> None:
        super().__init__(interval)
        self._used: dict[int, tuple[str, float]] = {}
        self._before = {pid: used for pid, (_, used) in _everyone().items()}
        self._before[os.getpid()] = time.process_time()
        self.peak_mb = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        found: Counter[str] = Counter({"driver": 0.0, "tasks": 0.0, "helpers": 0.0, "cluster": 0.0})
        for pid, (kind, used) in self._used.items():
            found[kind] += used - self._before.get(pid, 0.0)
        return dict(found)

    @property
    def slowest(self) -> float:
        own = [used - self._before.get(pid, 0.0) for pid, (kind, used) in self._used.items() if kind == "helpers"]
        return max(own, default=0.0)

    def sample(self) -> None:
        # Looking takes time, which is none of the driver's. Of others, the system counts hundredths of a second only.
        mine = time.process_time() - time.thread_time()
        for pid, (kind, used) in _everyone().items():
            known = self._used.get(pid, (kind, 0.0))[0]
            # A worker that was a helper once stays one; between two tasks it is idle.
            self._used[pid] = ("helpers" if "helpers" in (known, kind) else kind), mine if kind == "driver" else used
        self.peak_mb = max(self.peak_mb, sum(map(_memory, self._used)))


def _everyone() -> dict[int, tuple[str, float]]:
    """The kind and the processor seconds of this process and all below it."""
    found, waiting = {}, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += [int(child) for child in _text(tasks).split()]
        if fields := _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split():
            found[pid] = _kind(pid), (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    name = _text(Path(f"/proc/{pid}/cmdline")).split("\0")[0]
    if name.startswith("ray::Helper"):
        return "helpers"
    return "tasks" if name.startswith("ray::") else "cluster"


def _memory(pid: int) -> float:
    """The memory of a process in MB, its share of what it has in common with others."""
    for line in _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1e3
    return 0.0


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
