"""Thousands of runs with faults, lost and stale states, replays and lying coordinators, each from its seed.

    PYTHONPATH=tests python -m adversaries.soak --runs 20000

A run ends in the exact total, in an abort that is ours, or is reported: a wrong or a second total, a hang, another
exception. Each report names what was run and its seed, which plays it again (`--kind KIND --seed SEED --runs 1`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adversaries import lying_votes, random_asks, random_nodes, test_random_coordinator
from adversaries.on_disk import SCENES, Crashing, OnDisk, decoded
from adversaries.said import Said
from cast import VICTIM, Cast, honest, study_of
from disks import PowerCut
from small_studies import public_file
from summation import test_faults
from unspoken.engines.actors import Vanishing
from unspoken.methods.parameters import Refused
from unspoken.roles.messages import Carried
from unspoken.roles.store import StoreError
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected

SECONDS = 120
"""A run that takes longer hangs."""


@cache
def public() -> Path:
    return public_file(Path(tempfile.mkdtemp(prefix="soak-")))


class Replaying(Cast):
    """Everyone gets old messages again, as they were or under the name of the attempt that runs, before new ones;
    participants begin again from their stores; parties vanish."""

    def __init__(self, kind: str, protocol: str, rng: np.random.Generator) -> None:
        super().__init__(study_of(public(), kind, protocol))
        self.rng, self.heard = rng, dict[str, list[bytes]]()
        self.said = Said()
        self.trouble = float(rng.choice([0.02, 0.1, 0.3]))
        self.rewraps = bool(rng.random() < 0.5)

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        old = self.heard.setdefault(to, [])
        if to != COORDINATOR and self.rng.random() < self.trouble:
            self.restart(to)
        while old and self.rng.random() < self.trouble:
            self.replay(to, old[int(self.rng.integers(len(old)))])
        old.append(body)
        envelopes = super().step(to, body, gone, sender)
        self.note(to, envelopes)
        return envelopes

    def restart(self, to: str) -> None:
        if to in self.parties:
            self.parties[to] = self.party(int(to.removeprefix("party:")))
        elif to in self.helpers:
            self.helpers[to] = self.helper(to)

    def replay(self, to: str, body: bytes) -> None:
        """To parties and helpers; the coordinator hears nothing again, as it believes connections, not bytes."""
        role: Any = {**self.parties, **self.helpers}.get(to)
        if role is None:
            return
        message = decoded(body)
        if self.rewraps and isinstance(message, Carried):
            body = msgspec.msgpack.encode(Carried(self.coordinator.attempt, message.body))
        with contextlib.suppress(Rejected, Refused):
            self.note(to, role.receive(body))

    def note(self, sender: str, envelopes: list[Envelope]) -> None:
        if sender in self.parties:
            self.said.note(sender, envelopes)


def replays(seed: int) -> str:
    """All that is heard may be heard again: the totals are those of a run without faults, or there are none."""
    rng = np.random.default_rng(seed)
    kind, protocol = SCENES[int(rng.integers(len(SCENES)))]
    cast = Replaying(kind, protocol, rng)
    try:
        totals = cast.totals()
    except Aborted:
        totals = None
    assert not cast.said.twice, f"seed {seed}: two different messages in one attempt: {cast.said.twice[0]}"
    if totals is None:
        return "aborted"
    assert totals == honest(public(), kind, protocol)[0], f"seed {seed}: another total"
    return "exact"


def crashes(seed: int) -> str:
    """The disk of a participant fails at some operation, with or without power."""
    rng = np.random.default_rng(seed)
    kind, protocol = SCENES[int(rng.integers(len(SCENES)))]
    address = "helper" if (kind, protocol) in SCENES[1:4] and rng.random() < 0.4 else VICTIM
    how = {"torn": float(rng.choice([0.0, 0.3, 1.0])), "lost": bool(rng.random() < 0.5)}
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        at, power = int(rng.integers(60)), bool(rng.random() < 0.7)
        try:
            cast = Crashing(public(), kind, protocol, before, address, operations=at, power=power, **how)
        except (PowerCut, StoreError, OSError):
            return "not begun"
        totals = cast.totals()
        cast.close()
    assert totals == honest(public(), kind, protocol)[0], f"seed {seed}: another total"
    assert not cast.said.twice, f"seed {seed}: two different messages in one attempt: {cast.said.twice[0]}"
    return "crashed" if cast.failed else "exact"


def stale(seed: int) -> str:
    """A participant's journal is put back to an earlier moment, in the middle of a run, before something has left."""
    rng = np.random.default_rng(seed)
    kind, protocol = SCENES[int(rng.integers(len(SCENES)))]
    address = "helper" if (kind, protocol) in SCENES[1:4] and rng.random() < 0.4 else VICTIM
    with tempfile.TemporaryDirectory() as folder:
        cast, copies = OnDisk(public(), kind, protocol, Path(folder), address), list[bytes]()
        when, refused, relied_on = int(rng.integers(1, 6)), 0, 0

        def put_back(to: str, envelopes: list[Envelope]) -> None:
            nonlocal refused, relied_on
            if to != cast.address:
                return
            now = cast.folder.journal.read_bytes()
            if now not in copies:
                copies.append(now)
            if envelopes:
                relied_on = len(copies) - 1
            if len(copies) > when and relied_on and not refused:
                cast.close()
                cast.folder.journal.write_bytes(copies[int(rng.integers(relied_on))])
                try:
                    cast.open()
                except StoreError:
                    refused += 1
                else:
                    raise AssertionError(f"seed {seed}: an old state was taken")
                cast.folder.journal.write_bytes(now)
                cast.open()

        cast.after = put_back
        totals = cast.totals()
        cast.close()
    assert totals == honest(public(), kind, protocol)[0], f"seed {seed}: another total"
    return "refused" if refused else "exact"


def lies_to_parties(seed: int) -> str:
    return "opened" if test_random_coordinator.play(seed).stage.opened else "nothing opened"


def lies_to_nodes(seed: int) -> str:
    return "opened" if random_nodes.play(seed) else "nothing opened"


def lies_to_talliers(seed: int) -> str:
    return "counted" if lying_votes.play(seed).begun else "nothing counted"


def asks(seed: int) -> str:
    """One party is asked for anything, and has a ledger."""
    return "vectors left" if random_asks.play(seed).left else "nothing left"


def faults(name: str, seed: int) -> str:
    return test_faults.play(name, seed)[0]


KINDS: dict[str, tuple[int, Callable[[int], str]]] = {
    "lies-to-parties": (3, lies_to_parties),
    "lies-to-nodes": (6, lies_to_nodes),
    "lies-to-talliers": (3, lies_to_talliers),
    "asks": (1, asks),
    "replays": (1, replays),
    "crashes": (2, crashes),
    "stale": (2, stale),
    **{f"faults-{name}": (3, partial(faults, name)) for name in test_faults.MAKERS},
}
"""How often each kind is run, relative to the others, and how one run is made from its seed."""


def hanging(_signal: int, _frame: object) -> None:
    raise TimeoutError(f"a run took more than {SECONDS} s")


def one(kind: str, seed: int) -> tuple[str, int, str, float]:
    """The run's outcome, or what went wrong."""
    signal.signal(signal.SIGALRM, hanging)
    signal.alarm(SECONDS)
    started = time.process_time()
    try:
        outcome = KINDS[kind][1](seed)
    except Exception as error:
        outcome = f"WRONG {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return kind, seed, outcome, time.process_time() - started


def share(runs: int, kinds: list[str]) -> Counter[str]:
    """How many runs each kind gets."""
    weights = sum(KINDS[kind][0] for kind in kinds)
    return Counter({kind: max(1, runs * KINDS[kind][0] // weights) for kind in kinds})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each kind")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    planned = share(given.runs, given.kind or list(KINDS))
    outcomes, seconds, wrong = Counter[tuple[str, str]](), Counter[str](), 0
    with ProcessPoolExecutor(given.processes) as pool:
        runs = [pool.submit(one, kind, given.seed + n) for kind, count in planned.items() for n in range(count)]
        for done, future in enumerate(as_completed(runs), 1):
            kind, seed, outcome, took = future.result()
            seconds[kind] += took
            if outcome.startswith("WRONG"):
                wrong += 1
                print(f"{kind}, seed {seed}: {outcome}", flush=True)
            outcomes[kind, outcome.split(":")[0]] += 1
            if done % 1000 == 0:
                print(f"{done} of {len(runs)} runs, {wrong} wrong", flush=True)
    for kind, count in planned.items():
        told = ", ".join(f"{number} {outcome}" for (of, outcome), number in sorted(outcomes.items()) if of == kind)
        print(f"{kind:24} {count:6} runs, {seconds[kind] / count:.3f} s each: {told}")
    print(f"{sum(planned.values())} runs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
