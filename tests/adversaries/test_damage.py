"""Damaged and foreign files in every store of a study: a party's, a node's, a tallier's and the coordinator's log.

The study is stopped somewhere, and someone changes a file. Whoever begins again from it is what it was, or refuses.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cast import STUDIES, Cast, study_of
from disks import FailingDisk, Folder, PowerCut
from small_studies import small
from unspoken.engines.actors import Vanishing
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.file_store import Disk, FileStore
from unspoken.roles.store import StoreError
from unspoken.summation.base import COORDINATOR, Envelope


class Stopped(Exception): ...


class AllOnDisk(Cast):
    """Some participants have their states on disk. All are stopped after so many messages."""

    def __init__(self, public: Path, protocol: str, place: Path, stop: int) -> None:
        kind = "votes" if protocol == "tally" else "turns"
        super().__init__(study_of(public, kind, protocol))
        helpers = list(self.plan.helper_addresses[:2])
        self.addresses = ["party:0", "party:1", *helpers, COORDINATOR]
        self.folders = {address: Folder(place / address.replace(":", "-")) for address in self.addresses}
        for address in self.addresses:
            self.begin(address)
        self._left = stop
        with pytest.raises(Stopped):
            self.totals()
        for address in self.addresses:
            self.stores[address].sync()
            self.stores[address].close()

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        if not self._left:
            raise Stopped
        self._left -= 1
        return super().step(to, body, gone, sender)

    def open(self, address: str, disk: Disk | None = None) -> FileStore:
        return self.folders[address].open(self.identity(address), self.study.digest(), address, disk=disk)

    def identity(self, address: str) -> Any:
        if address == COORDINATOR:
            return self._keys.coordinator
        index = int(address.split(":")[1])
        return self._keys.identity(index) if address.startswith("party") else self._keys.helper(index)

    def begin(self, address: str) -> None:
        """Make a participant from what is on its disk."""
        self.stores[address] = self.open(address)
        if address == COORDINATOR:
            self.coordinator = Coordinator(
                self.method,
                self._keys.coordinator,
                self._keys.roster,
                plan=self._plan,
                noise_of=self._attempts.noise_of,
                store=self.stores[address],
            )
        elif address in self.parties:
            self.parties[address] = self.party(int(address.split(":")[1]))
        else:
            self.helpers[address] = self.helper(address)

    def records(self, address: str) -> list[bytes]:
        store = self.open(address)
        try:
            return store.read()
        finally:
            store.close()


@pytest.mark.parametrize("protocol", ["secagg+", "compute-nodes", "tally"])
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(
    protocol: str, public: Path, tmp_path: Path, seeds: Callable[[int, int], range]
) -> None:
    """In the journal and in the witness of each participant. And nothing is written by who refuses."""
    rng, refused = np.random.default_rng(0), dict[str, int]()
    for stop in (7, 40):
        cast = AllOnDisk(public, protocol, tmp_path / str(stop), stop)
        for address, folder in cast.folders.items():
            right = cast.records(address)
            for path in (folder.journal, folder.witness):
                content = path.read_bytes()
                for place in rng.integers(0, len(content), len(seeds(6, 60))).tolist():
                    damaged = bytearray(content)
                    damaged[place] ^= 1 << int(rng.integers(8))
                    path.write_bytes(damaged)
                    try:
                        assert cast.records(address) == right
                    except StoreError:
                        refused[address] = refused.get(address, 0) + 1
                        assert path.read_bytes() == bytes(damaged)
                path.write_bytes(content)
            assert cast.records(address) == right
            cast.begin(address)
            cast.stores[address].close()
    assert set(refused) == set(cast.addresses)


@pytest.mark.parametrize("cut", ["shorter", "longer", "empty", "zeros"])
def test_a_file_of_another_length_is_refused_or_changes_nothing(cut: str, public: Path, tmp_path: Path) -> None:
    cast = AllOnDisk(public, "compute-nodes", tmp_path, 40)
    for address, folder in cast.folders.items():
        right = cast.records(address)
        for path in (folder.journal, folder.witness):
            content = path.read_bytes()
            for size in (1, len(content) // 2):
                changed = {
                    "shorter": content[:-size],
                    "longer": content + bytes(size),
                    "empty": b"",
                    "zeros": content[:-size] + bytes(size),
                }
                path.write_bytes(changed[cut])
                try:
                    assert cast.records(address) == right
                    assert cut != "empty"
                except StoreError:
                    assert path.read_bytes() == changed[cut]
                path.write_bytes(content)


def test_no_file_of_anyone_else_is_taken(public: Path, tmp_path: Path) -> None:
    """Journals and witnesses of all others, alone and as pairs; of the same participant in another run of the study, as
    a pair they are the stated limit."""
    cast, other = (AllOnDisk(public, "compute-nodes", tmp_path / name, 40) for name in ("mine", "theirs"))
    for address in ("party:0", cast.addresses[2], COORDINATOR):
        folder, sources = cast.folders[address], [*cast.folders.values(), other.folders[address]]
        mine = folder.journal.read_bytes(), folder.witness.read_bytes()
        for journal, witness in itertools.product(sources, repeat=2):
            pair = journal.journal.read_bytes(), witness.witness.read_bytes()
            if journal is witness and journal in (folder, other.folders[address]):
                continue
            folder.journal.write_bytes(pair[0])
            folder.witness.write_bytes(pair[1])
            with pytest.raises(StoreError):
                cast.open(address)
            assert (folder.journal.read_bytes(), folder.witness.read_bytes()) == pair
            folder.journal.write_bytes(mine[0])
            folder.witness.write_bytes(mine[1])
        cast.begin(address)
        cast.stores[address].close()


class Interrupted(Cast):
    """A coordinator whose disk fails at some operation. It begins again from what is there."""

    def __init__(self, public: Path, place: Path, operations: int, torn: float, lost: bool) -> None:
        method, keys, _ = STUDIES["turns"]
        super().__init__(
            small(public, method, "classification", keys=keys, summation="secagg+", colluding=1, attempts=2)
        )
        self.folder, self.cut, self._lost = Folder(place / "before"), False, lost
        self.opened: list[bytes] = []
        self.begin(FailingDisk(operations, self._fail, torn))

    def _fail(self, disk: FailingDisk) -> None:
        self.cut = True
        after = self.folder.folder.with_name("after")
        if self._lost:
            disk.survivors(self.folder.folder, after)
            after.mkdir(exist_ok=True)
        else:
            shutil.copytree(self.folder.folder, after)
        self.folder = Folder(after)
        raise PowerCut

    def begin(self, disk: Disk | None = None) -> None:
        self._waiting.clear()
        self.recording.answers.clear()
        keys = self._keys
        store = self.folder.open(keys.coordinator, self.study.digest(), COORDINATOR, disk=disk)
        self.coordinator = coordinator = Coordinator(
            self.method, keys.coordinator, keys.roster, plan=self._plan, noise_of=self._attempts.noise_of, store=store
        )
        opened = coordinator._opened

        def open_(request: Any) -> list[Envelope]:
            envelopes = opened(request)
            self.opened.append(coordinator.attempt)
            return envelopes

        coordinator._opened = open_  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("torn", "lost"), [pytest.param(0.0, False, marks=pytest.mark.long), (0.5, False), (0.0, True)]
)
def test_a_coordinator_whose_power_fails_at_any_write_opens_no_attempt_twice_and_forgets_none(
    torn: float, lost: bool, public: Path, tmp_path: Path, seeds: Callable[[int, int], range]
) -> None:
    """For every fifth operation of its disk; for all with --soak."""
    cuts, place = 0, itertools.count()
    for operations in range(0, 1000, max(1, 6 - len(seeds(1, 5)))):
        folder = tmp_path / str(next(place))
        try:
            cast = Interrupted(public, folder, operations, torn, lost)
        except (PowerCut, StoreError):
            continue  # The store was being made: nothing was asked.
        try:
            cast.run([])
        except PowerCut:
            cuts += 1
            cast.begin()
            cast.run([])
        if not cast.cut:
            break
        coordinator = cast.coordinator
        assert coordinator.release is not None
        assert sorted(set(cast.opened)) == cast.opened
        counted = sum(map(len, coordinator.totals.participation.values())) + sum(coordinator.attempts.failed.values())
        left = max(party._state.turns[name].spent for party in cast.parties.values() for name in party._state.turns)
        assert left <= counted <= cast.plan.rounds + 1
    assert cuts >= 2
