"""A coordinator that asks one party for anything, in any order and attempt, while the party crashes and its disk fails.

Whatever it asks for, in the end the party has sent no more vectors than planned, its ledger has exactly those that left
(and those that a crash took before they left), and no state is taken that has forgotten one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cast import VICTIM
from ledgered import Ledgered, spent
from small_studies import public_file, small
from unspoken.engines.actors import Vanishing
from unspoken.methods.base import PartyRequest
from unspoken.methods.parameters import Refused
from unspoken.privacy.ledger import LedgerError
from unspoken.roles.attempts import next_attempt
from unspoken.roles.messages import Ask, Carried, Kind, Over, request_of
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore, StoreError
from unspoken.summation.base import Aborted, Envelope, Rejected

STEPS: dict[str, Any] = {"function": "network", "steps": 2, "hidden": 3}
STUDIES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "turns": ("moments", "classification", STEPS, "compute-nodes"),
    "noise first": ("cape", "classification", STEPS, "compute-nodes"),
    "messages first": ("cape", "classification", STEPS | {"order": "messages-first"}, "compute-nodes"),
    "votes": ("voting", "classification", {}, "tally"),
    "samples": ("cross-silo", "regression", {}, "compute-nodes"),
}
KINDS: tuple[Kind, ...] = ("sum", "vote", "collect", "prepare", "cancel", "shuffle")


@cache
def actors(kind: str, attempts: int) -> tuple[Ledgered, list[Ask]]:
    """All participants of a study, and what an honest coordinator asks the victim for."""
    method, task, keys, protocol = STUDIES[kind]
    public = public_file(Path(tempfile.mkdtemp(prefix="asks-")))
    made, asks = Ledgered(small(public, method, task, keys=keys, summation=protocol, attempts=attempts)), list[Ask]()
    step = made.step

    def noted(to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        message = msgspec.msgpack.decode(body, type=Ask | Carried | Over) if to == VICTIM else None
        asks.extend([message] if isinstance(message, Ask) else [])
        return step(to, body, gone, sender)

    made.step = noted  # type: ignore[method-assign]
    made.run([])
    return made, asks


class FailingStore(MemoryStore):
    """Takes nothing while its disk is full. Notes are taken, so that the disk fails after the charge."""

    is_full = False

    def put(self, snapshot: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().put(snapshot)


class Asked:
    """One party, and all that it is asked."""

    def __init__(self, seed: int) -> None:
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.attempts = int(self.rng.integers(1, 4))
        self.kind = str(self.rng.choice(list(STUDIES)))
        self.cast, self.asks = actors(self.kind, self.attempts)
        self.plan, self.store = self.cast.coordinator.plan, FailingStore()
        self.ledger = self.cast._new()
        self.begin_again()
        self.attempt, self.crashed = next_attempt(), set[bytes]()
        self.left: dict[bytes, str] = {}
        """The total that each vector was for, by attempt"""
        self.copies: list[tuple[int, list[bytes]]] = []

    def begin_again(self) -> None:
        keys = self.cast._keys.identity(0), self.cast._keys.roster
        facts = (self.cast._method, self.cast._records[0], *keys)
        self.party = Party(*facts, plan=self.plan, store=self.store, ledger=self.ledger)

    def play(self) -> Asked:
        moves = {self.begin_again: 0.12, self.put_back: 0.03, self.end: 0.1, self.babble: 0.05, self.ask: 0.7}
        for _ in range(int(self.rng.integers(10, 60))):
            self.copies.append((len(self.ledger.attempts(self.party.run)), self.store.read()))
            move: Any = self.rng.choice(np.array(list(moves), dtype=object), p=list(moves.values()))
            move()
            self.check()
        self.check_total()
        return self

    def put_back(self) -> None:
        """An old copy of the whole state is refused if the ledger was charged since, and only then."""
        now, (charges, records) = self.store.read(), self.copies[int(self.rng.integers(len(self.copies)))]
        self.store._records, is_taken = list(records), True
        try:
            self.begin_again()
        except StoreError:
            is_taken = False
        assert is_taken == (charges == len(self.ledger.attempts(self.party.run))), f"seed {self.seed}: an old state"
        self.store._records = now
        self.begin_again()

    def end(self) -> None:
        self.party.receive(msgspec.msgpack.encode(Over(self.party._attempt or self.attempt)))

    def babble(self) -> None:
        said = Carried(self.party._attempt or self.attempt, memoryview(os.urandom(9)))
        with contextlib.suppress(Rejected, Aborted):
            self.party.receive(msgspec.msgpack.encode(said))

    def ask(self) -> None:
        """Something that the plan has, or nearly; mostly in a new attempt. Sometimes the disk fails."""
        ask, rng = self.asks[int(self.rng.integers(len(self.asks)))], self.rng
        self.attempt = next_attempt(self.attempt) if rng.random() < 0.9 else self.attempt
        changes: dict[str, Any] = {"attempt": self.attempt}
        changes |= {"turn": int(rng.integers(-1, 4))} if rng.random() < 0.3 else {}
        changes |= {"kind": str(rng.choice(KINDS))} if rng.random() < 0.1 else {}
        ask, self.store.is_full = msgspec.structs.replace(ask, **changes), bool(rng.random() < 0.1)
        try:
            if self.party.receive(msgspec.msgpack.encode(ask)) and isinstance(request_of(ask), PartyRequest):
                self.left.setdefault(self.attempt, ask.name)
        except (Refused, Rejected):
            pass
        except (OSError, LedgerError):
            self.crashed.add(self.attempt)
            self.store.is_full = False
            self.begin_again()
        self.store.is_full = False

    def check(self) -> None:
        charged = {bytes.fromhex(attempt) for attempt in self.ledger.attempts(self.party.run)}
        assert self.left.keys() <= charged, f"seed {self.seed}: a vector left that was not charged"
        assert charged - self.left.keys() <= self.crashed, f"seed {self.seed}: a vector was charged that did not leave"
        sent = Counter(self.left.values())
        assert sent == self.party.sent, f"seed {self.seed}: the party counts otherwise"
        for planned in self.plan.sums:
            assert sent[planned.name] <= planned.count * self.attempts, f"seed {self.seed}: more vectors than planned"

    def check_total(self) -> None:
        """What left costs no more than planned. (What a crash took may come on top.)"""
        if len(self.left) == len(self.ledger.attempts(self.party.run)) > 0:
            most = self.plan.guarantee.epsilon * (1.0 + 1e-4)
            assert spent(self.ledger, self.plan) <= most, f"seed {self.seed}: more was spent than planned"


def play(seed: int) -> Asked:
    return Asked(seed).play()
