"""Claim: talliers count 3,000 queries in a fraction of a second, and exact neighbours cost no more than inexact ones.

Argmax: the winners of 3,000 queries with 10 classes, by three talliers and by five, with the ballots of 100 parties.
What is timed is each tallier's own work, from the first ballot to the opened winners, encryption of its messages and
agreement on the ballots included; all run in one process, one after the other. MPyC does the argmax alone, of totals
that are there already, by three processes on this machine; it is measured on fewer queries, in the same run, and its
seconds are scaled up (start and connections left out). MPyC's numbers have 34 bits, where unspoken's have 64.

Neighbours: `neighbour_shares` of 1,000 queries among 100,000 records of 1,000 features, k = 5, against scikit-learn's
brute force and faiss's flat index, each with all that it does from the arrays on. All numbers are standard normal.
faiss computes in single precision and its order of nearly equal distances is that of rounding errors; ours is exact,
with ties by place, as the guarantee needs. For how many queries they find other neighbours is printed, for these
records and for fewer with 100 added to every number, which changes no distance.

MPyC (with gmpy2) and faiss are compared with if they are installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Numbers, best_of, claim, conclude, options, say, show_table
from benchmarks.studies import Floats, Integers
from unspoken.learners.nearest_neighbours import neighbour_shares
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Endpoint, Envelope, Session, VoteShape
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.summation.tally import Options, Tally

CLASSES, NEIGHBOURS = 10, 5
Talliers = Literal[3, 5]
BOUND = 2**40
"""No total of ballots is larger."""
MPYC_SECONDS = 120
"""MPyC hangs when one of its processes dies."""
MPYC = """
import json, pathlib, sys, time
import numpy as np
from mpyc.runtime import mpc

totals = np.array(json.loads(pathlib.Path(__file__).with_name("totals.json").read_text()))
number = mpc.SecInt(34, p=2**89 - 1)

async def main():
    await mpc.start()
    await mpc.output(mpc.np_argmax(number.array(totals[:2]), axis=1))
    started, worked, winners = time.perf_counter(), time.process_time(), []
    for start in range(0, len(totals), 500):
        found = await mpc.output(mpc.np_argmax(number.array(totals[start:start + 500]), axis=1))
        winners += [int(winner) for winner in found]
    spent = {"seconds": time.perf_counter() - started, "processor": time.process_time() - worked, "winners": winners}
    pathlib.Path(__file__).with_name(f"party-{mpc.pid}.json").write_text(json.dumps(spent))
    await mpc.shutdown()

mpc.run(main())
"""


def main() -> None:
    arguments = options(__doc__).parse_args()
    conclude(arguments, measure(arguments), show)


def show(result: Numbers) -> None:
    print(f"Argmax of {result['queries']:,} queries with {CLASSES} classes, ballots of {result['parties']} parties\n")
    show_table(["argmax", "processor seconds a tallier", "MB sent a tallier", "rounds"], result["argmax"])
    sizes = result["neighbours"]
    print(
        f"\n{sizes['queries']:,} queries among {sizes['records']:,} records of {sizes['features']:,} features, k = 5\n"
    )
    show_table(["neighbours", "seconds, one thread", "processor seconds", "seconds, all cores"], sizes["rows"])
    for name, share in sizes["inexact"].items():
        print(f"\nfaiss finds other neighbours than double precision for {100 * share:.1f} % of queries: {name}")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    quick = arguments.quick
    parties, queries, sampled = (10, 100, 20) if quick else (100, 3_000, 500)
    tallied = {count: time_tally(count, parties, queries, 1 if quick else 3) for count in get_args(Talliers)}
    mpyc = time_mpyc(sampled)
    rows = [
        [f"unspoken, {count} talliers", f"{found['processor']:.3f}", f"{found['bytes'] / 1e6:.1f}", found["rounds"]]
        for count, found in tallied.items()
    ]
    claims = [claim("tally", "processor seconds of a tallier, of three", tallied[3]["processor"], at_most=0.5)]
    if mpyc is not None:
        scaled = mpyc["processor"] * queries / sampled
        rows.append([f"MPyC, 3 parties, {sampled} queries scaled up", f"{scaled:.3f}", "", ""])
        claims.append(
            claim("mpyc", "MPyC's processor seconds over ours", scaled / tallied[3]["processor"], at_least=20)
        )
    neighbours = time_neighbours(*((2_000, 50, 100, 1) if quick else (100_000, 1_000, 1_000, 3)))
    return {
        "parties": parties,
        "queries": queries,
        "tally": tallied,
        "mpyc": mpyc,
        "argmax": rows,
        "neighbours": neighbours,
        "claims": claims + neighbours.pop("claims"),
    }


# --- Argmax ----------------------------------------------------------------------------------------------------------


def time_tally(talliers: Talliers, parties: int, queries: int, repeats: int) -> dict[str, Any]:
    """The processor seconds of the busiest tallier, the best of some votes, and what it sends."""
    say(f"argmax by {talliers} talliers")
    ballots = np.random.default_rng(0).integers(-BOUND // parties, BOUND // parties, (parties, queries, CLASSES))
    votes = [one_vote(ballots, talliers) for _ in range(repeats)]
    return min(votes, key=lambda vote: vote["processor"])


def one_vote(ballots: Integers, talliers: Talliers) -> dict[str, Any]:
    """A whole vote with all its messages, each tallier's steps timed apart."""
    parties, queries, classes = ballots.shape
    shape = VoteShape(queries, classes, BOUND)
    session = Session("benchmark", "vote", parties, 0, parties, queries * classes, 64, vote=shape)
    made = SimulatedEndpoints(Tally(session, Options(talliers=talliers)), SecretStream())
    helpers, coordinator = made.helpers(), made.coordinator()
    endpoints: dict[str, Endpoint] = {**helpers, COORDINATOR: coordinator}
    spent, sent = dict.fromkeys(endpoints, 0.0), dict.fromkeys(endpoints, 0)

    def deliver(envelopes: list[Envelope]) -> None:
        waiting = deque(envelopes)
        while waiting:
            envelope = waiting.popleft()
            started = time.process_time()
            answers = endpoints[envelope.to].step(envelope.body)
            spent[envelope.to] += time.process_time() - started
            sent[envelope.to] += sum(len(answer.body) for answer in answers)
            waiting.extend(answers)

    for index, rows in enumerate(ballots):
        deliver(made.party(index, SecretStream()).submit(rows.ravel().view(np.uint64)))
    deliver(coordinator.settle())
    deliver(coordinator.agree())
    deliver(coordinator.finish())
    if (coordinator.winners() != ballots.sum(axis=0).argmax(axis=1)).any():
        raise RuntimeError("the talliers found other winners")
    return {
        "processor": max(spent[name] for name in helpers),
        "bytes": max(sent[name] for name in helpers),
        "rounds": made.protocol.poll.rounds,
    }


def time_mpyc(queries: int) -> dict[str, float] | None:
    """Seconds and processor seconds of one of three processes for so many queries."""
    if find_spec("mpyc") is None:
        say("MPyC is not installed (pip install mpyc gmpy2): no comparison")
        return None
    say(f"argmax of {queries} queries by MPyC")
    totals = np.random.default_rng(1).integers(-(2**32), 2**32, (queries, CLASSES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "vote.py").write_text(MPYC)
        (folder / "totals.json").write_text(json.dumps(totals.tolist()))
        if not finished_in_time([sys.executable, str(folder / "vote.py"), "-M3", "--no-log", "-B", str(free_ports(3))]):
            say("MPyC did not finish: no comparison")
            return None
        spent = [json.loads((folder / f"party-{party}.json").read_text()) for party in range(3)]
    if spent[0]["winners"] != totals.argmax(axis=1).tolist():
        raise RuntimeError("MPyC found other winners")
    return {key: max(each[key] for each in spent) for key in ("seconds", "processor")}


def finished_in_time(command: list[str]) -> bool:
    # The processes that it starts are in its session, and end with it.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, env=environment)  # noqa: S603
    try:
        return process.wait(timeout=MPYC_SECONDS) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def free_ports(count: int) -> int:
    """The first of so many ports in a row on which nobody listens."""
    bases = range(20_000 + os.getpid() % 10_000, 60_000, count)
    return next(base for base in bases if not any(listens(port) for port in range(base, base + count)))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- Neighbours ------------------------------------------------------------------------------------------------------


def time_neighbours(records: int, features: int, queries: int, repeats: int) -> dict[str, Any]:
    """Seconds on one thread, processor seconds of the same runs, and seconds on all cores."""
    rng = np.random.default_rng(0)
    rows, asked = rng.standard_normal((records, features)), rng.standard_normal((queries, features))
    labels = rng.integers(0, CLASSES, records)
    ways: dict[str, Callable[[int], Any]] = {
        "unspoken, exact": lambda _: neighbour_shares(asked, rows, labels, CLASSES, NEIGHBOURS),
        "scikit-learn, brute force": lambda _: scikit_learn(asked, rows),
    }
    if find_spec("faiss") is None:
        say("faiss is not installed (pip install faiss-cpu): no comparison")
    else:
        singles, few = rows.astype(np.float32), asked.astype(np.float32)
        ways["faiss, single precision"] = lambda threads: faiss_flat(few, singles, threads)
    # Once before the clock starts: first calls compile and import.
    neighbour_shares(asked[:1], rows[: 2 * NEIGHBOURS], labels[: 2 * NEIGHBOURS], CLASSES, NEIGHBOURS)
    scikit_learn(asked[:1], rows[: 2 * NEIGHBOURS])
    spent: dict[str, tuple[float, float, float]] = {}
    for name, way in ways.items():
        say(name)
        with threadpool_limits(1):
            seconds, processor = best_of(repeats, lambda way=way: way(1))  # type: ignore[misc]
        spent[name] = seconds, processor, best_of(repeats, lambda way=way: way(os.cpu_count() or 1))[0]  # type: ignore[misc]
    ours = spent["unspoken, exact"]
    best = [min(spent[name][column] for name in ways if name != "unspoken, exact") for column in range(3)]
    texts = ("by the clock on one thread", "in processor seconds", "by the clock on all cores")
    return {
        "records": records,
        "features": features,
        "queries": queries,
        "rows": [[name, *(f"{each:.2f}" for each in figures)] for name, figures in spent.items()],
        "inexact": inexact(asked, rows) if "faiss, single precision" in ways else {},
        "claims": [
            claim("neighbours", f"neighbours: ours over the fastest other, {text}", mine / theirs, at_most=1.5)
            for text, mine, theirs in zip(texts, ours, best, strict=True)
        ],
    }


def scikit_learn(queries: Floats, rows: Floats) -> Integers:
    from sklearn.neighbors import NearestNeighbors

    fitted = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(rows)
    found: Integers = fitted.kneighbors(queries, return_distance=False)
    return found


def faiss_flat(queries: Any, rows: Any, threads: int) -> Integers:
    faiss: Any = import_module("faiss")

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows)
    found: Integers = index.search(queries, NEIGHBOURS)[1]
    return found


def inexact(queries: Floats, rows: Floats) -> dict[str, float]:
    """For which share of queries faiss has other neighbours than double precision."""
    cases = {"as above": (queries, rows), "moved by 100": (queries[:100] + 100.0, rows[:20_000] + 100.0)}
    return {name: differing(*case) for name, case in cases.items()}


def differing(queries: Floats, rows: Floats) -> float:
    theirs = faiss_flat(queries.astype(np.float32), rows.astype(np.float32), 1)
    ours = scikit_learn(queries, rows)
    return float((np.sort(theirs, axis=1) != np.sort(ours, axis=1)).any(axis=1).mean())


if __name__ == "__main__":
    main()
