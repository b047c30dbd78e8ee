"""The smallest total that can open, found by playing the adversary, and the noise that is left in it.

Written down: the adversary is the coordinator with `colluding` parties (and, of compute nodes, as many as the guarantee
allows). It knows their shares and noise. Up to `dropouts` parties are gone. What it can open is found here by counting
shares and by linear algebra on what it sees, and not by what the protocols say of themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest

import factories
from adversaries.lying_nodes import NodeStage, session
from unspoken.methods.planning import Plan
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.registry import method_for
from unspoken.privacy import accounting
from unspoken.privacy.events import Spend
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.study import StudyError, make_study
from unspoken.summation.base import Aborted, Openable, Rejected, Session
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.compute_nodes import ComputeNodes, Options
from unspoken.summation.graph import CircleGraph, Degree, surrounded
from unspoken.summation.node_messages import KeyTable, Share, SignedKey
from unspoken.summation.registry import PROTOCOLS


def study(parties: int, colluding: int, dropouts: int, protocol: str, **summation: Any) -> Any:
    return factories.make(
        parties={"count": parties, "records": 10, "max_records": 10},
        delta=1e-5,
        colluding=colluding,
        dropouts=dropouts,
        summation={"protocol": protocol, **summation},
    )


def left(plan: Plan, honest: int, unmasked: bool) -> float:
    """The standard deviation that the adversary faces: of one honest party's base if it can be unmasked alone, else of
    what all honest parties in the smallest total have kept."""
    planned = plan.sums[0]
    schedule = planned.noise.schedule
    variance = schedule.base if unmasked else honest * schedule.kept(plan.trust.least_survivors)
    return math.sqrt(variance - LOST_VARIANCE) / planned.encoding.scale


@pytest.mark.parametrize("protocol", [name for name, kind in PROTOCOLS.items() if "sum" in kind.serves])
@pytest.mark.parametrize("parties", [3, 6, 11])
def test_what_is_left_of_the_noise_is_what_was_planned(protocol: str, parties: int) -> None:
    """Colluders hold so many of an honest party's shares; with a threshold of them it stands alone."""
    planned = 0
    for colluding, dropouts in itertools.product(range(parties), repeat=2):
        try:
            plan = method_for(study(parties, colluding, dropouts, protocol)).plan()
        except StudyError:
            continue
        planned += 1
        honest = parties - max(colluding, 1) - dropouts
        assert honest >= 1
        # Pairwise masks have a threshold, too: of neighbours that must be there, not of shares that open something.
        threshold = plan.summation_parameters["threshold"] if "secagg" in protocol else math.inf
        assert left(plan, honest, colluding >= threshold) >= plan.sums[0].noise_std * (1.0 - 1e-9)
    assert planned >= parties


@pytest.mark.parametrize(("parties", "colluding", "dropouts"), [(3, 1, 1), (10, 7, 2), (20, 10, 9)])
@pytest.mark.parametrize("protocol", ["secagg", "secagg+"])
def test_as_many_colluders_as_the_threshold_are_refused(
    protocol: str, parties: int, colluding: int, dropouts: int
) -> None:
    with pytest.raises(StudyError, match=r"\[privacy\] colluding comes to \d+ of \d+ parties.* can unmask another"):
        method_for(study(parties, colluding, dropouts, protocol, coordinator="curious")).plan()
    method_for(study(parties, colluding - 1, dropouts, protocol, coordinator="curious")).plan()


@pytest.mark.parametrize(("parties", "colluding", "dropouts"), [(3, 1, 1), (10, 7, 2), (20, 10, 5), (10, 3, 4)])
@pytest.mark.parametrize("protocol", ["secagg", "secagg+"])
def test_more_dropouts_than_a_quorum_allows_are_refused(
    protocol: str, parties: int, colluding: int, dropouts: int
) -> None:
    with pytest.raises(StudyError, match=rf"; set dropouts = {dropouts - 1}\b"):
        method_for(study(parties, colluding, dropouts, protocol)).plan()
    method_for(study(parties, colluding, dropouts - 1, protocol)).plan()


def components(parties: list[int], nodes: int, per_party: int, corrupt: set[int], counted: Any) -> Iterator[set[int]]:
    """The sums over honest parties that open: `counted[node]` says under which key a node counts whom.

    Honest nodes that count the same party under the same key have the same factor in any combination of their parts
    that is not random; one that counts a party which another of its nodes does not has the factor 0. Each class of
    nodes with a factor of its own opens one sum. (Which nodes a party uses is written again on purpose.)
    """
    honest_nodes = [node for node in range(nodes) if node not in corrupt]
    uses = {party: [(party + step) % nodes for step in range(per_party)] for party in parties}
    kept = {party: [node for node in uses[party] if node not in corrupt] for party in parties}
    keys = {party: {counted[node].get(party) for node in kept[party]} for party in parties}
    everywhere = [party for party in parties if len(keys[party]) == 1 and None not in keys[party]]
    factor = {node: node for node in honest_nodes}

    def root(node: int) -> int:
        while factor[node] != node:
            node = factor[node]
        return node

    for party in everywhere:
        for node in kept[party][1:]:
            factor[root(node)] = root(kept[party][0])
    zero = {
        root(node) for party in parties if party not in everywhere for node in kept[party] if party in counted[node]
    }
    for group in {root(node) for node in honest_nodes} - zero:
        members = {party for party in everywhere if root(kept[party][0]) == group}
        if members:
            yield members


TWICE = 0
"""A party that lost its state, and sent its vector under two keys"""


class LyingCoordinator:
    """Everything that a coordinator may tell honest nodes, and what they do.

    For each node it chooses which sending of the party TWICE gets there, and one list of survivors (down to one fewer
    than planned) with the key that it states for this party. The nodes are real ones: they say what they sign, and
    against which signatures they reveal.
    """

    def __init__(self, stage: NodeStage) -> None:
        self.stage, agreed = stage, stage.agreed
        lists = [
            set(range(agreed.parties)) - set(gone)
            for count in range(agreed.parties - agreed.least_survivors + 2)
            for gone in itertools.combinations(range(agreed.parties), count)
        ]
        sendings = [stage.messages(TWICE) for _ in range(2)]
        others = [stage.messages(party) for party in range(1, agreed.parties)]
        self.keys = keys = [_key_of(sending) for sending in sendings]
        known = {party: _key_of(sent) for party, sent in enumerate(others, 1)}
        self.moves = [
            (members, stage.proposal(members, {TWICE: keys[version], **known}))
            for members in lists
            for version in range(2 if TWICE in members else 1)
        ]
        self.signed: dict[int, list[tuple[int, ComputeNode, bytes]]] = {
            number: list(self._signed(number, sendings, others)) for number in stage.honest
        }

    def _signed(self, number: int, sendings: Any, others: Any) -> Iterator[tuple[int, ComputeNode, bytes]]:
        """The moves that a node goes along with, the node after that, and its signature."""
        heard = []
        for sending in sendings:
            node = self.stage.new_node(number)
            for sent in (sending, *others):
                if number in sent:
                    node.step(sent[number])
            heard.append(node.dump())
        for move, (members, proposal) in enumerate(self.moves):
            for dumped in heard if TWICE in members and self.stage.uses(TWICE, number) else heard[:1]:
                self.stage.restart(number, dumped)
                with suppress(Aborted):
                    yield move, self.stage.endpoints[number], self.stage.signature(number, proposal)

    def openings(self) -> Iterator[dict[int, dict[int, int]]]:
        """The parties that each honest node's part contains, for all moves by which any part is revealed."""
        honest = self.stage.honest
        reveals = {number: self._reveals(number) for number in honest}
        for choice in itertools.product(*(range(len(self.signed[number])) for number in honest)):
            chosen = dict(zip(honest, choice, strict=True))
            parts = {
                number: all((place, other, chosen[other]) in reveals[number] for other in honest if other != number)
                for number, place in chosen.items()
            }
            if any(parts.values()):
                yield {
                    number: self._counted(number, place) if parts[number] else {} for number, place in chosen.items()
                }

    def _reveals(self, number: int) -> set[tuple[int, int, int]]:
        """Asks a node for its part against every signature of every other honest node, all else being right."""
        found = set()
        for place, (move, node, own) in enumerate(self.signed[number]):
            self.stage.endpoints[number] = node
            statement = self.stage.statement(self.moves[move][1])
            right = [self.stage.simulated.keys.helper(each).sign(statement) for each in range(self.stage.nodes)]
            assert right[number] == own
            for other in self.stage.honest:
                for theirs, (_, _, signature) in enumerate(self.signed[other]):
                    with suppress(Rejected):
                        self.stage.reveal(number, [*right[:other], signature, *right[other + 1 :]])
                        found.add((place, other, theirs))
        return found

    def _counted(self, number: int, place: int) -> dict[int, int]:
        state = self.signed[number][place][1].state
        version = int(KeyTable(state.keys).of(TWICE) == self.keys[1])
        return {int(party): version if party == TWICE else 0 for party in np.flatnonzero(state.counted)}


def _key_of(sent: dict[int, bytes]) -> SignedKey:
    share = msgspec.msgpack.decode(next(iter(sent.values())), type=Share)
    return SignedKey(share.sender, share.key, share.signature)


def smallest_sum(parties: int, colluding: int, dropouts: int, nodes: int, per_party: int, corrupt: int) -> int:
    """Over all colluders, corrupt nodes, and whatever the coordinator may tell the honest nodes."""
    smallest = parties
    for bad in itertools.combinations(range(nodes), corrupt):
        stage = NodeStage(session(parties, dropouts, colluding), nodes, per_party, set(bad))
        for counted in LyingCoordinator(stage).openings():
            assert len({each[TWICE] for each in counted.values() if TWICE in each}) < 2, "nodes mix two splittings"
            for theirs in itertools.combinations(range(parties), colluding):
                honest = [party for party in range(parties) if party not in theirs]
                for members in components(honest, nodes, per_party, set(bad), counted):
                    smallest = min(smallest, len(members))
    return smallest


NODES = [
    # parties, colluding, dropouts, nodes, of them for each party
    (6, 1, 0, 3, 2),
    (6, 1, 1, 3, 3),
    (6, 2, 1, 3, 3),
    (7, 1, 1, 3, 2),
    pytest.param(7, 1, 1, 4, 3, marks=pytest.mark.long),
    (6, 2, 0, 5, 3),
    pytest.param(6, 1, 2, 3, 2, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("parties", "colluding", "dropouts", "nodes", "per_party"), NODES)
def test_no_smaller_sum_opens_at_compute_nodes_than_the_noise_is_sized_for(
    parties: int, colluding: int, dropouts: int, nodes: int, per_party: int
) -> None:
    """By trying everything that a coordinator may tell its nodes, with as many corrupt nodes as are allowed."""
    corrupt = 2 * per_party - nodes - 1
    found = smallest_sum(parties, colluding, dropouts, nodes, per_party, corrupt)
    plan = method_for(study(parties, colluding, dropouts, "compute-nodes", nodes=nodes, per_party=per_party)).plan()
    assert plan.trust.withheld == 0
    assert plan.trust.honest_survivors == parties - colluding - dropouts == found
    told = f"at least {'one' if nodes - corrupt == 1 else nodes - corrupt} of the {nodes} compute nodes "
    assert any(each.startswith(told) for each in plan.guarantee.assumptions)
    assert left(plan, found, False) >= plan.sums[0].noise_std * (1.0 - 1e-9)


@pytest.mark.parametrize(
    ("nodes", "per_party", "corrupt", "colluding"),
    [(12, 2, 0, 2), (4, 2, 0, 2), (8, 4, 0, 6), (5, 3, 0, 3), (5, 3, 1, 3), (4, 3, 1, 2), (4, 3, 2, 2)],
)
def test_with_half_of_the_nodes_or_one_corrupt_node_more_a_sum_splits(
    nodes: int, per_party: int, corrupt: int, colluding: int
) -> None:
    """Colluders among as many parties as nodes: some honest ones are left without a common honest node. Nobody has to
    lie for it: all nodes count everyone."""
    smallest = nodes
    for theirs, bad in itertools.product(
        itertools.combinations(range(nodes), colluding), itertools.combinations(range(nodes), corrupt)
    ):
        honest = [party for party in range(nodes) if party not in theirs]
        everyone = {
            node: {party: 0 for party in range(nodes) if (node - party) % nodes < per_party} for node in range(nodes)
        }
        for members in components(honest, nodes, per_party, set(bad), everyone):
            smallest = min(smallest, len(members))
    assert (smallest < nodes - colluding) == (2 * per_party <= nodes + corrupt)


@pytest.mark.parametrize(("nodes", "per_party"), [(12, 2), (12, 6), (8, 2), (2, 1)])
def test_half_of_the_nodes_or_fewer_a_party_are_refused(nodes: int, per_party: int) -> None:
    with pytest.raises(StudyError, match="per_party"):
        method_for(study(12, 2, 0, "compute-nodes", nodes=nodes, per_party=per_party)).plan()


def test_nodes_that_see_part_of_the_parties_open_as_much_noise_as_those_that_see_all() -> None:
    """All of them know how many survivors there are."""
    some = method_for(study(12, 1, 1, "compute-nodes", nodes=12, per_party=11)).plan().sums[0]
    everyone = method_for(study(12, 1, 1, "compute-nodes", nodes=12)).plan().sums[0]
    assert some.noise.schedule == everyone.noise.schedule
    assert some.noise.schedule.components


def test_more_colluders_than_planned_leave_what_the_protocol_leaves() -> None:
    """836 of 1,000 colluding are neighbours of someone to a threshold with probability 0.87: then that party stands
    alone, with the part of its noise that is never opened."""
    plan = method_for(study(1000, 500, 50, "secagg+", coordinator="curious")).plan()
    rows = {row["colluding"]: row for row in plan.weakening()}
    planned = plan.sums[0]
    alone = planned.sensitivity * planned.encoding.scale / math.sqrt(planned.noise.schedule.base - LOST_VARIANCE)
    assert rows[836]["alone"]
    assert rows[836]["epsilon"] == pytest.approx(epsilon_of(alone, 1e-5), rel=1e-6)
    assert rows[500]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert not rows[500]["alone"]
    curious = method_for(study(10, 3, 2, "secagg", coordinator="curious")).plan()
    threshold = curious.protocol(curious.sums[0]).parameters["threshold"]
    complete = {row["colluding"]: row for row in curious.weakening()}
    assert [row["alone"] for row in complete.values()] == [count >= threshold for count in complete]


def test_one_colluder_too_many_makes_two_quorums_and_a_lying_coordinator_all_powerful() -> None:
    """Ten parties, three colluding: seven must agree. With four, two sets of seven share only those four."""
    for protocol, parties, colluding, dropouts in (("secagg", 10, 3, 2), ("secagg+", 1000, 500, 50)):
        plan = method_for(study(parties, colluding, dropouts, protocol)).plan()
        quorum = plan.protocol(plan.sums[0]).parameters["quorum"]
        rows = {row["colluding"]: row["alone"] for row in plan.weakening()}
        assert not rows[colluding]
        assert rows == {count: 2 * quorum <= parties + count for count in rows}


def test_the_chance_to_be_surrounded_is_what_random_graphs_show() -> None:
    """A bound on it, from 2,000 real graphs; five standard deviations of room (false alarm below 1e-6)."""
    degree, corrupt = Degree(10, 9), 25
    stated, rng = surrounded(50, corrupt, degree), np.random.default_rng(0)
    hits = 0
    for graph in range(2000):
        honest = set(rng.permutation(50)[corrupt:].tolist())
        circle, label = CircleGraph(50, degree), f"attempt {graph}"
        hits += any(sum(other not in honest for other in circle.neighbours(party, label)) >= 9 for party in honest)
    seen = hits / 2000
    room = 5.0 * math.sqrt(seen * (1.0 - seen) / 2000)
    assert seen - room <= stated < 1.0
    assert stated <= 2.0 * (seen + room)


def test_more_colluders_know_more_of_a_batch_of_fixed_size() -> None:
    """They know which of their own records are in it, so the honest ones are in it at a higher rate for them."""
    content = study(20, 2, 0, "compute-nodes").model_dump(exclude_none=True)
    content["method"] = {"name": "cross-silo", "rounds": 1, "rate": 0.2, "sampling": "without-replacement"}
    content["privacy"] = {"noise_multiplier": 2.0, "delta": 1e-5, "colluding": 2}
    plan = method_for(make_study(content)).plan()
    rates = [plan.sums[0].sampling.rate_if(colluding) for colluding in range(2, 16)]
    assert rates == sorted(rates)
    assert rates[0] == plan.sums[0].sampling.rate
    assert rates[-1] > 1.5 * rates[0]
    planned = plan.sums[0]
    deviation = math.sqrt(planned.noise.weakened(20, 15)) / planned.encoding.scale
    as_planned = Spend((planned.event(1, deviation),), 1)
    stated = plan._weakened(ComputeNodes(Session("", "", 20, 2, 20, 1, 64), Options()), 15)
    assert stated["epsilon"] > 1.1 * accounting.epsilon_of(as_planned, 1e-5)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("helmet", {}),
        ("moments", {}),
        ("cape", {}),
        ("fedavg", {"rounds": 2}),
        ("cross-silo", {"sampling": "without-replacement"}),
    ],
)
def test_enclaves_are_always_an_assumption(method: str, options: dict[str, Any]) -> None:
    """Of the noise; and where batches are drawn by token, that a party does not know its own."""
    content = study(10, 0, 0, "compute-nodes").model_dump(exclude_none=True)
    content["method"] = {"name": method, **options}
    content["privacy"]["enclaves"] = True
    content["privacy"]["unit"] = "party" if method == "fedavg" else "record"
    sentence = method_for(make_study(content)).plan().guarantee.sentence()
    assert "drawn in trusted execution environments" in sentence
    assert ("which of its own records are in a batch" in sentence) == (method == "cross-silo")


def test_what_is_stated_after_a_run_leaves_room_for_a_lying_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a protocol lets it leave out more parties than it says, the epsilon of what was released counts without
    them."""
    monkeypatch.setattr(ComputeNodes, "openable", lambda self, colluding: Openable(self.session.least_survivors - 2))
    plan = method_for(study(12, 1, 1, "compute-nodes")).plan()
    assert plan.trust.withheld == 2
    told = plan.guarantee_after({"model": [Participation(11, 11)]})
    assert told.epsilon == pytest.approx(plan.guarantee.epsilon, rel=1e-6)
    assert plan.guarantee_after({"model": [Participation(12, 12)]}).epsilon < told.epsilon
