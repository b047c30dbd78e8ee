"""All that a coordinator can compute from what compute nodes reveal, whatever it told each of them.

`known_sums` is linear algebra and asks no node what it thinks. A party's shares are random but for their sum: what a
coalition knows of vectors is spanned by those combinations of the parts and shares in its hands in which all random
shares cancel. Below the bound there is one such combination at most, and it is the sum over the honest parties of one
list that is long enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest

from adversaries.lying_nodes import NodeStage, session
from unspoken.summation.base import Aborted, Rejected
from unspoken.summation.node_messages import KeyTable, Propose, SignedKey, nodes_of

PARTIES = 4
TWICE = 3
"""The party that is brought to send two splittings of its vector"""


@dataclass
class Setting:
    nodes: int
    per_party: int
    corrupt: frozenset[int]
    colluders: frozenset[int] = frozenset()

    @property
    def holds(self) -> bool:
        return 2 * self.per_party > self.nodes + len(self.corrupt) and len(self.corrupt) < self.nodes


BELOW = [
    Setting(3, 3, frozenset()),
    Setting(3, 3, frozenset({1, 2})),
    Setting(3, 2, frozenset(), frozenset({0})),
    Setting(4, 3, frozenset({0}), frozenset({1})),
]


class Game:
    """One attempt. A party has sent two splittings, and each of its nodes has heard one of them first."""

    def __init__(self, setting: Setting, heard: tuple[int, ...]) -> None:
        self.setting = setting
        self.stage = NodeStage(
            session(PARTIES, 1, colluding=1), setting.nodes, setting.per_party, corrupt=set(setting.corrupt)
        )
        self.stage.post(range(TWICE))
        sendings = [self.stage.messages(TWICE), self.stage.messages(TWICE)]
        self.heard = dict(zip(nodes_of(TWICE, setting.nodes, setting.per_party), heard, strict=True))
        for number, first in self.heard.items():
            self.stage.endpoints[number].step(sendings[first][number])
            self.stage.endpoints[number].step(sendings[1 - first][number])
        self.keys = [self.key(sending) for sending in (0, 1)]
        self.parts: dict[int, set[tuple[int, int]]] = {}
        """The shares in the part of each node that revealed it: whose, and of which sending"""

    def key(self, sending: int) -> SignedKey:
        """The key of a sending: that of a node that heard it first, or what another keeps as evidence."""
        number, first = next(iter(self.heard.items()))
        state = self.stage.endpoints[number].state
        return state.waiting[TWICE].signed if first == sending else state.faults[TWICE]

    def tell(self, told: dict[int, tuple[tuple[int, ...], int]]) -> None:
        """Each honest node is told a list of survivors, and the sending of the party that sent twice."""
        signatures: dict[int, bytes] = {}
        proposals: dict[int, Propose] = {}
        for number, (survivors, sending) in told.items():
            proposals[number] = self.stage.proposal(
                survivors, {TWICE: self.keys[sending]} if TWICE in survivors else {}
            )
            with suppress(Rejected, Aborted):
                signatures[number] = self.stage.signature(number, proposals[number])
        for number, proposal in proposals.items():
            given = [
                self.stage.signature(each, proposal)
                if each in self.setting.corrupt
                else signatures.get(each, bytes(64))
                for each in range(self.setting.nodes)
            ]
            with suppress(Rejected, Aborted):
                self.stage.reveal(number, given)
                self.parts[number] = self.counted(number)

    def counted(self, number: int) -> set[tuple[int, int]]:
        state = self.stage.endpoints[number].state
        parties = np.flatnonzero(state.counted).tolist()
        return {(party, int(self.is_second(number, party))) for party in parties}

    def is_second(self, number: int, party: int) -> bool:
        return party == TWICE and KeyTable(self.stage.endpoints[number].state.keys).of(party).key == self.keys[1].key

    def known_sums(self) -> np.ndarray:
        """A basis of the combinations of honest parties' vectors that the coalition knows."""
        setting = self.setting
        rows = [self.row(number, parts) for number, parts in self.parts.items()]
        rows += [
            self.row(number, {(party, sending)})
            for number in setting.corrupt
            for party in range(PARTIES)
            for sending in range(1 + (party == TWICE))
            if number in nodes_of(party, setting.nodes, setting.per_party)
        ]
        if not rows:
            return np.zeros((0, PARTIES))
        matrix = np.array(rows)
        vectors, shares = matrix[:, :PARTIES], matrix[:, PARTIES:]
        _, values, turned = np.linalg.svd(shares.T)
        known = turned[int((values > 1e-9).sum()) :] @ vectors
        known[:, sorted(setting.colluders)] = 0
        _, values, basis = np.linalg.svd(known)
        return basis[: int((values > 1e-9).sum())]

    def row(self, number: int, parts: set[tuple[int, int]]) -> np.ndarray:
        """What the sum of these shares of a node is made of: vectors, and the random shares of all honest parties. The
        first node of a party has its vector without all its other shares. Colluders' shares are known: they are none.
        """
        found = np.zeros(PARTIES + PARTIES * 2 * self.setting.nodes)
        for party, sending in parts:
            if party in self.setting.colluders:
                continue
            first, *others = nodes_of(party, self.setting.nodes, self.setting.per_party)
            places = [PARTIES + (party * 2 + sending) * self.setting.nodes + other for other in others]
            if number == first:
                found[party] += 1
                found[places] -= 1
            else:
                found[PARTIES + (party * 2 + sending) * self.setting.nodes + number] += 1
        return found


LISTS = [tuple(range(PARTIES)), *itertools.combinations(range(PARTIES), PARTIES - 1), (0, 1)]
MOVES = [(survivors, sending) for survivors in LISTS for sending in (0, 1) if TWICE in survivors or not sending]


@pytest.mark.parametrize("setting", BELOW, ids=lambda s: f"{s.nodes}-{s.per_party}-{len(s.corrupt)}")
def test_whatever_nodes_are_told_one_sum_of_enough_parties_is_known_at_most(
    setting: Setting, seeds: Callable[[int, int], range]
) -> None:
    """Every list that nodes can be told, each under either splitting of a party that sent twice, and every way in which
    its splittings came: some drawn at random, and one that all are told, in some of these ways; many more, and all of
    these, with --soak."""
    honest = [number for number in range(setting.nodes) if number not in setting.corrupt]
    games = [
        (heard, told)
        for heard in itertools.product((0, 1), repeat=setting.per_party)
        for told in itertools.product(MOVES, repeat=len(honest))
    ]
    alike = [game for game in games if len(set(game[1])) == 1]
    rng, opened = np.random.default_rng(0), set[tuple[int, ...]]()
    alike = [alike[place] for place in rng.permutation(len(alike))[: len(seeds(15, 600))]]
    drawn = [games[place] for place in rng.permutation(len(games))[: len(seeds(30, 600))]]
    for heard, told in [*alike, *drawn]:
        game = Game(setting, heard)
        game.tell(dict(zip(honest, told, strict=True)))
        known = game.known_sums()
        assert len(known) <= 1, (heard, told)
        for sum_ in known:
            inside = np.flatnonzero(np.abs(sum_) > 1e-9)
            assert np.allclose(sum_[inside], sum_[inside[0]]), (heard, told)
            assert len(inside) >= PARTIES - 1 - len(setting.colluders), (heard, told)
            opened.add(tuple(inside.tolist()))
    assert len(opened) > 1


@pytest.mark.parametrize("corrupt", [{1}, {0, 1, 2}])
def test_the_algebra_finds_what_one_corrupt_node_more_opens(corrupt: set[int]) -> None:
    """With two nodes of three for each party none may be corrupt (2·2 = 3 + 1), and with all corrupt nothing is secret.
    Parties 0 and 3 alone use nodes 0 and 1, so the shares of node 1 and the part of node 0 are enough, if whoever else
    uses node 0 colludes."""
    setting = Setting(3, 2, frozenset(corrupt), frozenset({2}))
    assert not setting.holds
    game = Game(setting, (0, 0))
    everyone = tuple(range(PARTIES))
    game.tell({number: (everyone, 0) for number in range(3) if number not in corrupt})
    known = game.known_sums()
    alone = np.zeros(PARTIES)
    alone[[0, 3]] = 1 / np.sqrt(2)
    within = known @ alone
    assert np.isclose(np.linalg.norm(within), 1)
    assert len(known) > 1


def test_the_settings_are_below_their_bounds() -> None:
    assert all(setting.holds for setting in BELOW)
