"""The oblivious list of tokens: complete, and in an order that no coalition knows.

The adversary, written down: curious parties and the coordinator see all lists and know their own secrets. Seeds are
fixed, so a failure is a change of the code; each statistical test states its false-alarm rate for a fresh seed.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shuffles import COUNTS, Run, ordered
from streams import fixed
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Rejected, Unsuitable
from unspoken.summation.mixnet import LAYER_BYTES, TOKEN_BYTES, onion_bytes, onion_key, peel, permutation, split, wrap
from unspoken.summation.record_shuffle import Options, RecordShuffle, ShuffleCoordinator, ShuffleParty
from unspoken.summation.shuffle_course import (
    Publish,
    ShuffleSession,
    Submit,
)
from unspoken.summation.simulated_keys import SimulatedKeys


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=5), name=st.text(max_size=3))
def test_the_list_has_every_token_once_and_parties_know_where_theirs_are(counts: list[int], name: str) -> None:
    run = Run(counts, name).finish()
    everything = run.coordinator.tokens()
    assert everything.shape == (sum(counts), TOKEN_BYTES)
    assert ordered(everything) == ordered(np.concatenate([party.tokens for party in run.parties]))
    assert run.coordinator.counts == tuple(counts)
    for party in run.parties:
        assert (party.all_tokens() == everything).all()
        assert (everything[party.positions()] == party.tokens).all()


def test_tokens_and_orders_come_from_secrets_and_differ_between_parties_and_runs() -> None:
    first, same, other = Run(name="a").finish(), Run(name="a").finish(), Run(name="b").finish()
    assert (first.coordinator.tokens() == same.coordinator.tokens()).all()
    assert not set(ordered(first.coordinator.tokens())) & set(ordered(other.coordinator.tokens()))
    assert len(set(ordered(first.coordinator.tokens()))) == sum(COUNTS)


def test_upload_bytes_is_what_the_party_with_most_sends() -> None:
    run = Run((4, 4, 4)).finish()
    sent = Counter[int]()
    for message in run.seen:
        sent[message.sender] += len(msgspec.msgpack.encode(message))
    # The first party publishes the longest onions.
    assert sent[0] == max(sent.values()) == run.protocol.upload_bytes(4, 12)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_orders_are_uniform(count: int) -> None:
    """χ² over all orders; false alarms: 1 in 10,000."""
    stream, orders = fixed("orders"), list(itertools.permutations(range(count)))
    seen = Counter(tuple(permutation(count, stream).tolist()) for _ in range(300 * len(orders)))
    assert set(seen) == set(orders)
    if len(orders) > 1:
        assert stats.chisquare(list(seen.values())).pvalue > 1e-4


def test_equal_words_are_drawn_again() -> None:
    class Repeating(SecretStream):
        draws = 0

        def words(self, count: int) -> np.ndarray:
            self.draws += 1
            return np.array([5, 1, 5] if self.draws == 1 else [2, 3, 1], dtype=np.uint64)

    stream = Repeating(bytes(32))
    assert permutation(3, stream).tolist() == [2, 0, 1]
    assert stream.draws == 2


def honest_orders(knowing: set[int], runs: int) -> Counter[tuple[int, ...]]:
    """The order of the tokens of parties 0 and 2 in the list, against the order in which they were submitted, in runs
    of three parties. Those whose shuffle the adversary knows do not shuffle: it could undo theirs.
    """
    seen: Counter[tuple[int, ...]] = Counter()
    for number in range(runs):
        run = Run((2, 1, 1), f"orders/{knowing}/{number}")
        for index in knowing:
            run.parties[index]._peeled = unshuffled(run.parties[index])
        run.finish()
        submitted = [row.tobytes() for party in (0, 2) for row in run.parties[party].tokens]
        final = [row.tobytes() for row in run.coordinator.tokens()]
        seen[tuple(submitted.index(token) for token in final if token in submitted)] += 1
    return seen


def unshuffled(party: ShuffleParty) -> Callable[[], bytes]:
    def peeled() -> bytes:
        return b"".join(peel(split(party.state.onions, 3 - party._index), party.state.layer_secret))

    return peeled


@pytest.mark.parametrize(
    "knowing", [{1, 2}, *(pytest.param(some, marks=pytest.mark.long) for some in ({1}, {0, 1}, {0, 2}))], ids=str
)
def test_to_a_coalition_the_honest_tokens_come_in_any_order(knowing: set[int], runs: Callable[[int, int], int]) -> None:
    """A coalition of all but the two honest parties, and one honest-but-curious party with it, which knows its own
    shuffle: χ² over the 3! orders of the honest tokens in 120 runs or more; false alarms: 1 in 10,000 for each case.
    """
    seen = honest_orders(knowing, runs(120, 420))
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4


def test_only_if_all_shuffles_are_known_is_the_order_known() -> None:
    assert set(honest_orders({0, 1, 2}, 5)) == {(0, 1, 2)}


def test_between_two_lists_of_an_honest_party_nothing_is_alike() -> None:
    """Onions before and after a layer share no piece of 8 bytes, so that none can be followed by its looks."""
    lists = Run((6, 6, 6)).finish().lists()
    for before, after in itertools.pairwise(lists):
        pieces = {onion[start : start + 8] for onion in before for start in range(len(onion) - 7)}
        assert not any(onion[start : start + 8] in pieces for onion in after for start in range(len(onion) - 7))


def test_onions_of_the_same_token_have_nothing_in_common_but_their_length() -> None:
    """Bytes behind each seal's own key are uniform whatever the token: χ²; false alarms: 1 in 10⁷ (fresh seals)."""
    keys = [onion_key(bytes([number] * 32)) for number in range(3)]
    onions = [wrap(bytes(TOKEN_BYTES), keys)[0] for _ in range(400)]
    assert {len(onion) for onion in onions} == {onion_bytes(3)}
    assert len({onion[start : start + 16] for onion in onions for start in range(0, 160, 16)}) == 400 * 10
    body = np.frombuffer(b"".join(onion[32:] for onion in onions), dtype=np.uint8)
    assert stats.chisquare(np.bincount(body, minlength=256)).pvalue > 1e-7


def test_layers_come_off_in_the_agreed_order_only() -> None:
    secrets = [bytes([number] * 32) for number in range(3)]
    forms = wrap(b"sixteen bytes ok", [onion_key(secret) for secret in secrets])
    assert [len(form) for form in forms] == [TOKEN_BYTES + LAYER_BYTES * layers for layers in (3, 2, 1, 0)]
    for layer, secret in enumerate(secrets):
        assert peel([forms[layer]], secret) == [forms[layer + 1]]
        with pytest.raises(Aborted, match="cannot be decrypted"):
            peel([forms[layer]], secrets[layer - 1])


def test_a_party_forgets_its_order_after_its_turn_and_shuffles_only_once() -> None:
    run = Run()
    run.begin()
    while not any(isinstance(message, Publish) for message in run.seen):
        run.deliver()
    first = run.parties[0]
    assert first.state.layer_secret == first.state.shuffle_key == b""
    other = next(message for message in run.seen if isinstance(message, Submit))
    with pytest.raises(Rejected, match="not due"):
        first.step(msgspec.msgpack.encode(other))


def test_every_endpoint_can_be_dumped_and_loaded_between_any_two_messages() -> None:
    run = Run()
    run.begin()
    while run.queue:
        run.deliver()
        fresh = run.new_coordinator()
        fresh.load(run.coordinator.dump())
        run.coordinator = fresh
        for index, party in enumerate(run.parties):
            run.parties[index] = run.new_party(index, SecretStream())
            run.parties[index].load(party.dump())
    assert (run.coordinator.tokens() == Run().finish().coordinator.tokens()).all()
    assert all(party.complete for party in run.parties)


def test_a_party_that_begins_twice_announces_the_same_key() -> None:
    party = Run().parties[0]
    assert party.step(b"") == party.step(b"")
    run = Run().finish()
    with pytest.raises(Rejected, match="begun already"):
        run.parties[0].step(b"")


@pytest.mark.long
def test_ten_parties_with_a_hundred_tokens_each_take_seconds() -> None:
    """Seen: 1 to 2 processor seconds."""
    started = time.process_time()
    run = Run([100] * 10, "speed").finish()
    assert len(run.coordinator.tokens()) == 1_000
    assert time.process_time() - started < 10


def test_endpoints_are_made_by_the_protocol_and_only_with_a_roster() -> None:
    session, keys = ShuffleSession("study", "list", 2), SimulatedKeys(SecretStream(), 2)
    protocol = RecordShuffle(session, Options(), keys.roster)
    assert isinstance(protocol.coordinator(keys.coordinator, SecretStream()), ShuffleCoordinator)
    party = protocol.party(1, keys.identity(1), SecretStream(), 2)
    assert isinstance(party, ShuffleParty)
    assert party.tokens.shape == (2, TOKEN_BYTES)
    planned = RecordShuffle(session, Options())
    assert planned.upload_bytes(2, 3) == protocol.upload_bytes(2, 3)
    with pytest.raises(ValueError, match="Expected a roster"):
        planned.party(1, keys.identity(1), SecretStream(), 2)
    with pytest.raises(Unsuitable, match="has 3 keys, but 2 parties take part"):
        RecordShuffle(session, Options(), SimulatedKeys(SecretStream(), 3).roster)
