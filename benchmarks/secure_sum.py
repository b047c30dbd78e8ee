"""Claim: the secure sum runs at the speed of the cipher, and exact noise costs nanoseconds.

SecAgg+ at n parties (half of them corrupt, 5 % dropouts) and vectors of l numbers, side by side in one run with the
functions of Flower's SecAgg+ (install the `benchmarks` extra) on the same n, k and l:
- client: all that one party computes, and its masking alone, which is compared with a bare AES-CTR loop over the same
  bytes;
- server: everything the coordinator computes, from keys to the total. The shares of a real run are made up (their
  number and sizes are real), so that the other 999 parties' work need not be waited for. Flower's server is timed on
  a few secrets and extrapolated linearly, as its cost is a sum over parties. Then the growth with n and l (--growth,
  with a plot), the upload of each protocol, and the discrete Gaussian sampler against OpenDP's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _common import claim, options, say, show_claims, show_json, show_table
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import compute_nodes, ideal, pairwise, secagg, shamir
from unspoken.summation.base import Protocol, Session, bitmap
from unspoken.summation.introductions import Advertise, Framed, Introduce
from unspoken.summation.keys import seal
from unspoken.summation.secagg import SecAggPlus
from unspoken.summation.secagg_messages import (
    SHARE_BYTES,
    Deal,
    Masked,
    Opened,
    Relay,
    Unmask,
    commitment,
    sealing_key,
)
from unspoken.summation.simulated_keys import SimulatedEndpoints

LENGTH = 61_450
DROPOUTS = 0.05
CORRUPT = 0.5


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--bits", type=int, choices=(32, 64), default=64)
    parser.add_argument("--growth", action="store_true", help="also n = 100 … 10,000 and l = 10⁴ … 10⁶, with a plot")
    parser.add_argument("--plot", type=Path, default=Path("docs/images/secure_sum.png"))
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.parties, arguments.length = 100, 5_000
    result = measure(arguments.parties, arguments.length, arguments.bits)
    result["uploads"] = uploads(arguments.parties, arguments.length, arguments.bits)
    result["sampler"] = sampler(10_000 if arguments.quick else 200_000, quick=arguments.quick)
    result["claims"] = claims(result)
    if arguments.growth:
        result["growth"] = growth(arguments.plot, arguments.quick)
    if arguments.json:
        show_json(result)
    else:
        show(result)


def measure(parties: int, length: int, bits: int) -> dict[str, Any]:
    protocol = secagg_plus(parties, length, bits)
    degree = protocol.protocol.degree
    say(f"{parties} parties, {length} numbers of {bits} bits, degree {degree.neighbours} ({degree.threshold})")
    say("client …")
    client = best(3, lambda: time_client(protocol))
    client["bare_aes"] = min(time_bare_aes(degree.neighbours + 1, length * bits // 8) for _ in range(5))
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


def secagg_plus(parties: int, length: int, bits: int) -> SimulatedEndpoints[SecAggPlus]:
    return SimulatedEndpoints(SecAggPlus(session(parties, length, bits), secagg.Options()), SecretStream())


def session(parties: int, length: int, bits: int, *, opening: bool = False) -> Session:
    dropouts = round(DROPOUTS * parties)
    corrupt = round(CORRUPT * parties)
    schedule = NoiseSchedule.plan(parties, corrupt, dropouts, 1e12, 64.0) if opening else None
    return Session("benchmark", "model", parties, corrupt, parties - dropouts, length, bits, schedule)


def best(repeats: int, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The smallest of each figure."""
    runs = [work() for _ in range(repeats)]
    return {key: min(run[key] for run in runs) for key in runs[0]}


def time_client(protocol: SimulatedEndpoints[SecAggPlus]) -> dict[str, float]:
    """One party through all four rounds, its neighbours made up."""
    agreed, label = protocol.session, protocol.session.label()
    coordinator = protocol.coordinator()
    neighbours = coordinator._neighbours(0)
    others = {other: protocol.party(other, SecretStream()) for other in neighbours}
    advertised = [advertisement(others[other].step(b"")[0].body) for other in neighbours]
    clock = {"keys": 0.0, "shares": 0.0, "mask": 0.0, "unmask": 0.0}
    party = timed(clock, "keys", lambda: protocol.party(0, SecretStream()))
    mine = timed(clock, "keys", lambda: party.step(b""))[0]
    coordinator.step(mine.body)
    channel = coordinator._channel(0)
    introduction = channel.wrap(msgspec.msgpack.encode(Introduce(coordinator.state.nonce, advertised)))
    timed(clock, "shares", lambda: party.step(introduction))
    cipher_key = coordinator.state.keys[0].cipher_key
    share = os.urandom((2 + agreed.components) * SHARE_BYTES)
    sealed = [
        seal(sealing_key(others[other].state.cipher_secret, cipher_key, label, other, 0), int(other > 0), share)
        for other in neighbours
    ]
    relay = channel.wrap(msgspec.msgpack.encode(Relay(neighbours, sealed)))
    timed(clock, "shares", lambda: party.step(relay))
    vector = np.zeros(agreed.length, dtype=np.uint64)
    timed(clock, "mask", lambda: party.submit(vector))
    request = channel.wrap(msgspec.msgpack.encode(Unmask(bitmap(np.ones(agreed.parties, dtype=np.bool_)))))
    timed(clock, "unmask", lambda: party.step(request))
    return {**clock, "whole": sum(clock.values())}


def advertisement(body: bytes) -> Advertise:
    return msgspec.msgpack.decode(msgspec.msgpack.decode(body)[3], type=Advertise)


def timed(clock: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    started = time.perf_counter()
    result = work()
    clock[name] += time.perf_counter() - started
    return result


def time_bare_aes(streams: int, size: int) -> float:
    """So many AES-256-CTR streams of a size, made and thrown away."""
    zeros, buffer = bytes(size), bytearray(size + 16)
    started = time.perf_counter()
    for _ in range(streams):
        Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor().update_into(zeros, buffer)
    return time.perf_counter() - started


def time_server(protocol: SimulatedEndpoints[SecAggPlus]) -> dict[str, float]:
    """All that the coordinator does for n parties of which 5 % vanish before their vectors come."""
    agreed, degree, label = protocol.session, protocol.protocol.degree, protocol.session.label()
    coordinator = protocol.coordinator()
    state, count = coordinator.state, protocol.session.parties
    clock = {"keys": 0.0, "shares": 0.0, "vectors": 0.0, "unmask": 0.0}
    parties = [protocol.party(index, SecretStream()) for index in range(count)]
    list(protocol.keys.roster.parties)
    for body in [party.step(b"")[0].body for party in parties]:
        timed(clock, "keys", lambda body=body: coordinator.step(body))
    timed(clock, "keys", coordinator.advance)
    graph = [coordinator._neighbours(index) for index in range(count)]
    sealed = bytes((2 + agreed.components) * SHARE_BYTES + 16)
    for index in range(count):
        deal = Deal(graph[index], [sealed] * degree.neighbours)
        receive(coordinator, clock, "shares", index, deal)
    timed(clock, "shares", coordinator.advance)
    survivors = range(agreed.least_survivors)
    vector = agreed.pack(np.zeros(agreed.length, dtype=np.uint64))
    for index in survivors:
        hashes = [commitment(label, index, parties[index].state.self_seed)]
        receive(coordinator, clock, "vectors", index, Masked(memoryview(vector), hashes))
    timed(clock, "unmask", coordinator.finish)
    shares = [
        shamir.split(
            [parties[index].state.mask_secret, parties[index].state.self_seed],
            np.array(graph[index], dtype=np.uint64) + np.uint64(1),
            degree.threshold,
            SecretStream(),
        ).astype("<u4")
        for index in range(count)
    ]
    place = [{other: position for position, other in enumerate(neighbours)} for neighbours in graph]
    for index in survivors:
        alive = [other for other in graph[index] if other < len(survivors)]
        gone = [other for other in graph[index] if other >= len(survivors)]
        opened = Opened(
            alive,
            b"".join(shares[other][place[other][index], 1].tobytes() for other in alive),
            gone,
            b"".join(shares[other][place[other][index], 0].tobytes() for other in gone),
        )
        receive(coordinator, clock, "unmask", index, opened)
    timed(clock, "unmask", coordinator.total)
    if len(state.settled) != len(survivors):
        raise RuntimeError("the benchmark lost parties")
    return {**clock, "whole": sum(clock.values())}


def receive(coordinator: Any, clock: dict[str, float], stage: str, sender: int, message: Any) -> None:
    """A message as a party would have wrapped it, taken by the coordinator."""
    channel = coordinator._channel(sender)
    flipped = channel.__class__.__new__(channel.__class__)
    flipped._mine = channel._theirs
    body = flipped.wrap(msgspec.msgpack.encode(message))
    framed = msgspec.msgpack.encode(Framed(coordinator._label, sender, memoryview(body)))
    timed(clock, stage, lambda: coordinator.step(framed))


def time_flower(parties: int, neighbours: int, threshold: int, length: int) -> dict[str, float] | None:
    """What Flower's functions take for the same client, and for the server's unmasking (extrapolated from a few)."""
    try:
        from flwr.common.secure_aggregation.crypto import shamir as theirs
        from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
        from flwr.common.secure_aggregation.ndarrays_arithmetic import (
            parameters_addition,
            parameters_mod,
            parameters_subtraction,
        )
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
        from flwr.supercore.primitives.asymmetric import generate_key_pairs
    except ImportError:
        say("flwr is not installed (pip install '.[benchmarks]'): no comparison")
        return None
    clock = {"keys": 0.0, "shares": 0.0, "mask": 0.0}
    own = [timed(clock, "keys", generate_key_pairs) for _ in range(2)]
    peers = [generate_key_pairs()[1] for _ in range(neighbours)]

    def deal() -> None:
        for _ in range(2):
            theirs.create_shares(os.urandom(32), threshold, neighbours)
        for peer in peers:
            encrypt(generate_shared_key(own[1][0], peer), bytes(200))

    def mask() -> None:
        vector = [np.zeros(length, dtype=np.int64)]
        vector = parameters_addition(vector, pseudo_rand_gen(os.urandom(32), 2**32, [(length,)]))
        for peer in peers:
            stream = pseudo_rand_gen(generate_shared_key(own[0][0], peer)[:32], 2**32, [(length,)])
            vector = parameters_subtraction(vector, stream)
        parameters_mod(vector, 2**32)

    timed(clock, "shares", deal)
    timed(clock, "mask", mask)
    shares = theirs.create_shares(os.urandom(32), threshold, neighbours)
    started = time.perf_counter()
    for _ in range(3):
        theirs.combine_shares(shares)
    combining = (time.perf_counter() - started) / 3
    started = time.perf_counter()
    vector = [np.zeros(length, dtype=np.int64)]
    for peer in peers[:20]:
        stream = pseudo_rand_gen(generate_shared_key(own[0][0], peer)[:32], 2**32, [(length,)])
        vector = parameters_addition(vector, stream)
    expanding = (time.perf_counter() - started) / min(20, len(peers))
    dropped = round(DROPOUTS * parties)
    server = parties * combining + (parties - dropped + dropped * neighbours) * expanding
    return {**clock, "whole": sum(clock.values()), "server": server}


def uploads(parties: int, length: int, bits: int) -> dict[str, float]:
    """What one party sends, over its bare vector."""
    agreed = session(parties, length, bits, opening=True)
    protocols: dict[str, Protocol] = {
        "ideal": ideal.Ideal(agreed, ideal.Options()),
        "compute-nodes": compute_nodes.ComputeNodes(agreed, compute_nodes.Options()),
        "pairwise": pairwise.Pairwise(session(parties, length, bits), pairwise.Options()),
        "secagg+": SecAggPlus(agreed, secagg.Options()),
        "secagg": secagg.SecAgg(agreed, secagg.Options()),
    }
    return {name: protocol.upload_bytes() / (length * bits // 8) for name, protocol in protocols.items()}


def sampler(count: int, *, quick: bool) -> list[dict[str, float]]:
    """Nanoseconds a sample, ours and OpenDP's."""
    rows = []
    for exponent in (0, 20) if quick else (0, 10, 20, 30, 40):
        sigma = 2.0**exponent
        sample(sigma, 10, SecretStream())
        started = time.perf_counter()
        sample(sigma, count, SecretStream())
        ours = (time.perf_counter() - started) / count
        rows.append({"sigma": sigma, "nanoseconds": 1e9 * ours, "opendp_nanoseconds": 1e9 * time_opendp(sigma)})
    return rows


def time_opendp(sigma: float, count: int = 2_000) -> float:
    try:
        import opendp.prelude as dp
    except ImportError:
        return float("nan")
    dp.enable_features("contrib")
    measurement = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), scale=sigma)
    started = time.perf_counter()
    measurement([0] * count)
    return (time.perf_counter() - started) / count


def claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    client, server, flower = result["client"], result["server"], result["flower"]
    entries = [
        claim(
            "aes", "masking's share of a bare AES loop's throughput", client["bare_aes"] / client["mask"], at_least=0.5
        ),
        claim("server", "seconds of the server", server["whole"], at_most=2.0),
        claim("upload", "compute nodes' upload over the bare vector", result["uploads"]["compute-nodes"], at_most=1.05),
    ]
    if flower:
        entries += [
            claim("client_flower", "Flower's client over ours, whole", flower["whole"] / client["whole"], at_least=3.0),
            claim("mask_flower", "Flower's masking over ours", flower["mask"] / client["mask"], at_least=3.0),
            claim("server_flower", "Flower's server over ours", flower["server"] / server["whole"], at_least=20.0),
        ]
    ratios = [row["opendp_nanoseconds"] / row["nanoseconds"] for row in result["sampler"]]
    if np.isfinite(ratios).all():
        entries.append(claim("sampler", "OpenDP's time a sample over ours, at worst", min(ratios), at_least=100.0))
    return entries


def growth(plot: Path, quick: bool) -> dict[str, Any]:
    """Client and server times against n and against l."""
    sizes = (50, 100, 200) if quick else (100, 300, 1_000, 3_000, 10_000)
    lengths = (1_000, 10_000) if quick else (10_000, 100_000, 1_000_000)
    by_parties, by_length = [], []
    for parties in sizes:
        say(f"n = {parties} …")
        protocol = secagg_plus(parties, 10_000, 64)
        row = {
            "parties": parties,
            "neighbours": protocol.protocol.degree.neighbours,
            "client": time_client(protocol)["whole"],
        }
        by_parties.append({**row, "server": time_server(protocol)["whole"]})
    for length in lengths:
        say(f"l = {length} …")
        protocol = secagg_plus(sizes[0], length, 64)
        by_length.append(
            {"length": length, "client": time_client(protocol)["whole"], "server": time_server(protocol)["whole"]}
        )
    draw(plot, by_parties, by_length, sizes[0])
    return {"by_parties": by_parties, "by_length": by_length, "plot": str(plot)}


def draw(plot: Path, by_parties: list[dict[str, Any]], by_length: list[dict[str, Any]], parties: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, rows, key in ((left, by_parties, "parties"), (right, by_length, "length")):
        for name, marker in (("client", "o"), ("server", "s")):
            axis.loglog([row[key] for row in rows], [row[name] for row in rows], marker=marker, label=name)
        axis.set_ylabel("seconds")
        axis.grid(True, which="both", alpha=0.25)
        axis.legend()
    for row in by_parties:
        left.annotate(
            f"k = {row['neighbours']}",
            (row["parties"], row["client"]),
            textcoords="offset points",
            xytext=(0, 7),
            ha="center",
        )
    left.set(xlabel="parties n (half corrupt, 5 % dropouts)", title="vectors of 10,000 numbers")
    right.set(xlabel="numbers in a vector", title=f"{parties} parties")
    figure.suptitle("SecAgg+: the client's time hardly grows with n, the server's linearly")
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(plot, dpi=130)


def show(result: dict[str, Any]) -> None:
    client, server, flower = result["client"], result["server"], result["flower"] or {}
    print(
        f"SecAgg+, {result['parties']} parties, {result['length']} numbers of {result['bits']} bits, "
        f"k = {result['neighbours']}, threshold {result['threshold']}\n"
    )
    nothing = float("nan")
    rows = [
        (f"client: {name}", f"{client[name]:.4f}", f"{flower.get(name, nothing):.4f}")
        for name in ("keys", "shares", "mask", "unmask", "whole")
    ]
    rows.append(("bare AES loop", f"{client['bare_aes']:.4f}", ""))
    rows += [(f"server: {name}", f"{server[name]:.3f}", "") for name in ("keys", "shares", "vectors", "unmask")]
    rows.append(("server: whole", f"{server['whole']:.3f}", f"{flower.get('server', nothing):.1f}"))
    show_table(("seconds", "unspoken", "Flower"), rows)
    print()
    show_table(("protocol", "upload over bare vector"), [(n, f"{r:.3f}") for n, r in result["uploads"].items()])
    print()
    samples = [
        (f"2^{np.log2(row['sigma']):.0f}", f"{row['nanoseconds']:.0f}", f"{row['opendp_nanoseconds']:.0f}")
        for row in result["sampler"]
    ]
    show_table(("sampler, sigma", "ns a sample", "OpenDP"), samples)
    for row in result.get("growth", {}).get("by_parties", []):
        print(
            f"n = {row['parties']}: k = {row['neighbours']}, client {row['client']:.3f} s, server {row['server']:.3f} s"
        )
    show_claims(result["claims"])


if __name__ == "__main__":
    main()
