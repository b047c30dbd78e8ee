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

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import secagg, shamir
from unspoken.summation.base import COORDINATOR, Message, Session, address_of, bitmap
from unspoken.summation.graph import neighbours_of
from unspoken.summation.introductions import NONCE_BYTES, Advertise, Framed, Introduce
from unspoken.summation.keys import TAG_BYTES, Channel, seal
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

DROPOUTS = 0.05
CORRUPT = 0.5


def secagg_plus(parties: int, length: int, bits: int) -> SecAggPlus:
    return SecAggPlus(session(parties, length, bits), secagg.Options())


def session(parties: int, length: int, bits: int, *, opening: bool = False) -> Session:
    dropouts = round(DROPOUTS * parties)
    corrupt = round(CORRUPT * parties)
    schedule = NoiseSchedule.plan(parties, corrupt, dropouts, 1e12, 64.0) if opening else None
    return Session("benchmark", "model", parties, corrupt, parties - dropouts, length, bits, schedule)


def time_client(protocol: SecAggPlus) -> dict[str, float]:
    """One party through all four rounds, its neighbours made up."""
    agreed, label = protocol.session, protocol.session.label()
    endpoints = SimulatedEndpoints(protocol, SecretStream())
    nonce = SecretStream().take(NONCE_BYTES)
    neighbours = graph_of(protocol, nonce, 0)
    others: dict[int, Any] = {other: endpoints.party(other, SecretStream()) for other in neighbours}
    advertised = [advertisement(others[other].step(b"")[0].body) for other in neighbours]
    clock = {"keys": 0.0, "shares": 0.0, "mask": 0.0, "unmask": 0.0}
    party = timed(clock, "keys", lambda: endpoints.party(0, SecretStream()))
    mine = advertisement(timed(clock, "keys", lambda: party.step(b""))[0].body)
    channel = Channel(endpoints.keys.coordinator, mine.cipher_key, label, COORDINATOR, address_of(0))
    introduction = channel.wrap(msgspec.msgpack.encode(Introduce(nonce, advertised)))
    timed(clock, "shares", lambda: party.step(introduction))
    share = os.urandom((2 + agreed.components) * SHARE_BYTES)
    sealed = [
        seal(sealing_key(others[other].state.cipher_secret, mine.cipher_key, label, other, 0), int(other > 0), share)
        for other in neighbours
    ]
    relay = channel.wrap(msgspec.msgpack.encode(Relay(neighbours, sealed)))
    timed(clock, "shares", lambda: party.step(relay))
    vector = np.zeros(agreed.length, dtype=np.uint64)
    timed(clock, "mask", lambda: party.submit(vector))
    request = channel.wrap(msgspec.msgpack.encode(Unmask(bitmap(np.ones(agreed.parties, dtype=np.bool_)))))
    timed(clock, "unmask", lambda: party.step(request))
    return {**clock, "whole": sum(clock.values())}


def graph_of(protocol: SecAggPlus, nonce: bytes, party: int) -> list[int]:
    """A party's neighbours, if the coordinator has drawn this nonce."""
    seed = nonce + protocol.session.label().encode()
    found: list[int] = neighbours_of(party, protocol.session.parties, protocol.degree.neighbours, seed).tolist()
    return found


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
    endpoints = SimulatedEndpoints(protocol, SecretStream())
    coordinator: Any = endpoints.coordinator()
    clock = {"keys": 0.0, "shares": 0.0, "vectors": 0.0, "unmask": 0.0}
    parties: list[Any] = [endpoints.party(index, SecretStream()) for index in range(agreed.parties)]
    list(endpoints.keys.roster.parties)  # makes them all before the clock starts
    for body in [party.step(b"")[0].body for party in parties]:
        timed(clock, "keys", partial(coordinator.step, body))
    timed(clock, "keys", coordinator.advance)

    def receive(stage: str, sender: int, message: Message) -> None:
        """A message as the party would have wrapped it, taken by the coordinator."""
        secret, peer = parties[sender].state.cipher_secret, endpoints.keys.roster.coordinator
        body = Channel(secret, peer, label, address_of(sender), COORDINATOR).wrap(msgspec.msgpack.encode(message))
        framed = msgspec.msgpack.encode(Framed(label, sender, memoryview(body)))
        timed(clock, stage, lambda: coordinator.step(framed))

    graph = [graph_of(protocol, coordinator.state.nonce, index) for index in range(agreed.parties)]
    sealed = bytes((2 + agreed.components) * SHARE_BYTES + TAG_BYTES)
    for index in range(agreed.parties):
        receive("shares", index, Deal(graph[index], [sealed] * degree.neighbours))
    timed(clock, "shares", coordinator.advance)
    survivors = range(agreed.least_survivors)
    vector = agreed.pack(np.zeros(agreed.length, dtype=np.uint64))
    for index in survivors:
        hashes = [commitment(label, index, parties[index].state.self_seed)]
        receive("vectors", index, Masked(memoryview(vector), hashes))
    timed(clock, "unmask", coordinator.finish)
    for index, opened in enumerate(made_up_shares(parties, graph, degree.threshold, len(survivors))):
        receive("unmask", index, opened)
    timed(clock, "unmask", coordinator.total)
    if int(coordinator.survivors().sum()) != len(survivors):
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
