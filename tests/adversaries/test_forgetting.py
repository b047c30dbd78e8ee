"""What parties and helpers no longer need is gone from their stores and memory: noise, shares, one-time secrets."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest

from adversaries.on_disk import SCENE, SCENES, OnDisk, decoded
from cast import VICTIM, Cast, study_of
from unspoken.methods.base import Sum
from unspoken.methods.parameters import Refused
from unspoken.roles.contributor import Contributor
from unspoken.roles.messages import Carried
from unspoken.roles.secrets import PartySecrets
from unspoken.summation.base import Aborted, Envelope, Rejected


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


def test_the_shares_that_a_party_held_are_gone_from_its_store_when_it_has_opened_some(
    public: Path, tmp_path: Path
) -> None:
    """Whoever seizes enough parties after a sum that the coordinator never ended finds no share of another party: with
    those that were not opened, a vector could be unmasked."""
    cast, seen, looks = OnDisk(public, "turns", "secagg+", tmp_path), set[bytes](), 0

    def look(to: str, envelopes: list[Envelope]) -> None:
        nonlocal looks
        if to != VICTIM or cast.role._course is None:
            return
        state, kept = cast.role._course.endpoint.state, b"".join(cast.kept(to))
        if not state.answered:
            seen.update([state.cipher_secret, *state.inbox.values()])
            return
        assert len(seen) > len(cast.parties) - 1
        assert cast.role._course.endpoint._channel_key is None
        assert not [secret for secret in seen if secret in kept]
        looks += 1

    cast.after = look
    cast.totals()
    cast.close()
    assert looks


def test_a_party_that_has_opened_shares_repeats_that_after_a_crash_and_opens_nothing_else(
    public: Path, tmp_path: Path
) -> None:
    cast, heard, looks = OnDisk(public, "turns", "secagg+", tmp_path), list[bytes](), 0
    cast.before = lambda to, body: heard.append(body) if to == VICTIM else None

    def crash(to: str, envelopes: list[Envelope]) -> None:
        nonlocal looks
        if to != VICTIM or cast.role._course is None or not cast.role._course.endpoint.state.answered:
            return
        cast.close()
        cast.open()
        before = cast.kept(VICTIM)
        for body in heard[:-1]:
            with pytest.raises((Refused, Rejected)):
                cast.role.receive(body)
        carried = decoded(heard[-1])
        other = msgspec.msgpack.encode(Carried(carried.attempt, memoryview(bytes(carried.body) + b"0")))
        with pytest.raises(Rejected, match="its part of the sum is over"):
            cast.role.receive(other)
        assert cast.role.receive(heard[-1]) == envelopes
        assert cast.kept(VICTIM) == before
        looks += 1

    cast.after = crash
    cast.totals()
    cast.close()
    assert looks == 2


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


def test_an_endpoint_that_forgot_its_root_draws_new_secrets(public: Path) -> None:
    """When a vector has left, the root is gone. What an endpoint draws after that is no constant that all know."""
    cast = Cast(study_of(public, "turns", "secagg+"))
    cast.run_until(VICTIM, lambda envelopes: cast.parties[VICTIM].has_sent)
    current: Any = cast.parties[VICTIM]._state.current
    assert current.root == b""
    streams = {cast.parties[VICTIM]._secrets(current).stream("keys").key() for _ in range(3)}
    assert len(streams) == 3
    assert isinstance(cast.coordinator.request, Sum)
