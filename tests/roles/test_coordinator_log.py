"""A coordinator that is stopped at any moment goes on: no attempt has two totals, and none is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cast import STUDIES, Cast
from disks import ME, Folder, PowerCut
from small_studies import small
from unspoken.engines.actors import Vanishing
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.store import MemoryStore, StoreError
from unspoken.study import Study
from unspoken.summation.base import Aborted, Envelope, Rejected

SCENES = [("turns", "secagg+"), ("turns", "compute-nodes"), ("messages", "compute-nodes"), ("votes", "tally")]
SCENES += [("tokens", "ideal")]


def study_of(public: Path, kind: str, protocol: str, attempts: int) -> Study:
    method, keys, _ = STUDIES[kind]
    task = "regression" if kind == "tokens" else "classification"
    return small(public, method, task, keys=keys, summation=protocol, colluding=1, attempts=attempts)


class Stopping(MemoryStore):
    """The power is cut at a `sync`, before it or after it."""

    def __init__(self, syncs: int, after: bool) -> None:
        super().__init__()
        self.left, self._after = syncs, after
        self._synced: list[bytes] = []

    def sync(self) -> None:
        self.left -= 1
        if self.left == 0 and not self._after:
            raise PowerCut
        self._synced = list(self._records)
        if self.left == 0:
            raise PowerCut

    def read(self) -> list[bytes]:
        self._records = list(self._synced)
        return super().read()


class Restarted(Cast):
    """A cast whose coordinator begins again when it was stopped."""

    def __init__(self, study: Study, store: MemoryStore) -> None:
        super().__init__(study)
        self.store = store
        self.opened: list[bytes] = []
        self.sent: dict[bytes, set[str]] = {}  # type: ignore[assignment]
        self.answered: list[bytes] = []
        self.begin()

    def begin(self) -> None:
        """The coordinator's process begins, and nothing is on its way any more."""
        self._waiting.clear()
        self.recording.answers.clear()
        keys = self._keys
        self.coordinator = coordinator = Coordinator(
            self.method,
            keys.coordinator,
            keys.roster,
            plan=self._plan,
            noise_of=self._attempts.noise_of,
            store=self.store,
        )
        keep, opened = coordinator.log.answer, coordinator._opened

        def answer(*given: Any) -> None:
            self.answered.append(coordinator.attempt)
            keep(*given)

        def open_(request: Any) -> list[Envelope]:
            envelopes = opened(request)
            self.opened.append(coordinator.attempt)
            return envelopes

        coordinator.log.answer = answer  # type: ignore[method-assign]
        coordinator._opened = open_  # type: ignore[method-assign]

    def deliver(self, gone: Vanishing) -> None:
        while self._waiting and not self.coordinator.complete:
            sender, (to, body) = self._waiting.popleft()
            with suppress(Rejected):
                self.send(self.step(to, body, gone, sender), to)
            if to in self.parties and self.parties[to].sent and self.parties[to].has_sent:
                request = type(self.coordinator.request).__name__
                if request not in ("ZeroSum", "Cancel", "Tokens"):
                    self.sent.setdefault(self.coordinator.attempt, set()).add(to)
            if to != "coordinator":
                self.coordinator.passed(sender, to, body)

    def go(self) -> int:
        """To the end, however often it is stopped; the number of times that it was."""
        for stops in range(100):
            try:
                self.run([])
                return stops
            except PowerCut:
                self.begin()
        raise AssertionError("It never ends.")


def records(public: Path, kind: str, protocol: str) -> int:
    """The number of records that a whole run keeps."""
    store = MemoryStore()
    Restarted(study_of(public, kind, protocol, 2), store).go()
    return len(store.read())


@pytest.mark.parametrize(("kind", "protocol"), SCENES)
def test_wherever_it_is_stopped_it_goes_on_and_forgets_no_attempt(
    kind: str, protocol: str, public: Path, runs: Callable[[int, int], int]
) -> None:
    study, most = study_of(public, kind, protocol, 2), records(public, kind, protocol)
    for place in range(1, most + 1, runs(max(1, most // 2), 1)):
        for after in (False, True):
            cast = Restarted(study, Stopping(place, after))
            assert cast.go() == 1
            coordinator = cast.coordinator
            assert coordinator.release is not None
            assert sorted(set(cast.opened)) == cast.opened
            assert sorted(set(cast.answered)) == cast.answered
            # What the certificate counts is no less than what has left, and more only by what may have.
            counted = sum(map(len, coordinator.totals.participation.values())) + sum(
                coordinator.attempts.failed.values()
            )
            assert 0 <= counted - len(cast.sent) <= 1
            assert counted <= cast.plan.rounds + 1
            again = Coordinator(
                cast.method, cast._keys.coordinator, cast._keys.roster, plan=cast.plan, store=cast.store
            )
            assert again.release is not None
            assert again.release.to_json() == coordinator.release.to_json()
            assert again.totals.participation == coordinator.totals.participation
            assert (again.attempts.failed, again.is_over) == (coordinator.attempts.failed, True)


def test_answers_are_recalled_bit_by_bit(public: Path) -> None:
    cast = Restarted(study_of(public, "turns", "secagg+", 1), MemoryStore())
    cast.go()
    first = list(cast.recording.answers)
    cast.begin()
    assert cast.recording.answers == first
    assert {to for to, _ in cast.coordinator.start()} == set(cast.parties)


def test_without_another_attempt_it_gives_up_by_name_if_a_vector_may_have_left(public: Path) -> None:
    for place, after, is_free in ((1, True, True), (2, False, True), (2, True, False), (3, False, False)):
        cast = Restarted(study_of(public, "turns", "secagg+", 1), Stopping(place, after))
        if is_free:
            assert cast.go() == 1
            continue
        with pytest.raises(Aborted, match=r"the coordinator was stopped in mid-attempt\. Vectors may have left once"):
            cast.go()
        assert {to for to, _ in cast.coordinator.end()} == set(cast.parties)


def test_stops_in_the_setup_are_counted(public: Path) -> None:
    cast = Restarted(study_of(public, "turns", "secagg+", 1), MemoryStore())
    for _ in range(FREE_ATTEMPTS + 1):
        cast.coordinator.start()
        cast.begin()
    with pytest.raises(Aborted, match="cost no epsilon"):
        cast.coordinator.start()
    assert len(set(cast.opened)) == FREE_ATTEMPTS + 1


def test_a_state_of_another_study_or_another_version_is_refused(public: Path, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    store = folder.open(role="coordinator")
    cast = Restarted(study_of(public, "turns", "secagg+", 1), MemoryStore())
    cast.store = store  # type: ignore[assignment]
    cast.begin()
    cast.coordinator.start()
    store.close()
    with pytest.raises(StoreError, match="another identity, study or role"):
        folder.open(ME, "another study", "coordinator")
    cast = Restarted(study_of(public, "messages", "compute-nodes", 1), MemoryStore())
    cast.store = folder.open(role="coordinator")  # type: ignore[assignment]
    with pytest.raises(StoreError, match="was written by another version"):
        cast.begin()
