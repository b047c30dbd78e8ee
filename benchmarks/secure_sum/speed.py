"""Claim: the secure sum runs at the speed of the cipher, and exact noise costs nanoseconds.

SecAgg+ at n parties (half of them corrupt, 5 % dropouts) and vectors of l numbers, side by side in one run with the
functions of Flower's SecAgg+ (install the `benchmarks` extra) on the same n, k and l:
- client: all that one party computes, and its masking alone, which is compared with a bare AES-CTR loop over the same
  bytes;
- server: everything the coordinator computes, from keys to the total. The shares of a real run are made up (their
  number and sizes are real), so that the other 999 parties' work need not be waited for. Flower's server is timed on
  a few secrets and extrapolated linearly, as its cost is a sum over parties.

All times are processor seconds. Then the upload of each protocol, and the discrete Gaussian sampler against OpenDP's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import claim, conclude, options, say, show_table
from benchmarks.secure_sum.endpoints import secagg_plus, session, time_bare_aes, time_client, time_server
from benchmarks.secure_sum.others import time_flower, time_opendp
from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.stream import SecretStream
from unspoken.summation import compute_nodes, ideal, pairwise, secagg
from unspoken.summation.base import Protocol

LENGTH = 61_450


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--bits", type=int, choices=(32, 64), default=64)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.parties, arguments.length = 100, 5_000
    result = measure(arguments.parties, arguments.length, arguments.bits)
    result["uploads"] = uploads(arguments.parties, arguments.length, arguments.bits)
    result["sampler"] = sampler(10_000 if arguments.quick else 200_000, quick=arguments.quick)
    result["claims"] = claims(result)
    conclude(arguments, result, show)


def measure(parties: int, length: int, bits: int) -> dict[str, Any]:
    protocol = secagg_plus(parties, length, bits)
    degree = protocol.graph.degree
    say(f"{parties} parties, {length} numbers of {bits} bits, degree {degree.neighbours} ({degree.threshold})")
    say("client …")
    client = best(3, lambda: time_client(protocol))
    client["bare_aes"] = min(time_bare_aes(int(client["masks"]) + 1, length * bits // 8) for _ in range(5))
    say("server …")
    server = best(2, lambda: time_server(protocol))
    say("Flower …")
    flower = time_flower(parties, degree.neighbours, degree.threshold, length)
    return {
        "parties": parties,
        "length": length,
        "bits": bits,
        "neighbours": degree.neighbours,
        "threshold": degree.threshold,
        "client": client,
        "server": server,
        "flower": flower,
    }


def best(repeats: int, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The smallest of each figure."""
    runs = [work() for _ in range(repeats)]
    return {key: min(run[key] for run in runs) for key in runs[0]}


def uploads(parties: int, length: int, bits: int) -> dict[str, float]:
    """What one party sends, over its bare vector."""
    agreed = session(parties, length, bits, opening=True)
    protocols: dict[str, Protocol] = {
        "ideal": ideal.Ideal(agreed, ideal.Options()),
        "compute-nodes": compute_nodes.ComputeNodes(agreed, compute_nodes.Options()),
        "pairwise": pairwise.Pairwise(session(parties, length, bits), pairwise.Options()),
        "secagg+": secagg.SecAggPlus(agreed, secagg.Options()),
        "secagg": secagg.SecAgg(agreed, secagg.Options()),
    }
    return {name: protocol.upload_bytes() / (length * bits // 8) for name, protocol in protocols.items()}


def sampler(count: int, *, quick: bool) -> list[dict[str, float]]:
    """Nanoseconds a sample, ours and OpenDP's."""
    rows = []
    for exponent in (0, 20) if quick else (0, 10, 20, 30, 40):
        sigma = 2.0**exponent
        sample(sigma, 10, SecretStream())
        started = time.process_time()
        sample(sigma, count, SecretStream())
        ours = (time.process_time() - started) / count
        rows.append({"sigma": sigma, "nanoseconds": 1e9 * ours, "opendp_nanoseconds": 1e9 * time_opendp(sigma)})
    return rows


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    client, server, flower = result["client"], result["server"], result["flower"]
    entries = [
        claim(
            "aes", "masking's share of a bare AES loop's throughput", client["bare_aes"] / client["mask"], at_least=0.5
        ),
        claim("server", "processor seconds of the server", server["whole"], at_most=5.0),
        claim("upload", "compute nodes' upload over the bare vector", result["uploads"]["compute-nodes"], at_most=1.05),
    ]
    if flower:
        entries += [
            claim(
                "client_flower", "Flower's client over ours, whole", flower["whole"] / client["whole"], at_least=10.0
            ),
            claim("mask_flower", "Flower's masking over ours", flower["mask"] / client["mask"], at_least=3.0),
            claim("server_flower", "Flower's server over ours", flower["server"] / server["whole"], at_least=200.0),
        ]
    ratios = [row["opendp_nanoseconds"] / row["nanoseconds"] for row in result["sampler"]]
    if np.isfinite(ratios).all():
        entries.append(claim("sampler", "OpenDP's time a sample over ours, at worst", min(ratios), at_least=100.0))
    return entries


def show(result: dict[str, Any]) -> None:
    client, server, flower = result["client"], result["server"], result["flower"] or {}
    print(
        f"SecAgg+, {result['parties']} parties, {result['length']} numbers of {result['bits']} bits, "
        f"k = {result['neighbours']}, threshold {result['threshold']}\n"
    )
    nothing = float("nan")
    rows = [
        (f"client: {name}", f"{client[name]:.4f}", f"{flower.get(name, nothing):.4f}")
        for name in ("keys", "shares", "mask", "agree", "unmask", "whole")
    ]
    rows.append(("bare AES loop", f"{client['bare_aes']:.4f}", ""))
    rows += [
        (f"server: {name}", f"{server[name]:.3f}", "") for name in ("keys", "shares", "vectors", "agree", "unmask")
    ]
    rows.append(("server: whole", f"{server['whole']:.3f}", f"{flower.get('server', nothing):.1f}"))
    show_table(("processor seconds", "unspoken", "Flower"), rows)
    print()
    show_table(("protocol", "upload over bare vector"), [(n, f"{r:.3f}") for n, r in result["uploads"].items()])
    print()
    samples = [
        (f"2^{np.log2(row['sigma']):.0f}", f"{row['nanoseconds']:.0f}", f"{row['opendp_nanoseconds']:.0f}")
        for row in result["sampler"]
    ]
    show_table(("sampler, sigma", "ns a sample", "OpenDP"), samples)


if __name__ == "__main__":
    main()
