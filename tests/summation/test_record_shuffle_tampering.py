"""Tampering with a list of tokens is noticed, by name, and nobody accepts the list.

The adversary, written down: malicious parties and the coordinator see all lists, know their own secrets, and publish
what they like in their own names.
"""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffles import COUNTS, Run, Tamper, assert_nobody_accepts, malicious, opened, ordered
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, address_of
from unspoken.summation.mixnet import TOKEN_BYTES, onion_bytes, onion_key, split, wrap
from unspoken.summation.shuffle_course import (
    Announce,
    Confirm,
    Publish,
    Signed,
    Submit,
)


def victims_first(onions: list[bytes], run: Run) -> list[bytes]:
    """The list with an onion of party 2 in front, which the test knows by its marks."""
    marks = run.parties[2].state.marks[2]
    return sorted(onions, key=lambda onion: hashlib.sha256(onion).digest() not in marks)


def keys_after(run: Run, index: int) -> list[bytes]:
    return run.coordinator.state.keys[index + 1 :]


TAMPERINGS: dict[str, tuple[Tamper, str]] = {
    "drops one": (
        lambda onions, run: onions[1:],
        "party 1 published a list of .* bytes; 9 onions of 112 bytes were due",
    ),
    "adds one": (lambda onions, run: [*onions, wrap(bytes(16), keys_after(run, 1))[0]], "party 1 published a list"),
    "swaps one for a duplicate": (
        lambda onions, run: [onions[1], *onions[1:]],
        "list of party 1 has the same onion twice",
    ),
    "replaces one by its own": (
        lambda onions, run: [wrap(bytes(16), keys_after(run, 1))[0], *victims_first(onions, run)[1:]],
        "party 1 dropped or changed 1 of the 4 onions of party 2",
    ),
    "changes a byte": (
        lambda onions, run: [flipped(victims_first(onions, run)[0]), *victims_first(onions, run)[1:]],
        "party 1 dropped or changed 1 of the 4 onions of party 2",
    ),
    "cuts one short": (lambda onions, run: [onions[0][:-1], *onions[1:]], "party 1 published a list of 1007 bytes"),
    "publishes the list that it got": (
        lambda onions, run: [bytes(o) for o in split(run.parties[1].state.onions, 3)],
        "party 1 published a list of 1440 bytes; 9 onions of 112 bytes were due",
    ),
    "publishes the list of another session": (
        lambda onions, run: Run(run.counts, "other", "other").finish().lists()[2],
        r"party 1 dropped or changed \d of the \d onions",
    ),
    "publishes nothing": (lambda onions, run: [], "party 1 published a list of 0 bytes"),
}


def flipped(onion: bytes) -> bytes:
    return onion[:40] + bytes([onion[40] ^ 1]) + onion[41:]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_noticed_by_name_and_nobody_accepts_the_list(name: str) -> None:
    tamper, reason = TAMPERINGS[name]
    run = malicious(Run(), 1, tamper)
    assert run.aborted
    matching = [text for text in run.aborted.values() if pytest.raises(Aborted, match=reason).matches(Aborted(text))]
    assert matching, run.aborted
    assert_nobody_accepts(run)


@pytest.mark.parametrize("index", range(4))
def test_any_party_that_replaces_a_token_is_named_by_its_owner(index: int) -> None:
    """Also the last one, which sees the tokens in the clear."""

    def replace(onions: list[bytes], run: Run) -> list[bytes]:
        own = run.parties[index].state.marks[index + 1]
        other = next(i for i, onion in enumerate(onions) if hashlib.sha256(onion).digest() not in own)
        return [*onions[:other], wrap(bytes(16), keys_after(run, index))[0], *onions[other + 1 :]]

    run = malicious(Run((2, 2, 2, 2)), index, replace)
    assert any(f"party {index} dropped or changed 1 of the 2 onions" in text for text in run.aborted.values())
    assert_nobody_accepts(run)


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (
            lambda onions, run: [*onions[1:], onions[0][:-1]],
            "party 2 submitted .* bytes; its onions must have 208 each",
        ),
        (lambda onions, run: [onions[0], *onions[:-1]], "the same onion twice"),
        (
            lambda onions, run: [*onions[:-1], waiting_submission(run)[: onion_bytes(4)]],
            "list of all submissions has the same onion twice",
        ),
        (lambda onions, run: [*onions[:-1], bytes(onion_bytes(4))], "cannot be decrypted"),
    ],
    ids=["wrong length", "one onion twice", "a copy of another party's", "not an onion"],
)
def test_bad_submissions_end_the_run(tamper: Tamper, reason: str) -> None:
    run = malicious(Run(), 2, tamper, Submit)
    assert any(pytest.raises(Aborted, match=reason).matches(Aborted(text)) for text in run.aborted.values()), (
        run.aborted
    )
    assert_nobody_accepts(run)


def waiting_submission(run: Run) -> bytes:
    """The onions of the first party, on their way."""
    return next(bytes(opened(envelope.body).body) for envelope in run.queue if envelope.to == COORDINATOR)


def test_the_same_token_in_two_onions_is_found_before_it_is_published() -> None:
    def twice(onions: list[bytes], run: Run) -> list[bytes]:
        return [wrap(bytes(16), run.coordinator.state.keys)[0] for _ in onions]

    run = malicious(Run(), 0, twice, Submit)
    assert "two onions hold the same" in run.aborted[address_of(3)]
    assert_nobody_accepts(run)


def test_a_coordinator_that_shows_parties_different_lists_is_noticed() -> None:
    """It colludes with the last party, which signs two lists: each has all tokens of the one party that gets it."""
    run = Run((1, 1, 1))
    run.begin()
    while not (run.seen and isinstance(run.seen[-1], Publish) and run.seen[-1].sender == 1):
        run.deliver()
    for party in run.parties[:2]:
        party.step(msgspec.msgpack.encode(run.seen[-1]))
    last = run.parties[2]
    # What the last party signs goes on from the list before.
    last._take(msgspec.msgpack.encode(run.seen[-1]))
    confirmations = []
    for party in run.parties[:2]:
        shown = last._signed(Publish, party.tokens.tobytes() + SecretStream().take(2 * TOKEN_BYTES))
        confirmations += party.step(shown.body)
    for party, other in zip(run.parties[:2], reversed(confirmations), strict=True):
        with pytest.raises(Aborted, match="a different history"):
            party.step(other.body)
        with pytest.raises(Aborted):
            party.all_tokens()


@pytest.mark.parametrize("kind", [Announce, Submit, Publish, Confirm])
def test_messages_of_another_session_or_in_another_name_are_rejected(kind: type[Signed]) -> None:
    foreign = next(m for m in Run(study="other").finish().seen if isinstance(m, kind))
    run = Run()
    run.begin()
    while not any(isinstance(message, kind) for message in run.seen):
        assert_rejected(run, msgspec.msgpack.encode(foreign), "another study or another list")
        run.deliver()
    run.finish()
    own = next(message for message in run.seen if isinstance(message, kind))
    forged = msgspec.structs.replace(own, sender=(own.sender + 1) % len(COUNTS))
    again = Run()
    again.begin()
    while again.queue:
        assert_rejected(again, msgspec.msgpack.encode(forged), "signature|not due")
        again.deliver()
    assert again.coordinator.complete


def assert_rejected(run: Run, body: bytes, reason: str) -> None:
    for endpoint in (run.coordinator, *run.parties):
        before = endpoint.dump()
        with pytest.raises(Rejected, match=reason):
            endpoint.step(body)
        assert endpoint.dump() == before


def test_a_list_published_a_second_time_is_rejected() -> None:
    run = Run().finish()
    for message in run.seen:
        assert_rejected(run, msgspec.msgpack.encode(message), "not due")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (bytes(64), "party 1 announced an invalid key"),
        (b"short", "party 1 announced a key and a digest of 5"),
    ],
)
def test_keys_that_hide_nothing_are_refused(key: bytes, reason: str) -> None:
    run = Run()
    honest = run.parties[1]._signed
    run.parties[1]._signed = lambda kind, body: honest(kind, key if kind is Announce else body)
    run.finish()
    assert reason in " ".join(run.aborted.values())
    assert_nobody_accepts(run)


def test_a_key_that_is_another_partys_is_refused() -> None:
    run = Run()
    key, honest = onion_key(run.parties[0].state.layer_secret), run.parties[1]._signed
    run.parties[1]._signed = lambda kind, body: honest(kind, key + body[32:] if kind is Announce else body)
    run.finish()
    assert "the key of another party" in run.aborted[COORDINATOR]
    assert_nobody_accepts(run)


def test_the_seed_is_everyone_s_and_nobody_can_change_its_part_after_the_list_is_known() -> None:
    run = Run()
    run.finish()
    assert run.coordinator.seed() == run.parties[0].seed() == run.parties[2].seed()
    other = Run()
    other.parties[1].state.part_of_seed = bytes(32)
    other.finish()
    assert other.coordinator.seed() != run.coordinator.seed()
    cheating = Run()
    honest = cheating.parties[1]._signed
    cheating.parties[1]._signed = lambda kind, body: honest(kind, bytes(32) if kind is Confirm else body)
    cheating.finish()
    assert "part of the seed that does not match its commitment" in cheating.aborted[COORDINATOR]
    assert_nobody_accepts(cheating)


def test_without_one_party_there_is_no_list_and_its_name_is_known() -> None:
    run = Run()
    run.begin()
    while run.coordinator.waiting_for != [2]:
        run.deliver()
    run.aborted[address_of(2)] = "gone"
    run.finish()
    with pytest.raises(Aborted, match=r"parties \[2\] have not answered"):
        run.coordinator.tokens()


def test_an_endpoint_that_gave_up_stays_so_even_after_a_restart() -> None:
    run = malicious(Run(), 1, TAMPERINGS["replaces one by its own"][0])
    fresh = run.new_party(2, SecretStream())
    fresh.load(run.parties[2].dump())
    with pytest.raises(Aborted, match="party 1 dropped"):
        fresh.step(msgspec.msgpack.encode(run.seen[-1]))
    with pytest.raises(Aborted, match="party 1 dropped"):
        fresh.all_tokens()


def moments() -> list[tuple[bytes, str, bytes]]:
    """Every message of a run: its receiver's state before it, its receiver, its body."""
    run, taken = Run((2, 1, 1), "moments"), []
    run.begin()
    while run.queue:
        envelope = run.queue[0]
        taken.append((run.endpoint(envelope.to).dump(), envelope.to, envelope.body))
        run.deliver()
    return taken


MOMENTS = moments()


@given(data=st.data())
def test_damaged_messages_change_nothing_or_end_the_run(data: st.DataObject) -> None:
    """In particular an outsider, who cannot sign, can never end a run: all damage is rejected."""
    state, to, body = data.draw(st.sampled_from(MOMENTS))
    damaged = data.draw(damages(body))
    run = Run((2, 1, 1), "moments")
    endpoint = run.endpoint(to)
    endpoint.load(state)
    if damaged == body:
        return
    with pytest.raises(Rejected):
        endpoint.step(damaged)
    assert endpoint.dump() == state


def damages(body: bytes) -> st.SearchStrategy[bytes]:
    flips = st.tuples(st.integers(0, len(body) - 1), st.integers(1, 255)).map(
        lambda flip: body[: flip[0]] + bytes([body[flip[0]] ^ flip[1]]) + body[flip[0] + 1 :]
    )
    cuts = st.integers(1, len(body) - 1).map(lambda length: body[:length])
    longer = st.binary(min_size=1, max_size=8).map(lambda more: body + more)
    return st.one_of(flips, cuts, longer, st.binary(min_size=1, max_size=64))


@given(data=st.data(), kind=st.sampled_from([Announce, Submit, Publish, Confirm]), index=st.integers(0, 2))
def test_whatever_a_party_signs_nobody_accepts_a_list_without_all_honest_tokens(
    data: st.DataObject, kind: type[Signed], index: int
) -> None:
    run = Run((2, 1, 1), "signs")
    honest = run.parties[index]._signed

    def signed(of: type[Signed], body: bytes) -> Envelope:
        return honest(of, data.draw(damages(body)) if of is kind and body else body)

    run.parties[index]._signed = signed
    run.parties[index]._look_at = lambda found: None
    run.finish()
    others = [party for party in run.parties if party is not run.parties[index]]
    for endpoint in (run.coordinator, *others):
        if endpoint.complete:
            final = set(ordered(endpoint.all_tokens()))
            assert all(set(ordered(party.tokens)) <= final for party in others)
            assert len(final) == len(endpoint.all_tokens()) == sum(endpoint.counts)
