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
from unspoken.summation.base import COORDINATOR, Message, Session, address_of
from unspoken.summation.incoming import bitmap
from unspoken.summation.introductions import Advertise, Framed, Introduce, introduced
from unspoken.summation.keys import TAG_BYTES, Channel, agreement_key, seal, verified_once
from unspoken.summation.secagg import SecAggPlus
from unspoken.summation.secagg_messages import (
    MARK_BYTES,
    SHARE_BYTES,
    Agreed,
    Begin,
    Checked,
    Deal,
    DealtShares,
    Masked,
    Opened,
    Survivors,
    Unmask,
    agreed_statement,
    commitment,
    dealt_statement,
    marks_of,
    masked_statement,
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
    """One party through all rounds, its neighbours made up; everyone signs."""
    agreed, label = protocol.session, protocol.session.label()
    endpoints = SimulatedEndpoints(protocol, SecretStream())
    list(endpoints.keys.roster.parties)  # makes them all before the clock starts
    clock = dict.fromkeys(("keys", "shares", "mask", "agree", "unmask"), 0.0)
    verified_once.cache_clear()
    party: Any = timed(clock, "keys", lambda: endpoints.party(0, SecretStream()))
    mine = advertisement(timed(clock, "keys", lambda: party.step(b""))[0].body)
    channel = Channel(endpoints.keys.coordinator.agreement_secret, mine.cipher_key, label, COORDINATOR, address_of(0))

    def send(stage: str, message: Message) -> None:
        wrapped = channel.wrap(msgspec.msgpack.encode(message))
        timed(clock, stage, lambda: party.step(wrapped))

    # As many choose this party as it chooses itself: about half of them are the same where the graph is dense.
    draws = np.random.default_rng(0).random(agreed.parties) < protocol.graph.degree.neighbours / (agreed.parties - 1)
    dealers = [other for other in range(1, agreed.parties) if draws[other]]
    others: dict[int, Any] = {
        other: endpoints.party(other, SecretStream()) for other in sorted({*dealers, *party.state.chosen})
    }
    shown = {other: introduced(advertisement(endpoint.step(b"")[0].body)) for other, endpoint in others.items()}
    choosers = [shown[other] for other in dealers if other not in party.state.chosen]
    send("shares", Introduce([shown[other] for other in party.state.chosen], choosers))
    share = os.urandom((2 + agreed.components) * SHARE_BYTES)
    sealed = [
        seal(sealing_key(others[other].state.cipher_secret, mine.cipher_key, label, other, 0), int(other > 0), share)
        for other in dealers
    ]
    marks = b"".join(marks_of(label, other, 0, share) for other in dealers)
    send("shares", DealtShares(dealers, sealed, marks))
    everyone = bitmap(np.ones(agreed.parties, dtype=np.bool_))
    send("shares", Begin(everyone))
    vector = np.zeros(agreed.length, dtype=np.uint64)
    timed(clock, "mask", lambda: party.submit(vector))
    send("agree", Survivors(everyone))
    statement = agreed_statement(label, everyone, everyone)
    signatures = b"".join(endpoints.keys.identity(index).sign(statement) for index in range(agreed.parties))
    send("unmask", Unmask(everyone, everyone, signatures, [], b""))
    return {**clock, "masks": float(len(others)), "whole": sum(clock.values())}


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
    agreed, label = protocol.session, protocol.session.label()
    endpoints = SimulatedEndpoints(protocol, SecretStream())
    coordinator: Any = endpoints.coordinator()
    clock = dict.fromkeys(("keys", "shares", "vectors", "agree", "unmask"), 0.0)
    parties: list[Any] = [endpoints.party(index, SecretStream()) for index in range(agreed.parties)]
    list(endpoints.keys.roster.parties)  # makes them all before the clock starts
    for body in [party.step(b"")[0].body for party in parties]:
        timed(clock, "keys", partial(coordinator.step, body))
    timed(clock, "keys", coordinator.advance)

    def receive(stage: str, sender: int, message: Message) -> None:
        """A message as the party would have wrapped it, taken by the coordinator."""
        secret, peer = parties[sender].state.cipher_secret, agreement_key(endpoints.keys.roster.coordinator)
        body = Channel(secret, peer, label, address_of(sender), COORDINATOR).wrap(msgspec.msgpack.encode(message))
        framed = msgspec.msgpack.encode(Framed(label, sender, memoryview(body)))
        timed(clock, stage, lambda: coordinator.step(framed))

    degree, secrets = protocol.graph.degree, 2 + agreed.components
    graph = [party.state.chosen for party in parties]
    sealed = [bytes(secrets * SHARE_BYTES + TAG_BYTES)] * degree.neighbours
    marks = bytes(degree.neighbours * secrets * MARK_BYTES)
    for index, party in enumerate(parties):
        hashes = [commitment(label, index, seed) for seed in (party.state.self_seed, *party.state.noise_seeds)]
        signature = endpoints.keys.identity(index).sign(dealt_statement(label, index, marks, hashes))
        receive("shares", index, Deal(sealed, marks, hashes, signature))
    timed(clock, "shares", coordinator.advance)
    for index in range(agreed.parties):
        receive("shares", index, Checked([]))
    timed(clock, "shares", coordinator.advance)
    survivors = range(agreed.least_survivors)
    vector = agreed.pack(np.zeros(agreed.length, dtype=np.uint64))
    dealers = bitmap(np.ones(agreed.parties, dtype=np.bool_))
    for index in survivors:
        signature = endpoints.keys.identity(index).sign(masked_statement(label, index, dealers))
        receive("vectors", index, Masked(memoryview(vector), signature))
    timed(clock, "agree", coordinator.agree)
    statement = agreed_statement(label, dealers, bitmap(coordinator.survivors()))
    for index in survivors:
        receive("agree", index, Agreed(endpoints.keys.identity(index).sign(statement)))
    timed(clock, "unmask", coordinator.finish)
    for index, opened in enumerate(made_up_shares(parties, graph, degree.threshold, len(survivors))):
        receive("unmask", index, opened)
    timed(clock, "unmask", coordinator.total)
    if int(coordinator.survivors().sum()) != len(survivors):
        raise RuntimeError("the benchmark lost parties")
    return {**clock, "whole": sum(clock.values())}


def made_up_shares(parties: list[Any], graph: list[list[int]], threshold: int, survivors: int) -> Iterator[Opened]:
    """What each survivor opens: shares of the seeds of those who chose it if they survived, else of their mask keys."""
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
    dealers: list[list[int]] = [[] for _ in parties]
    for dealer, neighbours in enumerate(graph):
        for other in neighbours:
            dealers[other].append(dealer)
    for index in range(survivors):
        alive = [other for other in dealers[index] if other < survivors]
        gone = [other for other in dealers[index] if other >= survivors]
        yield Opened(
            alive,
            b"".join(shares[other][place[other][index], 1].tobytes() for other in alive),
            gone,
            b"".join(shares[other][place[other][index], 0].tobytes() for other in gone),
        )
