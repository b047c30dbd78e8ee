"""A party and a helper whose state is lost, stale, copied or opened twice.

Written down: the coordinator stops participants at any moment, and whoever operates a participant may put back an old
copy of its state. The coordinator must get one vector of a party under one attempt, and nothing from a state that is
old. Where the state cannot know better (both of its files are put back together), the attack succeeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adversaries.on_disk import HELPED, SCENE, SCENES, Crashing, OnDisk, decoded, recount
from cast import VICTIM, honest
from disks import PowerCut
from unspoken.methods.parameters import Refused
from unspoken.roles.file_store import FileStore
from unspoken.roles.messages import Ask
from unspoken.roles.store import StoreError
from unspoken.summation.base import Envelope

SLOW = [("votes", "tally"), ("tokens", "ideal")]
FEW = pytest.mark.parametrize(("kind", "protocol"), [SCENES[0], SCENES[2], SCENES[4]])


def crashes(
    public: Path, scene: tuple[str, str], address: str, place: Path, seeds: Callable[[int, int], range], **how: Any
) -> Iterator[Crashing]:
    """A whole run for some of the operations of the participant's disk, which fails there: for every fifteenth,
    every third with --soak, and for all with --soak-times 3 as well."""
    if scene in SLOW and not seeds(0, 1):
        pytest.skip("runs with --soak")
    for operations in range(0, 1000, max(1, 15 // len(seeds(1, 5)))):
        try:
            cast = Crashing(public, *scene, place / str(operations) / "before", address, operations=operations, **how)
        except (PowerCut, StoreError):
            continue  # The store was being made: there was nothing to lose.
        assert cast.totals() == honest(public, *scene)[0]
        cast.close()
        if not cast.failed:
            return
        yield cast


@pytest.mark.parametrize(("torn", "lost"), [(0.5, False), (0.0, True)])
@FEW
def test_a_power_cut_at_any_point_changes_no_total_and_sends_no_second_vector(
    kind: str, protocol: str, torn: float, lost: bool, public: Path, tmp_path: Path, seeds: Callable[[int, int], range]
) -> None:
    cuts = 0
    for cast in crashes(public, (kind, protocol), VICTIM, tmp_path, seeds, torn=torn, lost=lost):
        cuts += 1
        assert cast.said.bodies
        assert not cast.said.twice
    assert cuts >= 2


@HELPED
def test_a_power_cut_at_a_helper_changes_no_total(
    kind: str, protocol: str, public: Path, tmp_path: Path, seeds: Callable[[int, int], range]
) -> None:
    assert len(list(crashes(public, (kind, protocol), "helper", tmp_path, seeds))) >= 3


@FEW
def test_a_full_disk_ends_nothing_but_the_process(
    kind: str, protocol: str, public: Path, tmp_path: Path, seeds: Callable[[int, int], range]
) -> None:
    """When there is room again and the process has begun again, it goes on."""
    found = list(crashes(public, (kind, protocol), VICTIM, tmp_path, seeds, torn=0.5, power=False))
    assert len(found) >= 2


@SCENE
def test_a_stale_state_of_any_moment_is_refused(kind: str, protocol: str, public: Path, tmp_path: Path) -> None:
    """The journal as it was before the first message and after each, put back when all is over: the party is not made
    from it. So it opens no second kind of shares, sends no second vector under a mask, and seals nothing else under the
    same key. What came after its last answer, it may forget: that all is over."""
    cast, answers = OnDisk(public, kind, protocol, tmp_path), 0
    copies = [cast.folder.journal.read_bytes()]

    def copy(to: str, envelopes: list[Envelope]) -> None:
        nonlocal answers
        if to == VICTIM and cast.folder.journal.read_bytes() not in copies:
            copies.append(cast.folder.journal.read_bytes())
            answers = len(copies) if envelopes else answers

    cast.after = copy
    assert cast.totals() == honest(public, kind, protocol)[0]
    cast.close()
    assert answers >= 2
    for stale in copies[: answers - 1]:
        cast.folder.journal.write_bytes(stale)
        with pytest.raises(StoreError, match=r"is stale: .* its witness"):
            cast.open()
    for now in copies[answers - 1 :]:
        cast.folder.journal.write_bytes(now)
        cast.open()
        cast.close()


def test_a_copy_of_the_whole_state_makes_a_party_forget_what_it_spent(public: Path, tmp_path: Path) -> None:
    """The stated limit: journal and witness put back together, as by a snapshot of the machine. The party sends another
    vector for a turn that it had answered; but under a new attempt, with other noise, and never the same attempt."""
    cast = OnDisk(public, "turns", "compute-nodes", tmp_path / "disk")
    asks: list[Ask] = []
    cast.before = lambda to, body: asks.append(decoded(body)) if to == VICTIM and b"role/ask" in body else None
    shutil.copytree(tmp_path / "disk", tmp_path / "copy")
    cast.totals()
    with pytest.raises(Refused, match="more often than planned"):
        cast.role.receive(recount(cast, asks[-1]))
    cast.close()
    shutil.rmtree(tmp_path / "disk")
    shutil.copytree(tmp_path / "copy", tmp_path / "disk")
    cast.open()
    assert cast.role.receive(recount(cast, asks[-1]))
    cast.close()


def test_two_processes_with_one_state_are_refused(public: Path, tmp_path: Path) -> None:
    cast = OnDisk(public, "turns", "compute-nodes", tmp_path)
    with pytest.raises(StoreError, match="is in use by another process"):
        FileStore(cast.folder.journal, cast.folder.witness, cast._keys.identity(0), cast.study.digest(), VICTIM)
    cast.close()


def test_the_state_of_another_party_or_study_is_refused(public: Path, tmp_path: Path) -> None:
    cast, other = (OnDisk(public, "turns", "compute-nodes", tmp_path / name) for name in ("mine", "theirs"))
    for each in (cast, other):
        each.totals()
        each.close()
    for name in ("state", "keys"):
        shutil.rmtree(tmp_path / "mine" / name)
        shutil.copytree(tmp_path / "theirs" / name, tmp_path / "mine" / name)
    with pytest.raises(StoreError, match="of this participant in this study"):
        cast.open()
