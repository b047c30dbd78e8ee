"""Claim: with SecAgg+ a client's time hardly grows with the number of parties, and the server's about linearly.

n = 100 … 10,000 parties (half of them corrupt, 5 % dropouts) with vectors of 10,000 numbers, and 100 parties with
vectors of 10⁴ … 10⁶ numbers: processor seconds of one client and of the server, each computing all that it has to.

Writes the numbers (with --quick only if --results is given). `python -m benchmarks.secure_sum.plots` draws them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.secure_sum.endpoints import secagg_plus, time_client, time_server

RESULTS = Path(__file__).with_name("growth.json")


def main() -> None:
    arguments = run_options(__doc__, RESULTS).parse_args()
    sizes = (50, 100, 200) if arguments.quick else (100, 300, 1_000, 3_000, 10_000)
    lengths = (1_000, 10_000) if arguments.quick else (10_000, 100_000, 1_000_000)
    parts = {
        "by_parties": lambda: [timed_at(parties, 10_000) for parties in sizes],
        "by_length": lambda: [timed_at(sizes[0], length) for length in lengths],
    }
    result = measure_parts(arguments, {"quick": arguments.quick}, parts)
    conclude(arguments, result | {"claims": claims(result)}, show)


def timed_at(parties: int, length: int) -> dict[str, Any]:
    """Processor seconds of one client, the best of three, and of the server."""
    say(f"{parties:,} parties, {length:,} numbers")
    protocol = secagg_plus(parties, length, 64)
    return {
        "parties": parties,
        "length": length,
        "neighbours": protocol.graph.degree.neighbours,
        "client": min(time_client(protocol)["whole"] for _ in range(3)),
        "server": time_server(protocol)["whole"],
    }


def claims(result: Numbers) -> list[dict[str, Any]]:
    first, last = result["by_parties"][0], result["by_parties"][-1]
    power = math.log(last["server"] / first["server"]) / math.log(last["parties"] / first["parties"])
    more = last["parties"] / first["parties"]
    return [
        claim(
            "client", f"a client's time with {more:g} times the parties", last["client"] / first["client"], at_most=4
        ),
        claim("server", "the power of n by which the server's time grows", power, at_most=1.3),
    ]


def show(result: Numbers) -> None:
    rows = [
        [f"{row['parties']:,}", f"{row['length']:,}", row["neighbours"], f"{row['client']:.3f}", f"{row['server']:.3f}"]
        for row in (*result["by_parties"], *result["by_length"])
    ]
    show_table(["parties", "numbers", "neighbours", "client, s", "server, s"], rows)


if __name__ == "__main__":
    main()
