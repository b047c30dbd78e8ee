"""A party that sends bad messages before someone else is stopped and restarted, and a coordinator that lies in between.

What a participant has on disk is replayed when it begins again. Nobody who can have something written there may so
prevent it from beginning, nor bring it to another state than the one that it had said something from.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adversaries.lying import Introduce, Stage, session
from cast import Cast, study_of
from disks import Folder
from unspoken.noise.stream import SecretStream
from unspoken.roles import store
from unspoken.roles.messages import Carried
from unspoken.summation.base import Rejected
from unspoken.summation.introductions import Introduced, introduced, keys_beginning
from unspoken.summation.keys import public_key
from unspoken.summation.node_messages import Share, key_statement
from unspoken.summation.pairwise import Options as PairwiseOptions
from unspoken.summation.pairwise import Pairwise
from unspoken.summation.secagg_messages import Deal
from unspoken.summation.simulated_keys import SimulatedEndpoints

NODE = "node:0"


class NodeOnDisk(Cast):
    """A sum in which the first node's state is on disk. It ends when all shares have come to this node."""

    class AllCame(Exception): ...

    def __init__(self, public: Path, folder: Path) -> None:
        super().__init__(study_of(public, "turns", "compute-nodes"))
        self.folder, self.shares = Folder(folder), list[bytes]()
        self.begin_again()
        with pytest.raises(self.AllCame):
            self.totals()

    def begin_again(self) -> None:
        """The node is stopped as by its service, and begins again."""
        self.stores[NODE].close()
        self.stores[NODE] = self.folder.open(self._keys.helper(0), self.study.digest(), NODE)
        self.helpers[NODE] = self.helper(NODE)

    def step(self, to: str, body: bytes, *more: Any) -> Any:
        message = msgspec.msgpack.decode(body)
        if to == NODE and message[0] == "role/carried":
            if msgspec.msgpack.decode(message[2])[0] != "nodes/share":
                raise self.AllCame
            self.shares.append(body)
        return super().step(to, body, *more)

    def second_share(self, first: bytes) -> bytes:
        """Another share of the same party, under another key that it signed, with nothing in it."""
        carried = msgspec.msgpack.decode(first, type=Carried)
        share = msgspec.msgpack.decode(carried.body, type=Share)
        key = public_key(os.urandom(32))
        signature = self._keys.identity(share.sender).sign(key_statement(share.session, share.sender, key))
        second = msgspec.structs.replace(share, key=key, signature=signature, sealed=memoryview(b"nothing"))
        return msgspec.msgpack.encode(Carried(carried.attempt, memoryview(msgspec.msgpack.encode(second))))


def test_no_party_can_prevent_a_node_from_beginning_again(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its vector is only named in the node's journal, and forgotten. The small share that it sent then is written down,
    and without the first one it cannot be read."""
    vectors = sorted(map(len, NodeOnDisk(public, tmp_path / "sizes").shares))
    monkeypatch.setattr(store, "LARGE", vectors[-1] - 1)
    cast = NodeOnDisk(public, tmp_path / "node")
    first = next(body for body in cast.shares if len(body) > store.LARGE)
    cast.helpers[NODE].receive(cast.second_share(first))
    cast.begin_again()
    waiting = cast.helpers[NODE]._endpoint.state.waiting  # type: ignore[union-attr]
    named = sum(len(body) > store.LARGE for body in cast.shares)
    assert len(waiting) == len(cast.shares) - named
    for body in cast.shares:
        if len(body) > store.LARGE:
            cast.helpers[NODE].receive(body)
    assert len(waiting) == len(cast.shares)
    cast.begin_again()


def test_keys_that_nothing_can_be_sealed_with_change_nothing_at_a_party() -> None:
    """A colluder signs a key of low order, and the coordinator introduces it nevertheless. The party says nothing, and
    is as after a crash: it meets its neighbours when it is shown others."""
    stage = Stage(session(6, 1, 1), {5})
    real = introduced(stage.adverts[5])
    keys = bytes(32), real.mask_key
    signature = stage.identity(5).sign(keys_beginning(stage.label, 5) + b"".join(keys) + real.chosen)
    honest = stage.introduction(0)
    low = Introduce([*honest.chosen[:-1], Introduced(5, *keys, real.chosen, signature)], [])
    before = stage.parties[0].dump()
    with pytest.raises(Rejected, match="not a valid point"):
        stage.parties[0].step(stage.channel(0).wrap(msgspec.msgpack.encode(low)))
    assert stage.parties[0].dump() == before
    assert isinstance(stage.say(0, honest), Deal)


def test_keys_that_no_mask_can_be_agreed_on_with_change_nothing_at_a_party_of_pairwise() -> None:
    """It is as after a crash, and takes the honest keys then."""
    simulated = SimulatedEndpoints(Pairwise(session(4, 1, 1), PairwiseOptions()), SecretStream())
    coordinator: Any = simulated.coordinator()
    parties: list[Any] = [simulated.party(index, SecretStream()) for index in range(4)]
    for party in parties:
        coordinator.step(party.step(b"")[0].body)
    shown = [introduced(coordinator.state.keys[other]) for other in (1, 2, 3)]
    keys = shown[2].cipher_key, bytes(32)
    beginning = keys_beginning(simulated.session.label(), 3)
    signature = simulated.keys.identity(3).sign(beginning + b"".join(keys) + shown[2].chosen)
    low = Introduce([*shown[:2], Introduced(3, *keys, shown[2].chosen, signature)], [])
    before = parties[0].dump()
    with pytest.raises(Rejected, match="not a valid point"):
        parties[0].step(coordinator._to(0, low).body)
    assert parties[0].dump() == before
    assert parties[0].step(coordinator._to(0, Introduce(shown, [])).body) == []
    assert parties[0].ready


def test_a_party_of_pairwise_keeps_nothing_that_unmasks_its_vector() -> None:
    """What it has in memory and on disk after its vector has left is of no use to who has recorded the vector."""
    simulated = SimulatedEndpoints(Pairwise(session(4, 1, 1), PairwiseOptions()), SecretStream())
    coordinator: Any = simulated.coordinator()
    parties: list[Any] = [simulated.party(index, SecretStream()) for index in range(4)]
    for party in parties:
        coordinator.step(party.step(b"")[0].body)
    secret = parties[0].state.mask_secret
    for to, body in coordinator.advance():
        parties[int(to.removeprefix("party:"))].step(body)
    seeds = [seed for seed, _ in parties[0].state.masks]
    assert len(seeds) == 3
    parties[0].submit(np.zeros(4, dtype=np.uint64))
    left = parties[0].dump()
    assert not [each for each in (secret, *seeds) if each in left]
