"""A party and a helper against lost, stale and repeated state: what a lying coordinator gets by crashes and recounts.

Written down: the coordinator repeats, rewraps and withholds messages, opens attempts as it likes, runs the study again,
and stops participants at any moment. Whoever operates a participant may put back an old copy of its state. The
coordinator must get one vector of a party under one attempt, in no more attempts than planned, and nothing from a state
that is old. Where the state cannot know better (both of its files are put back together), the attack succeeds.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest

from cast import Cast, study_of
from disks import FailingDisk, Folder, PowerCut
from small_studies import small
from unspoken.engines.actors import Vanishing
from unspoken.methods.base import Cancel, Collect, Sum, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning.plan import FREE_ATTEMPTS
from unspoken.roles.contributor import Contributor
from unspoken.roles.file_store import Disk, FileStore
from unspoken.roles.messages import Ask, Assist, Carried, Over, ask_for
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.store import StoreError
from unspoken.roles.tries import next_attempt
from unspoken.summation.base import Aborted, Envelope, Rejected

VICTIM = "party:0"
SCENES = [
    ("turns", "secagg+"),
    ("turns", "compute-nodes"),
    ("messages", "compute-nodes"),
    ("votes", "tally"),
    ("tokens", "ideal"),
]
SLOW = [("votes", "tally"), ("tokens", "ideal")]
SCENE = pytest.mark.parametrize(("kind", "protocol"), SCENES)
FEW = pytest.mark.parametrize(("kind", "protocol"), [SCENES[0], SCENES[2], SCENES[4]])
HELPED = pytest.mark.parametrize(("kind", "protocol"), SCENES[1:4])


@cache
def honest(public: Path, kind: str, protocol: str) -> list[Any]:
    return Cast(study_of(public, kind, protocol)).totals()


def decoded(body: bytes) -> Any:
    return msgspec.msgpack.decode(body, type=Ask | Assist | Carried | Over)


class OnDisk(Cast):
    """A cast in which one participant's state is on disk."""

    def __init__(self, public: Path, kind: str, protocol: str, place: Path, address: str = VICTIM) -> None:
        super().__init__(study_of(public, kind, protocol))
        self.address = address if address == VICTIM else self.plan.helper_addresses[0]
        self.folder = Folder(place)
        self.open()

    @property
    def role(self) -> Any:
        return {**self.parties, **self.helpers}[self.address]

    def open(self, disk: Disk | None = None) -> None:
        """Make the participant from what is on its disk."""
        index = 0
        keys = self._keys.identity(index) if self.address == VICTIM else self._keys.helper(index)
        store = self.folder.open(keys, self.study.digest(), self.address, disk=disk)
        self.stores[self.address] = store
        if self.address == VICTIM:
            self.parties[self.address] = self.party(index)
        else:
            self.helpers[self.address] = self.helper(self.address)

    def close(self) -> None:
        self.stores[self.address].close()


class Crashing(OnDisk):
    """The participant's disk fails at some operation. It begins again from what is there, and gets all messages again
    since its last answer, as from any engine."""

    def __init__(self, *given: Any, operations: int, torn: float = 0.0, lost: bool = False, power: bool = True) -> None:
        self._operations, self._torn, self._lost, self._power = operations, torn, lost, power
        self.failed = False
        self.unanswered: list[bytes] = []
        self.vectors: dict[bytes, set[tuple[Envelope, ...]]] = {}
        super().__init__(*given)

    def open(self, disk: Disk | None = None) -> None:
        super().open(disk or (None if self.failed else FailingDisk(self._operations, self._fail, self._torn)))

    def _fail(self, disk: FailingDisk) -> None:
        self.failed = True
        if not self._power:
            raise OSError(28, "No space left on device")
        after = self.folder.folder.with_name("after")
        if self._lost:
            disk.survivors(self.folder.folder, after)
        else:
            shutil.copytree(self.folder.folder, after)
        self.folder = Folder(after)
        raise PowerCut

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        try:
            envelopes = super().step(to, body, gone, sender)
        except (PowerCut, OSError, StoreError):
            if self._power:
                # Nothing that a process does in the end is done.
                self.stores[self.address]._broken = "no power"  # type: ignore[attr-defined]
            self.close()
            self.open()
            envelopes = []
            for message in [*self.unanswered, body]:
                with contextlib.suppress(Rejected, Refused):
                    envelopes += super().step(to, message, gone, sender)
        if to == self.address:
            self.unanswered = [] if envelopes else [*self.unanswered, body]
        if to == self.address and to == VICTIM and self.role.has_sent:
            attempt = self.role._attempt
            if envelopes and self.role._state.current.asked == body:
                self.vectors.setdefault(attempt, set()).add(tuple(envelopes))
        return envelopes


def crashes(
    public: Path, scene: tuple[str, str], address: str, place: Path, seeds: Callable[[int, int], range], **how: Any
) -> Iterator[Crashing]:
    """A whole run for some of the operations of the participant's disk, which fails there: for every ninth, every
    third with --soak, and for all with --soak-times 3 as well."""
    if scene in SLOW and not seeds(0, 1):
        pytest.skip("runs with --soak")
    for operations in range(0, 1000, max(1, 9 // len(seeds(1, 3)))):
        try:
            cast = Crashing(public, *scene, place / str(operations) / "before", address, operations=operations, **how)
        except (PowerCut, StoreError):
            continue  # The store was being made: there was nothing to lose.
        assert cast.totals() == honest(public, *scene)
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
        assert cast.vectors
        assert all(len(sent) == 1 for sent in cast.vectors.values())
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
    """The journal as it was after every message, put back when all is over: the party is not made from it. So it opens
    no second kind of shares, sends no second vector under a mask, and seals nothing else under the same key."""
    cast, copies = OnDisk(public, kind, protocol, tmp_path), list[bytes]()

    def copy(to: str, envelopes: list[Envelope]) -> None:
        if to == VICTIM and cast.folder.journal.read_bytes() not in copies:
            copies.append(cast.folder.journal.read_bytes())

    cast.after = copy
    assert cast.totals() == honest(public, kind, protocol)
    cast.close()
    assert len(copies) >= 2
    now = copies.pop()
    for stale in copies:
        cast.folder.journal.write_bytes(stale)
        with pytest.raises(StoreError, match=r"is stale: .* its witness"):
            cast.open()
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


def recount(cast: Cast, ask: Ask) -> bytes:
    """The same request in a new attempt."""
    attempt = next_attempt(max(ask.attempt, cast.coordinator.attempt))
    cast._attempts._roots[attempt] = bytes(32)
    return msgspec.msgpack.encode(msgspec.structs.replace(ask, attempt=attempt))


class Asked:
    """All requests and protocol messages that a participant got in a run."""

    def __init__(self, cast: Cast, address: str = VICTIM) -> None:
        self.messages: list[Any] = []
        cast.before = lambda to, body: self.messages.append(decoded(body)) if to == address else None

    @property
    def asks(self) -> list[Any]:
        return [message for message in self.messages if isinstance(message, Ask | Assist)]


@SCENE
def test_a_second_run_gets_nothing(kind: str, protocol: str, public: Path) -> None:
    """The study is run again, with the same coordinator and the parties' stores: nobody sends anything."""
    cast = Cast(study_of(public, kind, protocol))
    cast.totals()
    again = Cast(study_of(public, kind, protocol))
    again._keys, again.stores = cast._keys, cast.stores
    again.parties = {address: again.party(int(address.removeprefix("party:"))) for address in cast.parties}
    envelopes = [envelope for envelope in again.coordinator.start() if envelope.to in again.parties]
    assert len(envelopes) == len(again.parties)
    for to, body in envelopes:
        with pytest.raises(Refused, match=r"more often than planned|is over"):
            again.parties[to].receive(body)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("kind", "protocol"), [SCENES[0], SCENES[4]])
def test_messages_of_an_earlier_attempt_are_worth_nothing_in_a_later_one(
    kind: str, protocol: str, restarted: bool, public: Path
) -> None:
    """A party without a past is asked in a new attempt, and gets all that it got in an old one: keys of those whose
    mask keys were opened since, with valid signatures, and shares that others made. As they came, and under the new
    attempt's name. No vector leaves."""
    cast = Cast(study_of(public, kind, protocol))
    asked = Asked(cast)
    cast.totals()
    old = [message for message in asked.messages if isinstance(message, Carried)]
    assert old
    cast.stores[VICTIM] = type(cast.stores[VICTIM])()
    victim = cast.party(0)
    victim.receive(message := recount(cast, asked.asks[0]))
    if restarted:
        victim = cast.party(0)
    attempt = decoded(message).attempt
    for carried in old:
        for label in (carried.attempt, attempt):
            with contextlib.suppress(Rejected, Aborted):
                victim.receive(msgspec.msgpack.encode(Carried(label, carried.body)))
    assert not victim.has_sent
    assert all(not turn.spent for turn in victim._state.turns.values())


@HELPED
def test_shares_of_an_earlier_attempt_are_worth_nothing_to_a_helper(kind: str, protocol: str, public: Path) -> None:
    """A helper that lost everything, or never took part, is told of a new attempt and gets the old one's shares."""
    cast = Cast(study_of(public, kind, protocol))
    address = cast.plan.helper_addresses[0]
    asked = Asked(cast, address)
    cast.totals()
    cast.stores[address] = type(cast.stores[address])()
    helper = cast.helper(address)
    helper.receive(message := recount(cast, asked.asks[0]))
    attempt, taken = decoded(message).attempt, 0
    for carried in (message for message in asked.messages if isinstance(message, Carried)):
        for label in (carried.attempt, attempt):
            with pytest.raises(Rejected):
                helper.receive(msgspec.msgpack.encode(Carried(label, carried.body)))
            taken += 1
    assert taken > 10


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_coordinator_that_counts_again_gets_as_many_vectors_as_planned(attempts: int, public: Path) -> None:
    """By the party's own count, whatever the coordinator says became of the others; also if it crashes in between."""
    study = small(public, "helmet", "classification", summation="compute-nodes", attempts=attempts)
    cast = Cast(study)
    ask, sent = _first_ask(cast), []
    for _ in range(attempts):
        sent.append(cast.parties[VICTIM].receive(recount(cast, ask)))
        ask = msgspec.structs.replace(ask, attempt=cast.parties[VICTIM]._attempt)
        cast.parties[VICTIM] = cast.party(0)
    assert len({envelopes[0].body for envelopes in sent}) == attempts
    for turn in (ask.turn, ask.turn + 1):
        with pytest.raises(Refused, match="more often than planned"):
            cast.parties[VICTIM].receive(recount(cast, msgspec.structs.replace(ask, turn=turn)))


def _first_ask(cast: Cast) -> Ask:
    """The first request to the victim, before it has got it."""
    for to, body in cast.coordinator.start():
        if to == VICTIM:
            return msgspec.msgpack.decode(body, type=Ask)
    raise AssertionError("The victim is not asked.")


def test_attempts_without_a_vector_are_free_and_few(public: Path) -> None:
    """Each shows the coordinator another choice of neighbours: it does not get to choose among many."""
    cast = Cast(study_of(public, "turns", "secagg+"))
    ask = _first_ask(cast)
    for _ in range(1 + FREE_ATTEMPTS):
        assert cast.parties[VICTIM].receive(recount(cast, ask))
        ask = msgspec.structs.replace(ask, attempt=cast.parties[VICTIM]._attempt)
        assert not cast.parties[VICTIM].has_sent
        cast.parties[VICTIM] = cast.party(0)
    with pytest.raises(Refused, match="was begun 16 times, which is as often as planned"):
        cast.parties[VICTIM].receive(recount(cast, ask))
    assert len(b"".join(cast.kept(VICTIM))) < 10_000


class Spoken(Cast):
    """One party, to which the coordinator says what it likes."""

    def ask(self, request: Any, turn: int = 0) -> list[Envelope]:
        ask = ask_for(request, turn, self.coordinator.attempt)
        message = recount(self, msgspec.structs.replace(ask, attempt=self.parties[VICTIM]._state.last))
        return self.parties[VICTIM].receive(message)


def test_a_message_under_prepared_noise_is_sent_once(public: Path) -> None:
    """CAPE: asked again under the same attempt, the same bytes; under another one, nothing, unless noise was prepared
    anew; and no more often than planned."""
    study = small(public, "cape", "statistics", summation="compute-nodes", attempts=2)
    cast = Spoken(study)
    name = cast.plan.sums[0].name
    with pytest.raises(Refused, match="no noise was prepared"):
        cast.ask(Collect(name))
    cast.ask(ZeroSum(name))
    first = cast.ask(Collect(name))
    asked = cast.parties[VICTIM]._last[0]
    assert cast.parties[VICTIM].receive(asked) == cast.party(0).receive(asked) == first
    with pytest.raises(Refused, match="no noise was prepared"):
        cast.ask(Collect(name))
    cast.ask(ZeroSum(name))
    assert cast.ask(Collect(name)) != first
    for request in (Collect(name), ZeroSum(name)):
        with pytest.raises(Refused, match=r"no noise was prepared|more often than planned|is over"):
            cast.ask(request)


def test_the_noise_of_a_message_is_added_up_once(public: Path) -> None:
    """CAPE, messages first: two sums of the same ê over different parties would differ by a party's ê. So another sum
    is of the noise of another message, and no more often than planned; after a crash, too."""
    keys = {"order": "messages-first"}
    cast = Spoken(small(public, "cape", "statistics", keys=keys, summation="compute-nodes", attempts=2))
    name = cast.plan.sums[0].name
    with pytest.raises(Refused, match="there is no message of turn 0"):
        cast.ask(Cancel(name))
    sent, sums = [], []
    for _ in range(2):
        sent.append(cast.ask(Collect(name)))
        sums.append(cast.ask(Cancel(name)))
        asked = cast.parties[VICTIM]._last[0]
        assert cast.parties[VICTIM].receive(asked) == cast.party(0).receive(asked) == sums[-1]
        cast.parties[VICTIM] = cast.party(0)
        with pytest.raises(Refused, match=r"there is no message of turn 0|more often than planned|is over"):
            cast.ask(Cancel(name))
    assert sent[0] != sent[1]
    assert sums[0] != sums[1]
    with pytest.raises(Refused, match="more often than planned"):
        cast.ask(Collect(name))


def test_noise_of_an_earlier_message_is_forgotten(public: Path) -> None:
    keys = {"order": "messages-first"}
    cast = Spoken(small(public, "cape", "statistics", keys=keys, summation="compute-nodes", attempts=2))
    name = cast.plan.sums[0].name
    cast.parties[VICTIM]._root_of = lambda attempt: os.urandom(32)
    cast.ask(Collect(name))
    (first,) = cast.parties[VICTIM]._state.prepared[name].values()
    cast.ask(Collect(name))
    (second,) = cast.parties[VICTIM]._state.prepared[name].values()
    assert first != second
    cast.ask(Cancel(name))
    assert not cast.parties[VICTIM]._state.prepared.get(name)
    assert second not in b"".join(cast.kept(VICTIM))


def test_a_list_of_tokens_serves_one_vector(public: Path) -> None:
    """Two sums over the same batch would not be two rounds: another attempt needs another list."""
    keys = {"sampling": "without-replacement"}
    study = small(public, "cross-silo", "regression", keys=keys, summation="ideal", attempts=2)
    cast, sums = Cast(study), list[Ask]()

    class Enough(Exception): ...

    def stop(to: str, envelopes: list[Envelope]) -> None:
        current = cast.parties[VICTIM]._state.current
        if to == VICTIM and current and current.spent and current.ask.kind == "sum":
            sums.append(current.ask)
            raise Enough

    cast.after = stop
    with pytest.raises(Enough):
        cast.totals()
    with pytest.raises(Refused, match="there is no list of tokens for turn 0"):
        cast.parties[VICTIM].receive(recount(cast, sums[0]))


def test_a_list_of_tokens_whose_seed_has_left_is_spent(public: Path) -> None:
    """Whoever confirms last knows the batch before it confirms, and may prevent it: not more often than planned."""
    keys = {"sampling": "without-replacement"}
    cast = Cast(small(public, "cross-silo", "regression", keys=keys, summation="ideal"))

    class Enough(Exception): ...

    def stop(to: str, envelopes: list[Envelope]) -> None:
        if to == VICTIM and cast.parties[VICTIM].has_sent:
            raise Enough

    cast.after = stop
    with pytest.raises(Enough):
        cast.totals()
    current = cast.parties[VICTIM]._state.current
    assert current is not None
    assert current.ask.kind == "shuffle"
    assert isinstance(cast.coordinator.request, Tokens)
    with pytest.raises(Refused, match=r"more often than planned|is over"):
        cast.parties[VICTIM].receive(recount(cast, current.ask))


def secrets_in(record: Any) -> Iterator[bytes]:
    """All byte strings of a state that are long enough to be a secret, those in dumped endpoints, too."""
    if isinstance(record, dict):
        record = [*record.keys(), *record.values()]
    if isinstance(record, list):
        for item in record:
            yield from secrets_in(item)
    elif isinstance(record, bytes) and len(record) >= 16:
        yield record
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            inner = msgspec.msgpack.decode(record, strict=False)
            if isinstance(inner, dict | list):
                yield from secrets_in(inner)


@pytest.mark.parametrize(
    ("kind", "protocol", "address"),
    [(*scene, VICTIM) for scene in SCENES] + [(*scene, "helper") for scene in SCENES[1:4]],
)
def test_a_finished_state_has_nothing_of_its_sums(
    kind: str, protocol: str, address: str, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever gets hold of the files and the identity when all is over finds no vector, mask, noise or key: nothing of
    all that was in the state on the way but the last attempt's name. Nor in the file as it is."""
    vectors: list[bytes] = []
    make = Contributor.vectors

    def watched(contributor: Contributor, *given: Any) -> Any:
        made = make(contributor, *given)
        vectors.extend(vector.tobytes() for vector in made)
        return made

    monkeypatch.setattr(Contributor, "vectors", watched)
    cast, seen, raw = OnDisk(public, kind, protocol, tmp_path, address), set[bytes](), set[bytes]()

    def look(to: str, envelopes: list[Envelope]) -> None:
        if to == cast.address:
            seen.update(secrets_in([msgspec.msgpack.decode(cast.kept(to)[0], strict=False)]))
            content = cast.folder.journal.read_bytes()
            raw.update(content[start : start + 16] for start in range(200, len(content) - 16, 16))

    cast.after = look
    cast.totals()
    (final,) = cast.kept(cast.address)
    cast.close()
    assert len(seen) > 5
    kept = [secret for secret in seen if secret in final]
    assert kept == [msgspec.msgpack.decode(final, strict=False)["last"]]
    assert vectors
    assert not any(vector in final for vector in vectors)
    content = cast.folder.journal.read_bytes()
    assert len(content) < 500
    assert not any(piece in content for piece in raw - {content[s : s + 16] for s in range(200, len(content), 16)})


def bytes_within(thing: Any) -> Iterator[bytes]:
    """All byte strings that a participant holds in memory, in whatever it refers to."""
    seen, waiting = set[int](), [thing]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, type | ModuleType):
            continue
        seen.add(id(item))
        if isinstance(item, bytes | bytearray | memoryview):
            yield bytes(item)
        elif isinstance(item, FunctionType):
            waiting += [cell.cell_contents for cell in item.__closure__ or ()]
        else:
            waiting += gc.get_referents(item)


@SCENE
def test_when_a_vector_has_left_nothing_in_memory_makes_its_noise(kind: str, protocol: str, public: Path) -> None:
    """The coordinator may never say that an attempt is over. Whoever reads the party's memory then finds neither the
    root of its secrets nor the streams that noise and batch came from, nor the key and the masks of ballots."""
    cast, looks = Cast(study_of(public, kind, protocol)), 0
    victim, roots = cast.parties[VICTIM], list[bytes]()
    draw = victim._root_of

    def drawn(attempt: bytes) -> bytes:
        roots.append(draw(attempt))
        return roots[-1]

    def look(to: str, envelopes: list[Envelope]) -> None:
        nonlocal looks
        current = victim._state.current
        if to != VICTIM or current is None or current.ask.kind == "shuffle" or not current.spent:
            return
        secrets = PartySecrets(roots[-1], 0)
        wanted = [roots[-1], *map(secrets.key, ("keys", "noise", "sampling"))]
        if protocol in ("tally", "compute-nodes"):
            stream = secrets.stream("keys")
            wanted += [stream.key() for _ in range(3)]
        held = list(bytes_within([victim._course, victim._state]))
        assert not [secret for secret in wanted if any(secret in content for content in held)]
        looks += 1

    victim._root_of = drawn
    cast.after = look
    cast.totals()
    assert looks


def test_what_a_helper_forgets_is_gone_from_its_store_before_the_coordinator_says_so(
    public: Path, tmp_path: Path
) -> None:
    """Whoever seizes a tallier that has opened the winners, or a node that has signed the survivors, with its
    identity, finds no key, no ballot and no share in what is on disk; a coordinator that never ends the attempt does
    not change that."""
    for kind, protocol in SCENES[1:4]:
        cast = OnDisk(public, kind, protocol, tmp_path / kind, "helper")
        seen, looks = set[bytes](), 0

        def look(to: str, envelopes: list[Envelope], cast: OnDisk = cast, seen: set[bytes] = seen) -> None:
            nonlocal looks
            if to != cast.address or cast.role._endpoint is None:
                return
            if not cast.role._endpoint.has_forgotten:
                seen.update(secret for secret in one_time_secrets(cast.role._endpoint.state) if len(secret) >= 16)
                return
            kept = b"".join(cast.kept(to))
            assert seen
            assert not [secret for secret in seen if secret in kept]
            looks += 1

        cast.after = look
        cast.totals()
        cast.close()
        assert looks


def one_time_secrets(state: Any) -> Iterator[bytes]:
    """A tallier's keys and parts of ballots; a node's shares."""
    if hasattr(state, "ballots"):
        yield from (state.secret, state.seed, state.root)
        yield from (part for _, part in state.ballots.values())
    else:
        yield from (share.plain for share in state.waiting.values())


def test_secrets_are_forgotten_when_a_party_gives_up(public: Path, tmp_path: Path) -> None:
    """An attempt that ends in an abort at the party leaves nothing behind, either."""
    cast = OnDisk(public, "turns", "secagg+", tmp_path)

    def failing(body: bytes) -> Any:
        raise Aborted("the protocol is given up")

    def give_up(to: str, body: bytes) -> None:
        if to == VICTIM and isinstance(decoded(body), Carried):
            assert len(cast.kept(VICTIM)[0]) > 500
            cast.role._course.step = failing
            with pytest.raises(Aborted, match="given up"):
                cast.role.receive(body)
            (final,) = cast.kept(VICTIM)
            assert len(final) < 500
            raise Enough

    class Enough(Exception): ...

    cast.before = give_up
    with pytest.raises(Enough):
        cast.totals()
    assert cast.role._attempt is None
    with pytest.raises(Rejected, match="not under way"):
        cast.role.receive(msgspec.msgpack.encode(Carried(cast.coordinator.attempt, memoryview(b"x"))))
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


def test_an_endpoint_that_forgot_its_root_draws_new_secrets(public: Path) -> None:
    """When a vector has left, the root is gone. What an endpoint draws after that is no constant that all know."""
    cast = Cast(study_of(public, "turns", "secagg+"))

    class Enough(Exception): ...

    def stop(to: str, envelopes: list[Envelope]) -> None:
        if to == VICTIM and cast.parties[VICTIM].has_sent:
            raise Enough

    cast.after = stop
    with pytest.raises(Enough):
        cast.totals()
    current: Any = cast.parties[VICTIM]._state.current
    assert current.root == b""
    streams = {cast.parties[VICTIM]._secrets(current).stream("keys").key() for _ in range(3)}
    assert len(streams) == 3
    assert isinstance(cast.coordinator.request, Sum)
