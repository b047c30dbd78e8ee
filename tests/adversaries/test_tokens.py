"""Parties that flood or spoil a list of tokens.

Numbers of tokens are within the plan's bounds before anyone works with them. Who spoils a list is named where that can
be known.
"""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from adversaries.batches import fixed_batches
from adversaries.lying import LOW_ORDER
from shuffles import Run, assert_nobody_accepts, malicious, opened
from unspoken.methods.cross_silo import CrossSilo
from unspoken.noise.stream import SecretStream
from unspoken.summation import shuffle_course
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, SignedStatement, address_of
from unspoken.summation.evidence import convicted
from unspoken.summation.keys import verify
from unspoken.summation.mixnet import onion_bytes, wrap
from unspoken.summation.shuffle_course import Announce, Confirm, Publish, Signed, Submit

BOUNDED = {"least": 1, "most": 4}


def assert_shown(run: Run, who: int) -> None:
    """The coordinator blames this party, with something that it signed."""
    state = run.coordinator.state
    assert state.blamed == (address_of(who),)
    assert state.evidence
    for each in state.evidence:
        assert isinstance(each, SignedStatement)
        assert each.signer == address_of(who)
        verify(run.keys.roster.parties[who], each.statement, each.signature, each.signer)


@pytest.mark.parametrize("count", [0, 5, 9])
def test_a_party_with_more_or_fewer_tokens_than_planned_is_named_before_anyone_works(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it signed has the length, so that anyone can see it. No onion is hashed or opened."""
    run = Run((2, 4, 1, 2), **BOUNDED)
    monkeypatch.setattr(shuffle_course, "digests", lambda onions: pytest.fail("an onion was looked at"))
    malicious(run, 2, lambda onions, run: [bytes([number] * onion_bytes(4)) for number in range(count)], Submit)
    assert run.aborted[COORDINATOR] == f"party 2 submitted {count} onions; 1 to 4 are allowed"
    assert_shown(run, 2)
    assert f"/{count * onion_bytes(4)}/".encode() in run.coordinator.state.evidence[0].statement
    assert list(convicted(run.protocol, run.coordinator.state.evidence)) == [address_of(2)]
    assert_nobody_accepts(run)


@pytest.mark.parametrize("count", [1, 4])
def test_the_planned_bounds_themselves_are_allowed(count: int) -> None:
    run = Run((count, 4, 1), **BOUNDED).finish()
    assert run.coordinator.counts == (count, 4, 1)


@pytest.mark.parametrize("count", [0, 5])
def test_a_party_does_not_begin_with_tokens_beyond_the_bounds(count: int) -> None:
    with pytest.raises(ValueError, match=f"Expected 1 <= count={count} <= 4"):
        Run((2, count), **BOUNDED)


def test_bounds_are_those_of_the_study() -> None:
    study = fixed_batches(records=3, max_records=7)
    session = CrossSilo(study).plan().shuffle(0).session
    assert (session.least, session.most) == (3, 7)


def test_what_is_larger_than_any_message_is_rejected_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run((2, 4, 1, 2), **BOUNDED)
    monkeypatch.setattr(shuffle_course, "decode", lambda incoming, kind: pytest.fail("a message was decoded"))
    for endpoint in (run.coordinator, *run.parties):
        before = endpoint.dump()
        with pytest.raises(Rejected, match="bytes came where"):
            endpoint.step(bytes(run.protocol.session.largest_message + 1))
        assert endpoint.dump() == before


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_no_message_is_larger_than_stated(parties: int) -> None:
    """If all parties have as many tokens as they may, the longest message is as long as stated."""
    run = Run((4,) * parties, **BOUNDED).finish()
    longest = max(len(msgspec.msgpack.encode(message)) for message in run.seen)
    assert longest == run.protocol.session.largest_message


@pytest.mark.parametrize("key", LOW_ORDER)
def test_a_key_that_hides_nothing_is_refused_when_it_comes(key: bytes) -> None:
    run = Run()
    honest = run.parties[1]._signed
    run.parties[1]._signed = lambda kind, body: honest(kind, key + body[32:] if kind is Announce else body)
    run.finish()
    assert run.aborted[COORDINATOR] == "party 1 announced an invalid key"
    assert not any(isinstance(message, Submit) for message in run.seen)
    assert_shown(run, 1)
    assert_nobody_accepts(run)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (Announce, b"short", "announced a key and a digest of 5 bytes; 64 were due"),
        (Submit, b"short", "submitted 5 bytes; its onions must have 208 each"),
        (Publish, b"short", "published a list of 5 bytes"),
        (Publish, bytes(9 * 112), "list of party 1 has the same onion twice"),
        (Confirm, bytes(32), "revealed a part of the seed that does not match its commitment"),
    ],
)
def test_who_signs_what_is_wrong_by_itself_is_named_with_proof(kind: type[Signed], body: bytes, reason: str) -> None:
    run = Run()
    honest = run.parties[1]._signed
    run.parties[1]._signed = lambda of, right: honest(of, body if of is kind else right)
    run.finish()
    assert reason in run.aborted[COORDINATOR]
    assert_shown(run, 1)
    assert_nobody_accepts(run)


def test_who_copies_another_party_s_onion_is_named_by_the_coordinator() -> None:
    """It can copy only what it has seen, so that its own comes later. Parties cannot know what came first."""
    run = Run()

    def copied(onions: list[bytes], run: Run) -> list[bytes]:
        first = next(bytes(opened(each.body).body) for each in run.queue if each.to == COORDINATOR)
        return [*onions[:-1], first[: onion_bytes(4)]]

    malicious(run, 2, copied, Submit)
    assert "the list of all submissions has the same onion twice" in run.aborted[COORDINATOR]
    assert run.coordinator.state.blamed == (address_of(2),)


def test_a_party_that_signs_another_history_is_named_by_the_coordinator() -> None:
    run = Run()
    party, honest = run.parties[3], run.parties[3]._signed

    def elsewhere(kind: type[Signed], body: bytes) -> Envelope:
        if kind is Submit:
            party.state.after = bytes(32)
        return honest(kind, body)

    party._signed = elsewhere
    run.finish()
    assert "party 3 signed a different history" in run.aborted[COORDINATOR]
    assert_shown(run, 3)


@pytest.mark.parametrize("owner", [0, 2, 3])
@pytest.mark.parametrize("kind", ["garbage", "a token twice"])
def test_the_first_to_peel_names_the_owner_of_a_bad_onion(owner: int, kind: str) -> None:
    """Nobody has shuffled yet, so that the place of an onion shows whose it is."""

    def bad(onions: list[bytes], run: Run) -> list[bytes]:
        if kind == "garbage":
            return [*onions[:-1], bytes(onion_bytes(4))]
        keys = run.coordinator.state.keys
        inner = wrap(bytes(16), keys[1:])[0]
        return [sealed(inner, keys[0]) for _ in onions]

    run = malicious(Run(), owner, bad, Submit)
    assert "cannot be decrypted" in run.aborted[address_of(0)] or "hold the same" in run.aborted[address_of(0)]
    assert run.parties[0].state.blamed == (address_of(owner),)
    assert_nobody_accepts(run)


def sealed(inner: bytes, key: bytes) -> bytes:
    from nacl.public import PublicKey, SealedBox

    found: bytes = SealedBox(PublicKey(key)).encrypt(inner)
    return found


@pytest.mark.parametrize("index", [0, 1, 3])
def test_who_drops_an_onion_is_blamed_by_its_owner(index: int) -> None:
    def replaced(onions: list[bytes], run: Run) -> list[bytes]:
        theirs = run.parties[2].state.marks[index + 1]
        place = next(i for i, onion in enumerate(onions) if hashlib.sha256(onion).digest() in theirs)
        own = wrap(bytes(16), run.coordinator.state.keys[index + 1 :])[0]
        return [*onions[:place], own, *onions[place + 1 :]]

    run = malicious(Run(), index, replaced)
    assert run.parties[2].state.blamed == (address_of(index),)


def test_a_party_that_gives_up_keeps_no_secret() -> None:
    run = Run()
    states = [party.state for party in run.parties]
    secrets = [secret for state in states for secret in (state.layer_secret, state.shuffle_key, state.part_of_seed)]
    secrets += [state.own[:16] for state in states if state.own]
    malicious(run, 1, lambda onions, run: onions[1:])
    # The coordinator has given up, and would hand it to nobody.
    short = next(msgspec.msgpack.encode(message) for message in reversed(run.seen) if isinstance(message, Publish))
    for party in run.parties:
        with pytest.raises(Aborted, match="party 1 published a list"):
            party.step(short)
        assert not [secret for secret in secrets if secret in party.dump()]
        assert party.state.marks == []


def test_a_party_that_lost_its_state_puts_no_token_under_the_key_that_it_announced_before() -> None:
    """The coordinator hands on what it signed before it began again: it could not take that layer off any more."""
    run = Run()
    run.begin()
    announced = [envelope.body for envelope in run.queue]
    again = run.new_party(1, SecretStream())
    again.step(b"")
    for body in announced[:-1]:
        again.step(body)
    with pytest.raises(Aborted, match="announced a key in this party's name"):
        again.step(announced[-1])


def test_the_coordinator_names_who_has_not_answered() -> None:
    run = Run()
    run.begin()
    while run.coordinator.waiting_for != [2]:
        run.deliver()
    run.aborted[address_of(2)] = "gone"
    run.finish()
    with pytest.raises(Aborted, match=r"parties \[2\] have not answered") as raised:
        run.coordinator.tokens()
    assert raised.value.blamed == (address_of(2),)


def test_nothing_of_one_attempt_is_taken_in_another() -> None:
    """Not even if its label is changed: it is in all signatures."""
    first = Run(attempt=bytes([1] * 16)).finish()
    second = Run(attempt=bytes([2] * 16))
    second.begin()
    for message in first.seen:
        for altered, reason in ((message, "another list"), (relabelled(message, second), r"signature|not due")):
            for endpoint in (second.coordinator, *second.parties):
                before = endpoint.dump()
                with pytest.raises(Rejected, match=reason):
                    endpoint.step(msgspec.msgpack.encode(altered))
                assert endpoint.dump() == before
    assert second.finish().coordinator.complete


def relabelled(message: Signed, run: Run) -> Signed:
    return msgspec.structs.replace(message, session=run.protocol.session.label())
