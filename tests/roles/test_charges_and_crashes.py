"""A charge comes before a vector leaves, and once, wherever the party is cut off or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cast import SCENES, STUDIES, study_of
from disks import Folder, PowerCut
from ledgered import Ledgered, expected, spent
from small_studies import KEY, federation_of, small
from unspoken.engines.actors import Actors, Vanishing
from unspoken.methods.planning import Plan
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import Event
from unspoken.privacy.ledger import Ledger, Run
from unspoken.roles.attempts import next_attempt
from unspoken.roles.messages import Ask
from unspoken.roles.party import Party
from unspoken.roles.store import MemoryStore, StoreError
from unspoken.summation.base import Envelope


class Watching(Ledger):
    """Notes when it was charged."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said

    def charge(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        super().charge(run, attempt, events)
        self.said.append("charged")


@pytest.mark.parametrize("kind", STUDIES)
def test_the_charge_comes_before_the_state_and_the_state_before_the_message(kind: str, public: Path) -> None:
    said: list[str] = []

    class Noting(MemoryStore):
        def replace(self, snapshot: bytes) -> None:
            super().replace(snapshot)
            said.append("kept")

    study = study_of(public, kind, STUDIES[kind][2][-1])
    actors = Ledgered(study)
    actors.ledgers[0], actors.stores["party:0"] = Watching(said), Noting()
    actors.parties["party:0"] = actors.party(0)
    step = actors.step

    def noted(to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        before = said.count("charged")
        envelopes = step(to, body, gone, sender)
        if said.count("charged") > before:
            assert envelopes
            said.append("sent")
        return envelopes

    actors.step = noted  # type: ignore[method-assign]
    actors.run([])
    # What uses no records costs nothing: common noise, and lists of tokens.
    charges = [place for place, what in enumerate(said) if what == "charged"]
    assert all(said[place : place + 3] == ["charged", "kept", "sent"] for place in charges)
    assert len(charges) == sum(planned.count for planned in actors.coordinator.plan.sums)


class Cutting(Ledger):
    """The power goes after every charge, once."""

    def charge(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        is_new = (run.identifier, attempt) not in self.account().charges
        super().charge(run, attempt, events)
        if is_new:
            raise PowerCut


HIDDEN = [(kind, protocol) for kind, protocol in SCENES if protocol != "ideal"]


@pytest.mark.parametrize(("kind", "protocol"), HIDDEN)
def test_a_crash_after_every_charge_charges_nothing_twice(
    kind: str, protocol: str, public: Path, runs: Callable[[int, int], int]
) -> None:
    """The party comes back from its store, is told the same again, and sends: in the midst of any protocol."""
    if not runs(HIDDEN.index((kind, protocol)) % 3 == 0, 1):
        pytest.skip("runs with --soak")
    actors = Ledgered(study_of(public, kind, protocol))
    actors.ledgers[0], actors.stores["party:0"] = Cutting(), MemoryStore()
    actors.parties["party:0"] = actors.party(0)
    step, cuts = actors.step, []

    def cut(to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        try:
            return step(to, body, gone, sender)
        except PowerCut:
            cuts.append(body)
            actors.parties[to] = actors.party(0)
            return step(to, body, gone, sender)

    actors.step = cut  # type: ignore[method-assign]
    actors.run([])
    plan = actors.coordinator.plan
    assert len(cuts) == len(actors.ledgers[0].account().charges) == sum(planned.count for planned in plan.sums)
    assert spent(actors.ledgers[0], plan) == pytest.approx(expected(plan), rel=1e-9)


@pytest.mark.parametrize("protocol", ["secagg+", "compute-nodes"])
def test_a_state_put_back_from_before_a_charge_is_recognised_by_the_ledger(protocol: str, public: Path) -> None:
    """Even where the witness was put back with it, and in the midst of the attempt that was then charged."""
    keys = {"function": "network", "steps": 4, "hidden": 3}
    study = small(public, "moments", "classification", keys=keys, summation=protocol, colluding=1)
    actors, copies = Ledgered(study), list[tuple[int, list[bytes]]]()
    step, store = actors.step, actors.stores["party:0"]

    def copying(to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        envelopes = step(to, body, gone, sender)
        if to == "party:0":
            copies.append((len(actors.ledgers[0].account().charges), store.read()))
        return envelopes

    actors.step = copying  # type: ignore[method-assign]
    actors.run([])
    in_all = copies[-1][0]
    assert in_all == sum(planned.count for planned in actors.coordinator.plan.sums) > 2
    assert len({charges for charges, _ in copies}) >= in_all
    for charges, records in copies:
        actors.stores["party:0"], forgotten = MemoryStore(records), in_all - charges
        if forgotten:
            told = "a vector" if forgotten == 1 else f"{forgotten} vectors"
            with pytest.raises(StoreError, match=f"is old: the ledger has charges for {told} that it has forgotten"):
                actors.party(0)
        else:
            actors.party(0)


def test_crashes_after_several_charges_do_not_make_a_state_old(public: Path) -> None:
    """The coordinator goes on without the party each time. The charges stay, and the state is still the newest."""
    study = small(public, "helmet", "classification", summation="compute-nodes", attempts=3)
    actors = Ledgered(study)
    actors.ledgers[0], actors.stores["party:0"] = Cutting(), MemoryStore()
    ask = next(decoded(body) for to, body in actors.coordinator.start() if to == "party:0")
    attempt = ask.attempt
    for number in range(1, 4):
        party, attempt = actors.party(0), next_attempt(attempt)
        actors._attempts._roots[attempt] = bytes(32)
        asked = msgspec.msgpack.encode(msgspec.structs.replace(ask, attempt=attempt))
        with pytest.raises(PowerCut):
            party.receive(asked)
        assert len(actors.ledgers[0].account().charges) == number
    assert actors.party(0).receive(asked), "the last of them is made again"
    assert len(actors.ledgers[0].account().charges) == 3


def decoded(body: bytes) -> Ask:
    return msgspec.msgpack.decode(body, type=Ask)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
import test_charges_and_crashes
test_charges_and_crashes.killed_everywhere(Path(sys.argv[1]))
"""


def killed_everywhere(folder: Path) -> None:
    """In a process of its own: kill -9 a party before and after its charge, and when its state is kept.

    The ledger's limit allows its vector once.
    """
    study = small(folder / "public.npz", "conv", "classification", delta=1e-5)
    actors = Actors(method_for(study), method_for(study).plan(), federation_of(study), SecretStream(KEY))
    ask = next(envelope.body for envelope in actors.coordinator.start() if envelope.to == "party:0")
    facts = (actors._method, actors._records[0], actors._keys.identity(0), actors._keys.roster)
    for point in ("before the charge", "after the charge", "after the state", "nowhere"):
        place = Folder(folder / point)
        Ledger(place.folder / "ledger").set_limit(study.epsilon, study.privacy.delta)
        for dies in (True, False):
            child = os.fork()
            if not child:
                _receive(facts, actors._plan, place, ask, point if dies else "nowhere")
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == (-signal.SIGKILL if dies and point != "nowhere" else 0), (point, dies, status)
            entries = len(Ledger(place.folder / "ledger").account().charges)
            assert entries == (0 if dies and point == "before the charge" else 1), (point, dies, entries)
        sent = sorted(place.folder.glob("sent*"))
        assert len(sent) == (2 if point == "nowhere" else 1), (point, sent)
        assert len({path.read_bytes() for path in sent}) == 1, point
    print("done")


def _receive(facts: Any, plan: Plan, place: Folder, ask: bytes, point: str) -> None:
    """A party in a new process takes a request. It is killed at some point, or writes down what it sends."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Dying(Ledger):
        def charge(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
            if point == "before the charge":
                die()
            super().charge(run, attempt, events)
            if point == "after the charge":
                die()

    party = Party(*facts, plan=plan, store=place.open(), ledger=Dying(place.folder / "ledger"))
    envelopes = party.receive(ask)
    if point == "after the state":
        die()
    (place.folder / f"sent{os.getpid()}").write_bytes(b"".join(body for _, body in envelopes))
    os._exit(0)


@pytest.mark.long
def test_a_party_that_is_killed_at_any_point_has_charged_its_vector_once(public: Path) -> None:
    root = Path(__file__).parent.parent
    (public.parent / "killed").mkdir()
    (public.parent / "killed" / "public.npz").write_bytes(public.read_bytes())
    command = [sys.executable, "-c", KILLED, str(public.parent / "killed"), str(root), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=root.parent)
    assert done.stdout.startswith("done"), done.stderr
