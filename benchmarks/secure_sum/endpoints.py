"""SecAgg+ timed: all that one party computes, and all that the coordinator does, with everyone else made up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from unspoken.summation.neighbours import Advertise, Framed, Introduce

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import secagg, shamir
from unspoken.summation.base import Session, bitmap
from unspoken.summation.keys import seal
from unspoken.summation.secagg import SHARE_BYTES, Masked, Opened, Relay, SecAggPlus, Unmask, commitment, sealing_key

DROPOUTS = 0.05
CORRUPT = 0.5


def secagg_plus(parties: int, length: int, bits: int) -> SecAggPlus:
    return SecAggPlus(session(parties, length, bits), secagg.Options(), SecretStream())


def session(parties: int, length: int, bits: int, *, opening: bool = False) -> Session:
    dropouts = round(DROPOUTS * parties)
    corrupt = round(CORRUPT * parties)
    schedule = NoiseSchedule.plan(parties, corrupt, dropouts, 1e12, 64.0) if opening else None
    return Session("benchmark", "model", parties, corrupt, parties - dropouts, length, bits, schedule)


def time_client(protocol: SecAggPlus) -> dict[str, float]:
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
    started = time.process_time()
    result = work()
    clock[name] += time.process_time() - started
    return result


def time_bare_aes(streams: int, size: int) -> float:
    """So many AES-256-CTR streams of a size, made and thrown away."""
    zeros, buffer = bytes(size), bytearray(size + 16)
    started = time.process_time()
    for _ in range(streams):
        Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor().update_into(zeros, buffer)
    return time.process_time() - started


def time_server(protocol: SecAggPlus) -> dict[str, float]:
    """All that the coordinator does for n parties of which 5 % vanish before their vectors come."""
    agreed, degree, label = protocol.session, protocol.degree, protocol.session.label()
    coordinator = protocol.coordinator()
    state, count = coordinator.state, protocol.session.parties
    clock = {"keys": 0.0, "shares": 0.0, "vectors": 0.0, "unmask": 0.0}
    parties = [protocol.party(index, SecretStream()) for index in range(count)]
    list(protocol._roster.parties)
    for body in [party.step(b"")[0].body for party in parties]:
        timed(clock, "keys", partial(coordinator.step, body))
    timed(clock, "keys", coordinator.advance)
    graph = [coordinator._neighbours(index) for index in range(count)]
    sealed = bytes((2 + agreed.components) * SHARE_BYTES + 16)
    for index in range(count):
        deal = secagg.Deal(graph[index], [sealed] * degree.neighbours)
        receive(coordinator, clock, "shares", index, deal)
    timed(clock, "shares", coordinator.advance)
    survivors = range(agreed.least_survivors)
    vector = agreed.pack(np.zeros(agreed.length, dtype=np.uint64))
    for index in survivors:
        hashes = [commitment(label, index, parties[index].state.self_seed)]
        receive(coordinator, clock, "vectors", index, Masked(memoryview(vector), hashes))
    timed(clock, "unmask", coordinator.finish)
    for index, opened in enumerate(made_up_shares(parties, graph, degree.threshold, len(survivors))):
        receive(coordinator, clock, "unmask", index, opened)
    timed(clock, "unmask", coordinator.total)
    if len(state.settled) != len(survivors):
        raise RuntimeError("the benchmark lost parties")
    return {**clock, "whole": sum(clock.values())}


def made_up_shares(parties: list[Any], graph: list[list[int]], threshold: int, survivors: int) -> Iterator[Opened]:
    """What each survivor opens: shares of its neighbours' seeds if they survived, else of their mask keys."""
    shares = [
        shamir.split(
            [party.state.mask_secret, party.state.self_seed],
            np.array(neighbours, dtype=np.uint64) + np.uint64(1),
            threshold,
            SecretStream(),
        ).astype("<u4")
        for party, neighbours in zip(parties, graph, strict=True)
    ]
    place = [{other: position for position, other in enumerate(neighbours)} for neighbours in graph]
    for index in range(survivors):
        alive = [other for other in graph[index] if other < survivors]
        gone = [other for other in graph[index] if other >= survivors]
        yield Opened(
            alive,
            b"".join(shares[other][place[other][index], 1].tobytes() for other in alive),
            gone,
            b"".join(shares[other][place[other][index], 0].tobytes() for other in gone),
        )


def receive(coordinator: Any, clock: dict[str, float], stage: str, sender: int, message: Any) -> None:
    """A message as a party would have wrapped it, taken by the coordinator."""
    channel = coordinator._channel(sender)
    flipped = channel.__class__.__new__(channel.__class__)
    flipped._mine = channel._theirs
    body = flipped.wrap(msgspec.msgpack.encode(message))
    framed = msgspec.msgpack.encode(Framed(coordinator._label, sender, memoryview(body)))
    timed(clock, stage, lambda: coordinator.step(framed))
