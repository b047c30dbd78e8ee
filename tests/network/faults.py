"""Studies of real processes in which something breaks: who breaks, when and how follows from a seed.

A run ends in one of three ways: a release by those who are left, an abort that says why, or, where the coordinator
never comes back, parties that say that they do not reach it. `fault_checks` then compares what was said.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unspoken.engines.network.cards import make_keys, roster_text, with_roster
from unspoken.methods.registry import plan_for
from unspoken.study import read_study

LIMIT_SECONDS = 180.0
"""No run takes longer, even on a machine that does much else"""
_KEYS: dict[str, str] = {
    "secagg+": 'name = "helmet"',
    "nodes": 'name = "moments"\nfunction = "network"\nsteps = 2\nhidden = 2',
    "votes": 'name = "voting"\nqueries = 4\npublic = "{public}"',
    "messages": 'name = "cape"',
    "rounds": 'name = "cross-silo"\nrounds = 3\nrate = 0.5',
    "tokens": 'name = "cross-silo"\nrounds = 2\nrate = 0.5\nsampling = "without-replacement"',
    "silo": 'name = "cross-silo"\nrounds = 20\nrate = 0.5',
}
_PROTOCOLS = {"secagg+": "secagg+", "nodes": "compute-nodes", "votes": "tally", "messages": "compute-nodes"}
SCENES = [scene for scene in _KEYS if scene != "silo"]
"""Those in which something breaks: short ones"""
_STUDY = """
[study]
name = "faults"
task = "classification"
[data]
features = 3
classes = 2
[parties]
count = {parties}
records = 20
max_records = 20
[privacy]
epsilon = 3.0
delta = 1e-5
unit = "{unit}"
dropouts = {dropouts}
attempts = {attempts}
[method]
{keys}
[summation]
protocol = "{protocol}"
"""
_POINTS = {
    "coordinator": {"FileStore.sync": 9, "Relay.close_stage": 12, "Relay.arrived": 30, "CoordinatorLog.end": 1}
    | {"CoordinatorLog.sign": 4, "CoordinatorLog.close": 1, "results.write": 1},
    "party": {"FileStore.replace": 7, "FileStore.sync": 7, "Party.receive": 10, "Ledger.charge": 2}
    | {"Link.put": 8, "Client.signs": 1},
    "helper": {"FileStore.replace": 4, "FileStore.sync": 6, "Helper.receive": 9, "Link.put": 5},
}
"""Where a fault may strike, and how often that is passed in a short study"""


@dataclass
class Fault:
    """What breaks in a run."""

    scene: str
    attempts: int
    victim: str
    does: str
    """kill, stop, disk, limit or line"""
    point: str
    count: int
    before: bool
    back_after: float | None
    """Seconds until the victim is started or woken again; None: never"""

    @classmethod
    def drawn(cls, seed: int) -> Fault:
        rng = np.random.default_rng(seed)
        scene = SCENES[int(rng.integers(len(SCENES)))]
        kinds = ["coordinator", "coordinator", "party", "party"] + ["helper"] * (
            scene in ("nodes", "votes", "messages")
        )
        kind = kinds[int(rng.integers(len(kinds)))]
        does = str(rng.choice(["kill", "stop", "disk", "line", "limit"], p=[0.5, 0.15, 0.15, 0.12, 0.08]))
        kind = "party" if does == "limit" else kind
        point, most = list(_POINTS[kind].items())[int(rng.integers(len(_POINTS[kind])))]
        if does == "limit":
            point, most = "Party.receive", 8
        count, before = 1 + int(rng.integers(most)), bool(rng.integers(2))
        victim = kind if kind == "coordinator" else f"{kind} {rng.integers(2)}"
        back = float(rng.uniform(0.0, 1.5)) if rng.random() < 0.7 else None
        return cls(scene, 1 + int(rng.integers(2)), victim, does, point, count, before, back)

    @property
    def armed(self) -> dict[str, Any] | None:
        if self.does == "line":
            return None
        return {"does": self.does, "point": self.point, "count": self.count, "before": self.before}


class Nursery:
    """The process that starts all others."""

    def __init__(self) -> None:
        here = Path(__file__).parent.parent
        path = os.pathsep.join([str(here), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "network.nursery"],
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, **said: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Pipe:
    """What a process says, without a file and without a reader that waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self.content = path, b""
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> str:
        try:
            while part := os.read(self._file, 1 << 16):
                self.content += part
        except BlockingIOError:
            pass
        return self.content.decode(errors="replace")

    def close(self) -> None:
        os.close(self._file)


@dataclass
class Program:
    """A participant: the same command, started once or more often."""

    name: str
    arguments: list[str]
    home: Path
    data: str
    out: Pipe
    err: Pipe
    tells: Pipe
    pid: int = 0
    status: int | None = None
    """None: it runs, or is to be started again"""
    starts: int = 0
    begins_at: float | None = None
    wakes_at: float | None = None
    asleep: bool = False
    outputs: list[str] = field(default_factory=list)

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.tells.content.decode().splitlines()]


class World:
    """Everything that all runs share: keys, records and studies."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder, self.nursery = folder, nursery
        self._cards, rng = {}, np.random.default_rng(0)
        np.savez(folder / "public.npz", X=rng.normal(size=(12, 3)) / 3)
        for name in ["coordinator", *(f"party {i}" for i in range(5)), *(f"helper {i}" for i in range(3))]:
            key = folder / "keys" / f"{name}.secret"
            self._cards[name] = make_keys(name, key, key.with_suffix(".card"))
            y = rng.integers(0, 2, 20)
            np.savez(folder / f"{name}.npz", X=rng.normal(size=(20, 3)) * 0.1 + (y[:, None] - 0.5) / 3, y=y)
        self._least: dict[Path, int] = {}

    def study(self, scene: str, attempts: int) -> Path:
        path = self.folder / f"{scene}-{attempts}.toml"
        if not path.exists():
            parties = self.parties(scene)
            text = _STUDY.format(
                parties=parties,
                unit="party" if scene == "votes" else "record",
                dropouts=0 if scene == "tokens" else 1,
                attempts=attempts,
                keys=_KEYS[scene].format(public=self.folder / "public.npz"),
                protocol=_PROTOCOLS.get(scene, "secagg+"),
            )
            helpers = [self._cards[name] for name in self.helpers(scene)]
            cards = [self._cards[f"party {index}"] for index in range(parties)]
            path.write_text(with_roster(text, roster_text(cards, self._cards["coordinator"], helpers)), "utf-8")
            self.nursery.ask(warm=str(path))
        return path

    def least(self, path: Path) -> int:
        if path not in self._least:
            self._least[path] = plan_for(read_study(path)).trust.least_survivors
        return self._least[path]

    @staticmethod
    def parties(scene: str) -> int:
        return 5 if scene == "secagg+" else 4

    @staticmethod
    def helpers(scene: str) -> list[str]:
        return [f"helper {index}" for index in range(3)] if scene in ("nodes", "votes", "messages") else []


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


class Run:
    """One study with one fault."""

    def __init__(self, world: World, seed: int, fault: Fault | None = None) -> None:
        """`fault` instead of the one that follows from the seed: then who waits in vain hangs."""
        self._patient = fault is not None
        self.world, self.seed, self.fault = world, seed, fault or Fault.drawn(seed)
        self.study = world.study(self.fault.scene, self.fault.attempts)
        self.folder = world.folder / f"run-{seed}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.port = free_port()
        self.line = free_port() if self.fault.does == "line" else self.port
        self.programs: dict[str, Program] = {}
        self.struck = self.fault.does == "line"
        self._line_pid = 0

    def _program(self, name: str) -> Program:
        home = self.folder / name
        home.mkdir(exist_ok=True)
        shutil.copy(self.world.folder / "keys" / f"{name}.secret", home / f"{name}.secret")
        where, data = f"127.0.0.1:{self.line}", str(self.world.folder / f"{name}.npz")
        study = str(self.study)
        if name == "coordinator":
            stage, join, grace = ("600", "600", "600") if self._patient else ("8", "15", "0.7")
            times = ["--stage-seconds", stage, "--join-seconds", join, "--grace-seconds", grace]
            arguments = ["serve", study, "--listen", f"127.0.0.1:{self.port}", "--output", str(home / "out"), *times]
        elif name.startswith("party"):
            arguments = ["join", study, "--data", data, "--coordinator", where, "--yes", "--output", str(home / "out")]
        else:
            arguments = ["assist", study, "--coordinator", where]
        if name != "coordinator":
            arguments += ["--patience", "600" if self._patient else "10"]
        pipes = [Pipe(home / kind) for kind in ("out.pipe", "err.pipe", "tells.pipe")]
        return Program(name, [*arguments, "--json"], home, data, *pipes)

    def _start(self, program: Program) -> None:
        fault = self.fault.armed if program.name == self.fault.victim and not program.starts else None
        program.out.read()
        program.outputs.append(program.out.content.decode(errors="replace"))
        program.out.content = b""
        program.pid = self.world.nursery.ask(
            start={
                "arguments": program.arguments,
                "home": str(program.home),
                "folder": str(program.home),
                "data": program.data,
                "out": str(program.out.path),
                "err": str(program.err.path),
                "tells": str(program.tells.path),
                "fault": fault,
            }
        )
        program.starts, program.status, program.begins_at = program.starts + 1, None, None

    def play(self) -> None:
        """Start everyone, and go on until all have ended who will."""
        scene = self.fault.scene
        names = ["coordinator", *(f"party {i}" for i in range(World.parties(scene))), *World.helpers(scene)]
        deadline = time.monotonic() + LIMIT_SECONDS
        try:
            if self.line != self.port:
                self._line_pid = self.world.nursery.ask(start={"seed": self.seed, "to": self.port, "port": self.line})
            for name in names:
                self.programs[name] = self._program(name)
                self._start(self.programs[name])
            while not all([self._is_over(program) for program in self.programs.values()]):  # noqa: C419 (asks all)
                assert time.monotonic() < deadline, self.told("hangs")
                time.sleep(0.02)
        finally:
            self._end()

    def again(self, name: str) -> Program:
        """The same command once more, after the end."""
        before = self.programs[name]
        for pipe in ("out.pipe", "err.pipe", "tells.pipe"):
            (before.home / pipe).unlink()
        program = self._program(name)
        self._start(program)
        while not self._is_over(program):
            time.sleep(0.02)
        before.err.content += program.err.content
        return program

    def _is_over(self, program: Program) -> bool:
        now = time.monotonic()
        if program.begins_at is not None:
            if now >= program.begins_at:
                self._start(program)
            return False
        if program.status is not None:
            return True
        for pipe in (program.out, program.err, program.tells):
            pipe.read()
        how, status = self.world.nursery.ask(poll=program.pid)
        back = self.fault.back_after
        if how == "stopped":
            self.struck = program.asleep = True
            program.wakes_at = None if back is None else now + 2 * back
        if how == "ended":
            program.status = status
            self.struck |= status == 4
            by_fault = status == -signal.SIGKILL or (status == 2 and self.fault.does == "disk")
            if by_fault and program.name == self.fault.victim:
                self.struck = True
                if back is not None and program.starts < 3:
                    program.begins_at, program.status = now + back, None
                    return False
            return True
        if program.asleep and program.wakes_at is None:
            return all(other.status is not None for other in self.programs.values() if other is not program)
        if program.asleep and program.wakes_at is not None and now >= program.wakes_at:
            program.asleep = False
            os.kill(program.pid, signal.SIGCONT)
        return False

    def _end(self) -> None:
        for pid in [program.pid for program in self.programs.values() if program.status is None] + [self._line_pid]:
            if pid:
                os.kill(pid, signal.SIGKILL)
                while self.world.nursery.ask(poll=pid)[0] != "ended":
                    time.sleep(0.01)
        for program in self.programs.values():
            for pipe in (program.out, program.err, program.tells):
                pipe.read()
                pipe.close()
                pipe.close = lambda: None  # type: ignore[method-assign]

    def told(self, what: str) -> str:
        """A failed check, with all that was said."""
        said = [f"seed {self.seed}: {what}: {self.fault}"]
        for program in self.programs.values():
            text = program.err.content.decode(errors="replace")
            out = program.out.content.decode(errors="replace")[:300]
            said.append(f"--- {program.name}: status {program.status}, {program.starts} starts\n{text}{out}")
        return "\n".join(said)
