"""Claim: simulations spread over a cluster's cores, and memory does not grow with the number of parties.

The same studies in one process and on a Ray cluster of 1 and 2 workers on this machine, all with the same totals:

    ideal     1,000,000 parties × 20 records × 64 features × 10 classes, added in the clear
    nodes     100,000 of these parties through three compute nodes, with all their cryptography
    secagg    10,000 of them through SecAgg+
    long      100,000 parties × 100,000 numbers through compute nodes, nobody allowed to drop out: the size at which
              DisAgg (MLSys 2026) was measured
    task      what a start, an empty task and an idle cluster cost
    folder    parties that are read from a folder of Parquet files, 20 records each
    larger    200 parties in Parquet files, 20,000 records × 32 features each: more than 1 GB, and never all in memory

Each is run with as many parties as --share says; the rest is a projection by parties. With --only and --engines, what
was measured on other engines stays as it is, also if it was with fewer parties. Processor seconds say more than those
by the clock if the machine is busy. What 100 cores would take is a projection, too: the longest of the driver's
seconds, of the busiest helper's, and of all tasks' seconds over the cores that are left. `python -m
benchmarks.scale.table` writes the numbers into docs/engines.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    Numbers,
    claim,
    conclude,
    measure_parts,
    read_numbers,
    resident_bytes,
    run_options,
    say,
    show_table,
)
from benchmarks.helmet.million import CLASSES, FEATURES, RECORDS, GeneratedFederation
from benchmarks.scale.processes import Watch
from benchmarks.secure_sum.store import study as long_study
from benchmarks.studies import Floats, Integers, Study, method_for, study
from unspoken.data.block import Block
from unspoken.data.federation import Federation
from unspoken.data.folders import FolderFederation
from unspoken.engines import local
from unspoken.engines.cluster import engine
from unspoken.engines.cluster.connection import connected, ray
from unspoken.engines.conditions import Conditions
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream

FILE = Path(__file__).with_name("engines.json")
WHOLE = {"ideal": 1_000_000, "nodes": 100_000, "secagg": 10_000, "long": 100_000}
QUICK = {"ideal": 4_000, "nodes": 600, "secagg": 40, "long": 8}
ENGINES = ("local", "ray1", "ray2")
CORES = 100
KEY = bytes(32)


def main() -> None:
    parser = run_options(__doc__, FILE)
    parser.add_argument("--share", type=float, default=1.0, help="the share of the parties that are run (default 1)")
    parser.add_argument("--engines", default="local,ray1,ray2", help="some of local,ray1,ray2")
    arguments = parser.parse_args()
    parts: dict[str, Callable[[], Any]] = {"task": task}
    parts |= {name: lambda name=name: sizes(name, arguments) for name in WHOLE}  # type: ignore[misc]
    parts["folder"] = lambda: folder(200 if arguments.quick else max(200, round(4_000 * arguments.share)))
    parts["larger"] = lambda: larger(*((12, 500) if arguments.quick else (200, 20_000)))
    heading = {"quick": arguments.quick, "cores": CORES, "here": os.cpu_count(), "load": os.getloadavg()[0]}
    with shared(arguments):
        result = measure_parts(arguments, heading, parts)
    result["claims"] = claims(result)
    conclude(arguments, result, show)


@contextmanager
def shared(arguments: argparse.Namespace) -> Iterator[None]:
    """With --quick, one cluster of two workers for all that ask for one: its numbers are compared with nothing."""
    asked = {"task", *WHOLE} & set(arguments.only or ("task", *WHOLE))
    with connected(workers=2) if arguments.quick and asked and "ray" in arguments.engines else nullcontext():
        yield


class LongFederation(Federation):
    """Parties with one long record each, made on demand."""

    def __init__(self, parties: int, length: int) -> None:
        self.parties, self._length = parties, length

    def layout(self, most: int = 16) -> Any:
        size = min(most, 16)
        return (np.arange(start, min(start + size, self.parties)) for start in range(0, self.parties, size))

    def block(self, parties: Integers) -> Block:
        rows = [np.random.default_rng(party).standard_normal((1, self._length)) for party in parties.tolist()]
        features: Floats = np.stack(rows) / np.sqrt(2.0 * self._length)
        return Block(features, np.zeros((len(parties), 1), dtype=np.int64), np.ones(len(parties), dtype=np.int64))


def setting(name: str, parties: int, quick: bool) -> tuple[Study, Federation]:
    if name == "long":
        length = 2_000 if quick else 100_000
        agreed = long_study(parties, length, "compute-nodes")
        privacy = agreed.privacy.model_copy(update={"dropouts": 0})
        return agreed.model_copy(update={"privacy": privacy}), LongFederation(parties, length)
    protocol = {"ideal": "ideal", "nodes": "compute-nodes", "secagg": "secagg+"}[name]
    agreed = study(
        {"features": FEATURES, "classes": CLASSES, "norm": 1.0},
        {"count": parties, "records": RECORDS, "max_records": RECORDS},
        {"epsilon": 0.5, "delta": 1e-9, "colluding": 0.5, "dropouts": 0.0 if name == "ideal" else 0.05},
        {"name": "helmet", "learner": "softmax", "regularization": 0.1},
        protocol,
    )
    return agreed, GeneratedFederation(parties, seed=0)


def sizes(name: str, arguments: argparse.Namespace) -> Numbers:
    """One of the settings on all engines."""
    parties = QUICK[name] if arguments.quick else max(200, round(arguments.share * WHOLE[name]))
    agreed, federation = setting(name, parties, arguments.quick)
    few = None if arguments.quick else setting(name, QUICK[name], arguments.quick)
    known = known_runs(name, arguments)
    for how in arguments.engines.split(","):
        say(f"{name}, {parties:,} parties, {how} …")
        known[how] = timed(how, agreed, federation, few)
        say(f"{known[how]['seconds']:.1f} s")
    runs = {how: known[how] for how in ENGINES if how in known}
    alike = {(run["parties"], run["release_sha256"]) for run in runs.values() if "release_sha256" in run}
    same = len(alike) == len({many for many, _ in alike})
    return {"whole": WHOLE[name], "engines": runs, "same_totals": same}


def known_runs(name: str, arguments: argparse.Namespace) -> Numbers:
    """What other runs of a setting took, if only some parts are measured."""
    file: Path | None = arguments.results or (None if arguments.quick else arguments.file)
    if not arguments.only or file is None or not file.exists():
        return {}
    runs: Numbers = read_numbers(file).get(name, {}).get("engines", {})
    return runs


def planned(agreed: Study) -> tuple[Method, Plan]:
    method = method_for(agreed)
    return method, method.plan()


def timed(how: str, agreed: Study, federation: Federation, few: tuple[Study, Federation] | None = None) -> Numbers:
    """One run: how long it took whom, and a digest of what was released.

    With `few`, there is one with few parties before, after which everyone has imported and compiled what it needs."""
    method, plan = planned(agreed)
    memory: list[float] = []

    def note(what: str, done: int, parties: int) -> None:
        if what.startswith("training") and len(memory) < 10 * done // parties:
            memory.append(resident_bytes() / 1e6)

    given: dict[str, Any] = {"secrets": SecretStream(KEY), "progress": note}
    if how == "local":
        if few is not None:
            local.run(*planned(few[0]), few[1])
        with Watch() as watch:
            outcome = local.run(method, plan, federation, Conditions(**given))
    else:
        with connected(workers=int(how.removeprefix("ray"))) as cluster:
            if few is not None:
                warm(cluster)
                engine.run(*planned(few[0]), few[1])
            with Watch() as watch:
                outcome = engine.run(method, plan, federation, Conditions(**given))
    seconds, parties = watch.seconds, federation.parties
    helpers = len(plan.helper_addresses)
    run = {
        "parties": parties,
        "seconds": outcome.seconds,
        "parties_a_second": parties / outcome.seconds,
        "processor_seconds": seconds,
        "busiest_helper": watch.slowest,
        "peak_mb": watch.peak_mb,
        "driver_mb": memory,
        "bytes": outcome.bytes,
        "load": os.getloadavg()[0],
        "release_sha256": hashlib.sha256(outcome.release.to_bytes(agreed)).hexdigest(),
    }
    if how != "local":
        longest = max(seconds["driver"], watch.slowest, seconds["tasks"] / (CORES - helpers - 1))
        run["projected_parties_a_second"] = parties / longest
    return run


def warm(cluster: Any) -> None:
    """Have every worker started, which takes seconds and is no part of a run."""
    asleep = ray().remote(lambda: time.sleep(0.5))
    ray().get([asleep.remote() for _ in range(2 * cluster.cpus)])


def task() -> Numbers:
    """What a cluster costs before it does anything."""
    say("tasks …")
    began = time.perf_counter()
    with Watch(0.2) as watch, connected(workers=2) as cluster:
        start = time.perf_counter() - began
        warm(cluster)
        empty = ray().remote(lambda number: number)
        ray().get([empty.remote(number) for number in range(20)])
        began, count = time.perf_counter(), 500
        ray().get([empty.remote(number) for number in range(count)])
        each = (time.perf_counter() - began) / count
        began = time.perf_counter()
        cluster.put(np.zeros(8 << 20, dtype=np.uint8))
        stored = time.perf_counter() - began
    return {"start_seconds": start, "task_seconds": each, "put_8_mb_seconds": stored, "peak_mb": watch.peak_mb}


def folder(parties: int) -> Numbers:
    """Parties in files: how many a second, and the memory at every tenth of them."""
    import pandas as pd

    say(f"folder, {parties:,} files …")
    columns = {f"x{number}": {"min": -3.0, "max": 3.0} for number in range(8)}
    agreed = study(
        {"columns": columns, "label": "y", "classes": ["a", "b"]},
        {"count": parties, "records": RECORDS, "max_records": RECORDS},
        {"epsilon": 0.5, "delta": 1e-9, "colluding": 0.5},
        {"name": "helmet", "learner": "softmax", "regularization": 0.1},
    )
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        for party in range(parties):
            frame = pd.DataFrame(rng.standard_normal((RECORDS, 8)), columns=list(columns))
            frame.assign(y=rng.choice(["a", "b"], RECORDS)).to_parquet(Path(place) / f"{party:07}.parquet")
        began = time.perf_counter()
        federation = FolderFederation(agreed, Path(place))
        opened = time.perf_counter() - began
        run = timed("local", agreed, federation)
    return {"opening_seconds": opened, **run}


def larger(parties: int, records: int, features: int = 32) -> Numbers:
    """Parties in files that all together are larger than the memory that the simulation takes.

    The files have the contents of eight, under as many names as there are parties."""
    import pandas as pd

    say(f"larger, {parties:,} files …")
    columns = {f"x{number}": {"min": -3.0, "max": 3.0} for number in range(features)}
    agreed = study(
        {"columns": columns, "label": "y", "classes": ["0", "1"]},
        {"count": parties, "records": records, "max_records": records},
        {"epsilon": 0.5, "delta": 1e-9, "colluding": 0.5},
        {"name": "helmet", "learner": "softmax", "regularization": 0.1},
        "compute-nodes",
    )
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        for party in range(parties):
            file = Path(place) / f"{party:07}.parquet"
            if party < 8:
                frame = pd.DataFrame(rng.standard_normal((records, features)).clip(-3.0, 3.0), columns=list(columns))
                frame.assign(y=rng.choice(["0", "1"], records)).to_parquet(file)
            else:
                os.link(Path(place) / f"{party % 8:07}.parquet", file)
        run = timed("local", agreed, FolderFederation(agreed, Path(place)))
    return {"data_mb": parties * records * (features + 1) * 8 / 1e6, **run}


def claims(result: Numbers) -> list[dict[str, Any]]:
    found = []
    for name in WHOLE:
        if name not in result:
            continue
        part = result[name]
        found.append(claim("same", f"{name}: all engines have the same totals", part["same_totals"], at_least=1))
        for how, run in part["engines"].items():
            if len(run["driver_mb"]) >= 10:
                growth = float(np.median(run["driver_mb"][5:]) - np.median(run["driver_mb"][:5])) / 1e3
                text = f"{name}, {how}: growth of the driver's memory in GB from the first to the second half"
                found.append(claim("flat", text, growth, at_most=0.1 if name != "secagg" else 1.0))
    if "larger" in result and not result["quick"]:
        share = result["larger"]["peak_mb"] / result["larger"]["data_mb"]
        found.append(claim("larger", "files larger than memory: the memory as a share of the data", share, at_most=0.5))
    return found


def show(result: Numbers) -> None:
    rows = []
    for name in WHOLE:
        part = result.get(name, {"engines": {}})
        for how, run in part["engines"].items():
            used, projected = run["processor_seconds"], run.get("projected_parties_a_second")
            rows.append(
                (
                    f"{name}, {how}",
                    f"{run['parties']:,}",
                    f"{run['seconds']:.1f}",
                    f"{run['parties_a_second']:,.0f}",
                    f"{sum(used.values()):.1f}",
                    f"{used['driver']:.1f}",
                    f"{run['peak_mb']:,.0f}",
                    "" if projected is None else f"{projected:,.0f}",
                )
            )
    heads = ("setting", "parties", "seconds", "a second", "processor s", "driver", "peak MB", f"on {CORES} cores")
    show_table(heads, rows)
    if "task" in result:
        found = result["task"]
        print(
            f"\na cluster starts in {found['start_seconds']:.1f} s, an empty task takes "
            f"{1e3 * found['task_seconds']:.1f} ms, an idle cluster of 2 workers {found['peak_mb']:.0f} MB"
        )
    if "folder" in result:
        found = result["folder"]
        print(f"{found['parties']:,} Parquet files: {found['parties_a_second']:,.0f} parties a second")
    if "larger" in result:
        found = result["larger"]
        print(f"{found['parties']:,} large Parquet files: {found['data_mb']:,.0f} MB in {found['peak_mb']:,.0f} MB")


if __name__ == "__main__":
    main()
