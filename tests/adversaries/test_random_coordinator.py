"""A coordinator that chooses its moves at random, guided by what parties accept: nothing it does breaks the promise.

A move is any message to any party, with lists chosen at random or from those that others accepted, old messages of this
and of another attempt, and restarts of parties from their own states. The seed of a run that breaks something is in
the failure: `play(SEED)` plays it again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from adversaries.lying import Begin, DealtShares, Introduce, Stage, Survivors, flags, session
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Message, Rejected
from unspoken.summation.graph import ChosenGraph, Degree

MOVES = 160


class RandomCoordinator:
    """Plays one attempt, with another one beside it whose messages it may use as well."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.parties = int(self.rng.integers(5, 9))
        colluding = int(self.rng.integers(0, 3))
        dropouts = int(self.rng.integers(0, (self.parties - colluding + 1) // 2))
        keys = SecretStream().key()
        schedule = NoiseSchedule.plan(self.parties, max(colluding, 1), dropouts, 1e6, 1.0)
        chosen = ChosenGraph(self.parties, Degree(self.parties - 2, colluding + 1))
        graph = chosen if self.rng.random() < 0.3 else None
        self.colluders = set(self.rng.permutation(self.parties)[:colluding].tolist())
        self.stage, self.other = (
            Stage(
                session(self.parties, colluding, dropouts, schedule=schedule),
                self.colluders,
                graph=graph,
                keys=SecretStream(keys),
            )
            for _ in range(2)
        )
        self.heard: list[tuple[int, Message]] = []
        self.lists: list[bytes] = [self.stage.listed(set(range(self.parties)))]
        self.accepted = 0

    def play(self) -> None:
        self.other.set_up()
        # Often it begins as an honest one would: deeper states are reached that way.
        if self.rng.random() < 0.7:
            for party in range(self.parties):
                self.stage.say(party, self.stage.introduction(party))
        if self.rng.random() < 0.7:
            for party in range(self.parties):
                self.stage.say(party, self.stage.relay(party))
        for _ in range(MOVES):
            self.move()

    def move(self) -> None:
        party = int(self.rng.integers(0, self.parties))
        if self.rng.random() < 0.03:
            self.restart(party)
        elif self.heard and self.rng.random() < 0.1:
            _, message = self.heard[int(self.rng.integers(0, len(self.heard)))]
            self.say(party, message)
        else:
            self.say(party, self.message(party))

    def say(self, party: int, message: Message) -> None:
        before = self.stage.parties[party].state.dealers, self.stage.parties[party].state.agreed
        answer = self.stage.say(party, message)
        self.heard.append((party, message))
        state = self.stage.parties[party].state
        if answer is not None or before != (state.dealers, state.agreed):
            self.accepted += 1
            # What one party accepted, others may accept as well.
            self.lists += [listed for listed in (state.dealers, state.agreed) if listed]

    def restart(self, party: int) -> None:
        """A new process with the state of the old one."""
        fresh = self.stage.simulated.party(party, SecretStream())
        fresh.load(self.stage.parties[party].dump())
        self.stage.parties[party] = fresh  # type: ignore[assignment]

    def listed(self) -> bytes:
        if self.rng.random() < 0.6:
            return self.lists[int(self.rng.integers(0, len(self.lists)))]
        keep = self.rng.random(self.parties) < self.rng.choice([0.5, 0.8, 0.95])
        return self.stage.listed(set(np.flatnonzero(keep).tolist()))

    def some(self) -> set[int]:
        return set(np.flatnonzero(flags(self.listed(), self.parties)).tolist())

    def message(self, party: int) -> Message:
        stage = self.stage if self.rng.random() < 0.95 else self.other
        match int(self.rng.choice([0, 1, 2, 3, 4, 4, 4, 5])):
            case 0:
                return stage.introduction(party, self.some() | {party})
            case 1:
                return self.garbled(stage.relay(party, self.some()))
            case 2:
                return Begin(self.listed())
            case 3:
                return Survivors(self.listed())
            case 4:
                return stage.certificate(stage.parties[party].state.dealers or self.listed(), self.listed())
            case _:
                return Introduce([], []) if self.rng.random() < 0.5 else DealtShares([party], [b""], b"")

    def garbled(self, relay: DealtShares) -> DealtShares:
        """Some shares are no shares."""
        sealed = [part if self.rng.random() < 0.9 else self.rng.bytes(len(part)) for part in relay.sealed]
        return msgspec.structs.replace(relay, sealed=sealed)


def check(play: RandomCoordinator, seed: int) -> None:
    """What must hold, whatever was said."""
    stage, honest = play.stage, set(play.stage.honest)
    least = stage.agreed.least_survivors
    opened = {
        (stage.parties[party].state.dealers, survivors) for party, survivors, _ in stage.opened if party in honest
    }
    assert len(opened) <= 1, f"seed {seed}: shares were opened for two pairs of lists"
    for dealers, survivors in opened:
        there = flags(survivors, play.parties)
        assert there.sum() >= least, f"seed {seed}: shares were opened for too few survivors"
        assert (there <= flags(dealers, play.parties)).all(), f"seed {seed}: survivors that are no dealers"
    assert not stage.known_keys() & stage.known_seeds(), f"seed {seed}: both kinds of shares of a party were opened"
    statements: dict[int, set[bytes]] = {}
    for party, _, survivors in stage.signatures:
        statements.setdefault(party, set()).add(survivors)
    assert all(len(statements[party]) == 1 for party in honest & statements.keys()), f"seed {seed}: two statements"
    if stage.graph is None:
        for group in stage.sums():
            assert len(group) >= least - len(play.colluders), f"seed {seed}: a sum of {len(group)} opened"
    assert len(stage.sums()) <= 1 or stage.graph is not None, f"seed {seed}: two sums opened"


def play(seed: int) -> RandomCoordinator:
    coordinator = RandomCoordinator(seed)
    try:
        coordinator.play()
    except (Rejected, Aborted) as error:
        raise AssertionError(f"seed {seed}: {error!r} came out of a party that should have refused") from error
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    check(coordinator, seed)
    return coordinator


def test_no_sequence_of_lies_breaks_the_promise(seeds: Callable[[int, int], range]) -> None:
    """Seen: in one run of four or five a sum opens, and a run has about 25 messages that parties accept."""
    played = [play(seed) for seed in seeds(8, 100)]
    assert sum(bool(each.stage.opened) for each in played) > 0.05 * len(played), (
        "the moves are too wild to reach the end"
    )
    assert sum(each.accepted for each in played) > 5 * len(played)


def test_the_check_notices_parties_that_sign_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a party that forgets what it signed, two lists are opened before long."""
    from unspoken.summation import secagg_party

    def forgetful(self: secagg_party.SecAggParty, request: Survivors) -> object:
        self.state.agreed = b""
        return honest(self, request)

    honest = secagg_party.SecAggParty._agree
    monkeypatch.setattr(secagg_party.SecAggParty, "_agree", forgetful)
    with pytest.raises(AssertionError, match="seed"):
        _ = [play(seed) for seed in range(60)]
