"""Arithmetic on shared words shows t talliers nothing.

The adversary, written down: t of 2t + 1 talliers that keep to the protocol and put together all they receive. Keys are
fixed, so a failure is a change of the code; each statistical test states its false-alarm rate for fresh keys.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from shared_words import (
    EACH_SHARING,
    SHARINGS,
    Run,
    all_masks,
    group_keys,
    held_vote,
    pair_keys,
    random_parts,
    run,
    split,
    vote,
)
from unspoken.noise.stream import SecretStream
from unspoken.summation.argmax import rounds_of_argmax
from unspoken.summation.replicated import (
    BITS,
    SUMS,
    Array,
    Group,
    Masks,
    Operations,
    SharedComputation,
    Sharing,
)

COALITIONS = [(sharing, group) for sharing in SHARINGS for group in sharing.groups]
EACH_COALITION = pytest.mark.parametrize(
    ("sharing", "curious"),
    [
        # Of the 35 coalitions of seven talliers every fifth, without --soak.
        pytest.param(*case, marks=pytest.mark.long) if case[0].talliers == 7 and number % 5 else case
        for number, case in enumerate(COALITIONS)
    ],
    ids=str,
)


class Secret:
    """What the talliers outside a coalition hide from it, round by round, chosen so that it sees given words."""

    def __init__(self, sharing: Sharing, curious: Group, honest: list[int], views: list[list[list[Array]]]) -> None:
        self.sharing, self.curious, self.honest = sharing, curious, honest
        self.wanted = [self._seen_words(views, turn) for turn in range(len(views[0]))]
        self.sums: dict[int, Array] = {}
        """Of what the honest would send, were it not for the secrets they share among themselves"""
        self.lacked: dict[int, Array] = {}
        """The share R that the coalition lacks; filled in when the last of the honest has its turn"""

    def _seen_words(self, views: list[list[list[Array]]], turn: int) -> dict[int, Array]:
        """What the coalition received of the honest in one round, by sender."""
        return {
            sender: words
            for index in self.curious
            for sender, words in zip(self.sharing.after(index), views[index][turn], strict=True)
            if sender in self.honest
        }


class Explaining(Masks):
    """An honest tallier whose masks are such that the coalition sees the wanted words, whatever it computed."""

    def __init__(self, sharing: Sharing, index: int, secret: Secret) -> None:
        known = {peer: key for peer, key in pair_keys(sharing, index).items() if peer in secret.curious}
        groups = {group: key for group, key in group_keys(sharing, index).items() if group != secret.curious}
        super().__init__(sharing, index, known, groups)
        self._secret, self._turn = secret, 0

    def hide(self, terms: Array, operations: Operations) -> tuple[Array, dict[Group, Array]]:
        secret, turn = self._secret, self._turn
        self._turn += 1
        # With all masks that the coalition knows; what is missing are ζ's that cancel among the honest, and R.
        partly, fresh = super().hide(terms, operations)
        before = secret.sums.get(turn, np.zeros_like(terms))
        secret.sums[turn] = operations.plus(before, partly)
        lacked = secret.lacked.setdefault(turn, np.zeros_like(terms))
        if secret.curious in secret.sharing.masked:
            fresh[secret.curious] = lacked
        if self._index != secret.honest[-1]:
            return secret.wanted[turn][self._index], fresh
        rest = secret.sums[turn]
        for words in secret.wanted[turn].values():
            rest = operations.minus(rest, words)
        if secret.curious not in secret.sharing.masked:
            return rest, fresh
        # One of the honest has taken R away from what it sent.
        lacked[...] = rest
        return secret.wanted[turn][self._index], fresh


@EACH_COALITION
def test_any_other_values_explain_the_view_of_t_talliers_just_as_well(sharing: Sharing, curious: Group) -> None:
    """Perfect secrecy, by a bijection: to t talliers that know their parts, their keys and all that they received,
    every other value of the totals is as likely as the true one, as exactly one choice of what the others' masks add up
    to explains the view.

    Here the masks are worked out, and the vote with the other values is held: the views are the same word by word, and
    the result is that of the other values. If these have the same winners, even the opened shares are the same: the
    coordinator and these talliers together see no difference. (That the talliers' keys can make any such masks is shown
    by the next test.)
    """
    rows, columns, rng = 3, 60, np.random.default_rng(0)
    values = rng.integers(-(2**40), 2**40, (rows, columns))
    true = random_parts(values.view(np.uint64), sharing.talliers, seed=1)
    seen = run(sharing, lambda c, i: vote(c, true[i]))
    honest, best = sharing.holders(curious), values.argmax(axis=0)
    # If no one in the coalition receives the words of one of the others, that one comes last.
    honest.sort(key=lambda index: sharing.sent(index) == curious)
    same_winners = rng.integers(-(2**50), 0, (rows, columns))
    same_winners[best, np.arange(columns)] = 7
    for others in (same_winners, rng.integers(-(2**61), 2**61, (rows, columns))):
        terms = list(true)
        terms[honest[0]] = true[honest[0]] + (others - values).view(np.uint64)
        secret = Secret(sharing, curious, honest, seen.views)
        masks = all_masks(sharing)
        for index in honest:
            masks[index] = Explaining(sharing, index, secret)
        computations = [vote(SharedComputation(sharing, i, masks[i]), terms[i]) for i in range(sharing.talliers)]
        again = Run(sharing, computations, order=[*honest, *curious])
        assert len(secret.sums) == 1 + rounds_of_argmax(rows, sharing)
        for index in curious:
            for one, other in zip(seen.views[index], again.views[index], strict=True):
                assert all((a == b).all() for a, b in zip(one, other, strict=True))
        assert (again.opened() == others.argmax(axis=0)).all()
        before, after = seen.shares(), again.shares()
        same = [before[group] == after[group] for group in sharing.groups]
        assert (np.all(same, axis=0) == (others.argmax(axis=0) == best)).all()


class Unit(SecretStream):
    """In place of a key's stream: all zeros but for a one at a place of its own, which shows where it goes."""

    def __init__(self, place: int) -> None:
        super().__init__(bytes(32))
        self._place = place

    def take(self, count: int) -> bytes:
        words = np.zeros(count // 8, dtype="<u8")
        words[self._place] = 1
        return words.tobytes()


def rank_modulo_2(rows: list[Array]) -> int:
    rest, rank = [int("0" + "".join(str(int(word) & 1) for word in row), 2) for row in rows], 0
    while rest:
        pivot = rest.pop()
        rank += bool(pivot)
        rest = [min(row, row ^ pivot) for row in rest]
    return rank


@EACH_COALITION
@pytest.mark.parametrize("operations", [SUMS, BITS], ids=["sums", "bits"])
def test_what_t_talliers_receive_has_as_many_unknown_keys_in_it(
    sharing: Sharing, curious: Group, operations: Operations
) -> None:
    """Linear algebra, apart from any values: which streams are in which words. Restricted to the keys that no one in
    the coalition has, the words that it receives are independent modulo 2, and so uniform together modulo 2⁶⁴."""
    pairs, honest = list(combinations(range(sharing.talliers), 2)), sharing.holders(curious)
    unknown = [place for place, pair in enumerate(pairs) if not set(pair) & set(curious)]
    unknown += [len(pairs) + place for place, group in enumerate(sharing.masked) if group == curious]
    seen = sorted({sender for index in curious for sender in sharing.after(index)} & set(honest))
    rows = []
    for index in seen:
        masks = Masks(sharing, index, pair_keys(sharing, index), group_keys(sharing, index))
        masks._pairs = {peer: Unit(pairs.index((min(index, peer), max(index, peer)))) for peer in masks._pairs}
        masks._groups = {group: Unit(len(pairs) + sharing.masked.index(group)) for group in masks._groups}
        hidden, _ = masks.hide(np.zeros(len(pairs) + len(sharing.masked), dtype=np.uint64), operations)
        rows.append(hidden[unknown])
    assert rank_modulo_2(rows) == len(seen) == sharing.threshold + (curious in sharing.masked)


@EACH_SHARING
@pytest.mark.parametrize("value", [0, -(2**62) + 1])
def test_every_word_that_a_tallier_receives_is_uniform(sharing: Sharing, value: int) -> None:
    """4,096 columns of the same values are as many runs: χ² of every byte of every word; false alarms 1 in 10,000."""
    values = np.full((2, 4096), value)
    values[1] += 1
    views = held_vote(sharing, values).views
    # All that is sent is received by the tallier before its sender.
    lanes = [
        received[0][..., np.newaxis].view(np.uint8).reshape(-1, 4096, received[0].itemsize)[row, :, lane]
        for view in views
        for received in view
        for row in range(received[0].size // 4096)
        for lane in range(received[0].itemsize)
    ]
    assert len(lanes) > 150
    for lane in lanes:
        assert stats.chisquare(np.bincount(lane, minlength=256)).pvalue > 1e-4 / len(lanes)


class Recording(Masks):
    """Remembers what was sent and drawn in each round."""

    def __init__(self, sharing: Sharing, index: int) -> None:
        super().__init__(sharing, index, pair_keys(sharing, index), group_keys(sharing, index))
        self.rounds: list[tuple[Operations, Array, dict[Group, Array]]] = []

    def hide(self, terms: Array, operations: Operations) -> tuple[Array, dict[Group, Array]]:
        hidden, fresh = super().hide(terms, operations)
        self.rounds.append((operations, hidden.copy(), dict(fresh)))
        return hidden, fresh


@pytest.mark.parametrize("value", [0, 2**62 - 1])
@pytest.mark.parametrize("curious", Sharing(5).masked, ids=str)
def test_two_of_five_talliers_that_see_all_words_of_a_round_lack_one_share(curious: Group, value: int) -> None:
    """χ² of the best that they can do: all words, and all shares that they hold, put together in every round. Words
    that are uniform one by one may still add up to what they hide. False alarms 1 in 10,000."""
    sharing, values = Sharing(5), np.stack([np.full(4096, value), np.zeros(4096, dtype=np.int64)])
    terms = random_parts(values.view(np.uint64), 5, seed=0)
    masks = [Recording(sharing, index) for index in range(5)]
    Run(sharing, [vote(SharedComputation(sharing, index, masks[index]), terms[index]) for index in range(5)])
    seen = {sender for index in curious for sender in sharing.after(index)} | set(curious)
    assert seen == set(range(5))
    count = 1 + rounds_of_argmax(2, sharing)
    for turn in range(count):
        operations = masks[0].rounds[turn][0]
        known = {group: words for index in curious for group, words in masks[index].rounds[turn][2].items()}
        assert set(known) == set(sharing.masked) - {curious}
        guess = reduce(operations.plus, [*(mask.rounds[turn][1] for mask in masks), *known.values()])
        counts = np.bincount(guess.ravel().view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4 / count


@EACH_SHARING
def test_one_tallier_more_knows_the_values(sharing: Sharing) -> None:
    """The written-down bound: what t talliers may not get, any t + 1 have."""
    values = np.arange(12, dtype=np.uint64).reshape(3, 4)
    shares = split(sharing, values)
    for some in combinations(range(sharing.talliers), sharing.threshold + 1):
        known = {group: words for i in some for group, words in zip(sharing.held(i), shares[i].words, strict=True)}
        assert (np.sum(list(known.values()), axis=0, dtype=np.uint64) == values).all()
    for some in sharing.groups:
        assert {group for i in some for group in sharing.held(i)} == {*sharing.groups} - {some}
