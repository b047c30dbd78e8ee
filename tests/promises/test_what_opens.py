"""The smallest total that can open, found by playing the adversary, and the noise that is left in it.

Written down: the adversary is the coordinator with `colluding` parties (and, of compute nodes, as many as the guarantee
allows). It knows their shares and noise. Up to `dropouts` parties are gone. What it can open is found here by counting
shares and by linear algebra on what it sees, and not by what the protocols say of themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import factories
from unspoken.methods.mechanisms import Participation
from unspoken.methods.plan import Plan
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy import accounting
from unspoken.privacy.events import Spend
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.study import StudyError, make_study
from unspoken.summation.base import COORDINATOR, Session, bitmap
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.compute_nodes import ComputeNodes, Options
from unspoken.summation.graph import Degree, neighbours_of, surrounded
from unspoken.summation.keys import Channel
from unspoken.summation.node_messages import Fold, Framed, PartialTotal, Reveal, address
from unspoken.summation.registry import PROTOCOLS
from unspoken.summation.simulated_keys import SimulatedEndpoints


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
        method_for(study(parties, colluding, dropouts, protocol)).plan()
    method_for(study(parties, colluding - 1, dropouts, protocol)).plan()


def components(parties: list[int], nodes: int, per_party: int, corrupt: set[int], counted: Any) -> Iterator[set[int]]:
    """The sums over honest parties that open: `counted[node]` are those that a node counts.

    Honest nodes that fully count the same party have the same factor in any combination of their parts that is not
    random; one that counts a party which another of its nodes does not has the factor 0. Each class of nodes with a
    factor of its own opens one sum. (Which nodes a party uses is written again on purpose.)
    """
    honest_nodes = [node for node in range(nodes) if node not in corrupt]
    uses = {party: [(party + step) % nodes for step in range(per_party)] for party in parties}
    kept = {party: [node for node in uses[party] if node not in corrupt] for party in parties}
    everywhere = [party for party in parties if all(party in counted[node] for node in kept[party])]
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


def smallest_sum(parties: int, colluding: int, dropouts: int, nodes: int, per_party: int, corrupt: int) -> int:
    """Over all colluders, corrupt nodes, and lists that the coordinator may tell the honest nodes."""
    smallest = parties
    for theirs in itertools.combinations(range(parties), colluding):
        honest = [party for party in range(parties) if party not in theirs]
        for bad in itertools.combinations(range(nodes), corrupt):
            mine = {
                node: [party for party in honest if node in [(party + step) % nodes for step in range(per_party)]]
                for node in range(nodes)
                if node not in bad
            }
            choices = [
                [set(members) - set(missing) for count in range(dropouts + 1) for missing in _some(members, count)]
                for members in mine.values()
            ]
            for lists in itertools.product(*choices):
                counted = dict(zip(mine, lists, strict=True))
                for members in components(honest, nodes, per_party, set(bad), counted):
                    smallest = min(smallest, len(members))
    return smallest


def _some(members: list[int], count: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(members, count)


NODES = [
    # parties, colluding, dropouts, nodes, of them for each party
    (6, 1, 0, 3, 2),
    (6, 1, 1, 3, 3),
    (6, 2, 1, 3, 3),
    (8, 1, 1, 3, 2),
    (7, 1, 1, 4, 3),
    (6, 2, 0, 5, 3),
    (7, 1, 2, 3, 2),
]


@pytest.mark.parametrize(("parties", "colluding", "dropouts", "nodes", "per_party"), NODES)
def test_no_smaller_sum_opens_at_compute_nodes_than_the_noise_is_sized_for(
    parties: int, colluding: int, dropouts: int, nodes: int, per_party: int
) -> None:
    """By trying everything that a coordinator may tell its nodes, with as many corrupt nodes as are allowed."""
    corrupt = 2 * per_party - nodes - 1
    found = smallest_sum(parties, colluding, dropouts, nodes, per_party, corrupt)
    agreed = study(parties, colluding, dropouts, "compute-nodes", nodes=nodes, per_party=per_party)
    if parties - max(colluding, 1) < (nodes - corrupt) * dropouts + 1:
        with pytest.raises(StudyError, match="leaves no honest party"):
            method_for(agreed).plan()
        return
    plan = method_for(agreed).plan()
    assert plan.trust.honest_survivors <= found
    assert left(plan, found, False) >= plan.sums[0].noise_std * (1.0 - 1e-9)


@pytest.mark.parametrize(
    ("nodes", "per_party", "corrupt", "colluding"), [(12, 2, 0, 2), (4, 2, 0, 2), (8, 4, 0, 6), (5, 3, 1, 3)]
)
def test_with_half_of_the_nodes_or_one_corrupt_node_more_a_sum_splits(
    nodes: int, per_party: int, corrupt: int, colluding: int
) -> None:
    """Colluders among as many parties as nodes: some honest ones are left without a common honest node."""
    assert smallest_sum(nodes, colluding, 0, nodes, per_party, corrupt) < nodes - colluding


@pytest.mark.parametrize(("nodes", "per_party"), [(12, 2), (12, 6), (8, 2), (2, 1)])
def test_half_of_the_nodes_or_fewer_a_party_are_refused(nodes: int, per_party: int) -> None:
    with pytest.raises(StudyError, match="per_party"):
        method_for(study(12, 2, 0, "compute-nodes", nodes=nodes, per_party=per_party)).plan()


def test_a_coordinator_that_tells_each_node_another_list_gets_what_the_plan_expects() -> None:
    """Three nodes, two for each of six parties, two dropouts allowed. Node 1 counts everyone of its own, so its part is
    random; nodes 0 and 2 are each told that the two parties they share with node 1 are gone. What is left opens: a sum
    over two parties. So nothing may be planned for six parties and two dropouts."""
    session = Session("digest", "model", 6, 0, 4, 3, 64)
    simulated = SimulatedEndpoints(ComputeNodes(session, Options(nodes=3, per_party=2)), SecretStream())
    nodes = simulated.helpers()
    rows = np.arange(18, dtype=np.uint64).reshape(6, 3)
    for party, row in enumerate(rows):
        for envelope in simulated.party(party, SecretStream()).submit(row):
            nodes[envelope.to].step(envelope.body)
    total = np.zeros(3, dtype=np.uint64)
    for number, counted, gone in ((0, [2, 5], [0, 3]), (2, [2, 5], [1, 4])):
        survivors = np.ones(6, dtype=np.bool_)
        survivors[gone] = False
        total += revealed(simulated, nodes[address(number)], number, counted, survivors)
    assert (total == rows[[2, 5]].sum(axis=0)).all()
    assert simulated.protocol.openable(0).parties <= 2
    with pytest.raises(StudyError, match="a lying coordinator may leave out 4 more"):
        method_for(study(6, 0, 2, "compute-nodes", nodes=3, per_party=2)).plan()


def revealed(
    simulated: SimulatedEndpoints[ComputeNodes], node: Any, number: int, counted: list[int], survivors: Any
) -> Any:
    """A node's part of the total, for a coordinator that tells it this list."""
    assert isinstance(node, ComputeNode)
    keys, session = simulated.keys, simulated.session
    channel = Channel(keys.coordinator, keys.roster.helpers[number], session.label(), COORDINATOR, address(number))
    answers = []
    for message in (Fold(counted), Reveal(bitmap(survivors))):
        body = channel.wrap(msgspec.msgpack.encode(message))
        answers = node.step(msgspec.msgpack.encode(Framed(session.label(), number, memoryview(body))))
    framed = msgspec.msgpack.decode(answers[0].body, type=Framed)
    part = msgspec.msgpack.decode(channel.unwrap(framed.body), type=PartialTotal)
    return session.unpack(part.total)


def test_nodes_that_see_part_of_the_parties_open_no_noise() -> None:
    """How many components may be opened depends on the list of survivors, and each node checks its own part of it."""
    some = method_for(study(12, 1, 1, "compute-nodes", nodes=12, per_party=11)).plan().sums[0]
    everyone = method_for(study(12, 1, 1, "compute-nodes", nodes=12)).plan().sums[0]
    assert not some.noise.schedule.components
    assert everyone.noise.schedule.components
    assert some.noise.schedule.whole > everyone.noise.schedule.whole


def test_more_colluders_than_planned_leave_what_the_protocol_leaves() -> None:
    """836 of 1,000 colluding are neighbours of someone to a threshold with probability 0.87: then that party stands
    alone, with the part of its noise that is never opened."""
    plan = method_for(study(1000, 500, 50, "secagg+")).plan()
    rows = {row["colluding"]: row for row in plan.weakening()}
    planned = plan.sums[0]
    alone = planned.sensitivity * planned.encoding.scale / math.sqrt(planned.noise.schedule.base - LOST_VARIANCE)
    assert rows[836]["alone"]
    assert rows[836]["epsilon"] == pytest.approx(epsilon_of(alone, 1e-5), rel=1e-6)
    assert rows[500]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert not rows[500]["alone"]
    complete = {row["colluding"]: row for row in method_for(study(10, 3, 2, "secagg")).plan().weakening()}
    assert [row["alone"] for row in complete.values()] == [count >= 7 for count in complete]


def test_the_chance_to_be_surrounded_is_what_random_graphs_show() -> None:
    """A bound on it, from 2,000 real graphs; five standard deviations of room (false alarm below 1e-6)."""
    degree, corrupt = Degree(10, 9), 25
    stated, rng = surrounded(50, corrupt, degree), np.random.default_rng(0)
    hits = 0
    for graph in range(2000):
        honest = set(rng.permutation(50)[corrupt:].tolist())
        seed = graph.to_bytes(8, "big")
        hits += any(
            sum(int(other) not in honest for other in neighbours_of(party, 50, 10, seed)) >= 9 for party in honest
        )
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


def test_a_graph_that_may_be_cut_is_refused_by_pairwise_masks() -> None:
    with pytest.raises(StudyError, match="could cut an honest party off"):
        method_for(study(100, 50, 0, "pairwise", group=4)).plan()


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


def test_what_is_stated_after_a_run_leaves_room_for_a_lying_coordinator() -> None:
    """Where it can leave out more parties than it says, the epsilon of what was released counts without them."""
    plan = method_for(study(12, 1, 1, "compute-nodes", nodes=12, per_party=11)).plan()
    assert plan.trust.withheld == 2
    told = plan.released({"model": [Participation(11, 11)]})
    assert told.epsilon == pytest.approx(plan.guarantee.epsilon, rel=1e-6)
    assert plan.released({"model": [Participation(12, 12)]}).epsilon < told.epsilon
