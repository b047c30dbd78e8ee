"""Claim: messages take milliseconds, large ones are held once, and a study ends soon after everyone has joined.

Exchanges: a message to every party and an answer from every party, over WebSocket and TLS on this machine, each party a
process of its own: empty ones with 10 parties, and 8 MB from each of 3. The best of several: other programs only add.
Parties and the coordinator share the cores, so with more parties than cores their work is in the time, too.

Large: one message of 700 MB, whose connection is cut in the middle. Stated is how far the memory of sender and receiver
rises, over the size of the message, and where it goes on.

Studies: by the commands `serve` and `join`, from the moment at which the last party has joined to the certificate with
all signatures. With 5 parties, with 5 parties whose models have 10⁶ numbers, over the same study by the engine for
simulations; and with 50 parties whose models have 10⁶ numbers each, with the memory of their processes.

Flower's exchange is measured in the same run if --flower names the folder of a virtual environment that has flwr 1.41.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.network import flower
from benchmarks.network.exchange import Exchanges, large, times
from benchmarks.network.studies import STUDY, data_of, studied
from benchmarks.studies import run_records
from unspoken.data.files import Records
from unspoken.study import make_study

RESULTS = Path(__file__).with_name("speed.json")
MB = 1_000_000


def main() -> None:
    parser = run_options(__doc__, RESULTS)
    parser.add_argument("--flower", type=Path, metavar="FOLDER", help="a virtual environment with flwr 1.41")
    arguments = parser.parse_args()
    quick = arguments.quick
    parts: dict[str, Any] = {
        "empty": lambda: exchange(3 if quick else 10, 0, 3 if quick else 30),
        "vectors": lambda: exchange(2 if quick else 3, 1 if quick else 8 * MB, 2 if quick else 5),
        "large": lambda: one_large((5 if quick else 700) * MB),
        "study": lambda: study(2 if quick else 5, 4),
        "overhead": lambda: overhead(2 if quick else 5, 1_000 if quick else 500_000),
        "many": lambda: study(3 if quick else 50, 1_000 if quick else 500_000),
    }
    if arguments.flower:
        parts["flower"] = lambda: flower.measured(arguments.flower)
    result = measure_parts(arguments, {"quick": quick}, parts)
    result["claims"] = claims(result)
    conclude(arguments, result, show)


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 1)


def exchange(parties: int, size: int, repeats: int) -> Numbers:
    say(f"exchanges of {size:,} bytes with {parties} parties")
    before, made = load(), Exchanges(parties, size)

    async def play() -> list[float]:
        found: list[float] = await made.run(lambda running: times(running, size, repeats))
        return found

    found = asyncio.run(play())
    best, median = min(found), float(np.median(found))
    return {"parties": parties, "bytes": size, "seconds": best, "median": median, "load": before}


def one_large(size: int) -> Numbers:
    say(f"one message of {size:,} bytes")
    before, made = load(), Exchanges(1, size)

    async def play() -> Any:
        return await made.run(lambda running: large(running, size))

    found = asyncio.run(play())
    return {
        "bytes": size,
        "seconds": found.seconds,
        "received_above": found.received_above / size,
        "sent_above": found.sent_above / size,
        "resumed_at": found.resumed_at / size,
        "load": before,
    }


def study(parties: int, features: int, records: int = 4) -> Numbers:
    say(f"a study with {parties} parties and {2 * features:,} numbers")
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        found = studied(Path(folder), parties, features, records)
    return {
        "parties": parties,
        "numbers": 2 * features,
        "seconds": found.seconds,
        # Where the system does not tell, it is 0.
        "party_mb": [round(min(found.parties) / MB), round(max(found.parties) / MB)],
        "coordinator_mb": round(found.coordinator / MB),
        "load": before,
    }


def overhead(parties: int, features: int, records: int = 4) -> Numbers:
    """The same study across processes and by the engine for simulations."""
    found = study(parties, features, records)
    made = make_study(tomllib.loads(STUDY.format(parties=parties, features=features, records=records)))
    each = [data_of(party, features, records) for party in range(parties)]
    everything = Records(np.concatenate([X for X, _ in each]), np.concatenate([y for _, y in each]))
    owners = np.repeat(np.arange(parties), records)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        run_records(made, everything, owners)
        seconds.append(time.perf_counter() - began)
    return {**found, "local": min(seconds), "over_local": found["seconds"] / min(seconds)}


def claims(result: Numbers) -> list[Numbers]:
    """What is claimed of the parts that were measured."""
    made = []
    if "empty" in result:
        text = "seconds of an empty exchange with 10 parties"
        made.append(claim("empty", text, result["empty"]["seconds"], at_most=0.02))
    if "vectors" in result:
        text = "seconds for 8 MB from each of 3 parties"
        made.append(claim("vectors", text, result["vectors"]["seconds"], at_most=0.5))
    if "large" in result:
        for side in ("received", "sent"):
            text = f"memory of a message of 700 MB over its size, where it is {side}"
            made.append(claim(f"{side} once", text, result["large"][f"{side}_above"], at_most=1.4))
        text = "where it goes on after a cut in the middle, over its size"
        made.append(claim("resumes", text, result["large"]["resumed_at"], at_least=0.4))
    if "study" in result:
        text = "seconds from the last join to the certificate, 5 parties"
        made.append(claim("study", text, result["study"]["seconds"], at_most=3.0))
    if "many" in result:
        text = "seconds from the last of 50 joins to the certificate, 10⁶ numbers each"
        made.append(claim("many", text, result["many"]["seconds"], at_most=600.0))
    return made


def show(result: Numbers) -> None:
    rows = []
    for name, part in result.items():
        if isinstance(part, dict):
            rows.append([name, *(f"{key} {value}" for key, value in list(part.items())[:6])])
    width = max(len(row) for row in rows)
    show_table(["part", *[""] * (width - 1)], [row + [""] * (width - len(row)) for row in rows])


if __name__ == "__main__":
    main()
