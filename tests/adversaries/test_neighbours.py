"""Colluders that choose their neighbours in SecAgg+ by malice, and dealers whose shares have another degree."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from adversaries.lying import Stage, Survivors, session
from masked_sums import Run, ones, simulated
from masked_sums import session as honest_session
from unspoken.noise.schedule import NoiseSchedule
from unspoken.summation.base import Aborted, Envelope, Rejected
from unspoken.summation.evidence import convicted
from unspoken.summation.graph import ChosenGraph, CompleteGraph, Degree
from unspoken.summation.introductions import Advertise, Framed, Introduce, introduced
from unspoken.summation.secagg import SecAgg
from unspoken.summation.secagg_messages import SHARE_BYTES, Opened

PARTIES, VICTIM = 30, 0
COLLUDERS = {26, 27, 28, 29}


def crowd(dropouts: int = 2) -> Stage:
    """All colluders choose the victim as a neighbour."""
    stage = Stage(session(PARTIES, 4, dropouts), set(COLLUDERS), graph=ChosenGraph(PARTIES, Degree(14, 10)))
    for colluder in COLLUDERS:
        others = [other for other in stage.parties[colluder].state.chosen if other != VICTIM][:13]
        choose(stage, colluder, sorted([VICTIM, *others]))
    return stage


def choose(stage: Stage, party: int, chosen: list[int]) -> None:
    """A party chooses these neighbours, and no others."""
    stage.parties[party].state.chosen = chosen
    framed = msgspec.msgpack.decode(stage.parties[party].step(b"")[0].body, type=Framed)
    stage.adverts[party] = msgspec.msgpack.decode(framed.body, type=Advertise)


def sum_up(stage: Stage, survivors: set[int]) -> list[set[int]]:
    for party in stage.honest:
        stage.say(party, Survivors(stage.listed(survivors)))
    certificate = stage.certificate(stage.listed(set(stage.parties)), stage.listed(survivors))
    for party in stage.honest:
        stage.say(party, certificate)
    return stage.sums()


def test_a_victim_that_all_colluders_choose_is_opened_with_all_others_or_not_at_all() -> None:
    stage = crowd()
    stage.set_up()
    assert stage.partners[VICTIM] >= COLLUDERS
    assert sum_up(stage, set(stage.parties)) == [set(stage.honest)]


@pytest.mark.parametrize("honest_choosers", [0, 1])
def test_a_victim_that_is_shown_its_choosers_among_colluders_alone_is_not_opened_alone(honest_choosers: int) -> None:
    """Honest parties that chose it mask with it, and it does not know: the total is spoilt, for the coordinator."""
    stage = crowd()
    for party in stage.parties:
        shown = stage.introduction(party)
        if party == VICTIM:
            honest = [each for each in shown.choosers if each.sender not in COLLUDERS]
            malicious = [each for each in shown.choosers if each.sender in COLLUDERS]
            shown = Introduce(shown.chosen, [*honest[:honest_choosers], *malicious])
            assert len(honest) > 1
        stage.say(party, shown)
    for party in stage.parties:
        stage.say(party, stage.relay(party, set(stage.parties[party].state.keys)))
    for party in stage.parties:
        stage.say(party, stage.begin(set(stage.parties)))
    assert stage.partners[VICTIM] >= {*COLLUDERS, *stage.parties[VICTIM].state.chosen}
    assert sum_up(stage, set(stage.parties)) == []


@pytest.mark.parametrize(("choosers", "falls"), [({26}, True), ({7}, False)], ids=["a colluder", "an honest party"])
def test_a_survivor_is_left_out_unnoticed_only_if_no_other_honest_party_chose_it(
    choosers: set[int], falls: bool
) -> None:
    """Those whom it chose are not told, so they mask without it, and all sign that it survived: noise is opened for one
    party more than is in the sum. An honest party that chose it masks with it, and so spoils this."""
    stage = Stage(session(PARTIES, 4, 2), set(COLLUDERS), graph=ChosenGraph(PARTIES, Degree(14, 10)))
    for party in range(1, PARTIES):
        others = [other for other in range(1, PARTIES) if other != party]
        some = np.random.default_rng(party).permutation(others)[: 14 - (party in choosers)].tolist()
        choose(stage, party, sorted([*some, *([VICTIM] if party in choosers else [])]))
    for party in stage.parties:
        shown = stage.introduction(party)
        stage.say(party, Introduce(shown.chosen, [each for each in shown.choosers if each.sender != VICTIM]))
    for party in stage.parties:
        stage.say(party, stage.relay(party, set(stage.parties[party].state.keys)))
    for party in stage.parties:
        stage.say(party, stage.begin(set(stage.parties)))
    assert VICTIM in stage.vectors
    assert sum_up(stage, set(stage.parties)) == ([set(stage.honest) - {VICTIM}] if falls else [])


def test_the_messages_of_a_victim_that_everyone_chooses_are_within_the_stated_size() -> None:
    """Also those that it gets: nobody can have an honest party's messages refused by choosing it."""
    agreed = session(PARTIES, 4, 2)
    stage = crowd()
    for party in range(1, PARTIES):
        others = [other for other in range(1, PARTIES) if other != party][:13]
        choose(stage, party, [VICTIM, *others])
    protocol = SecAgg(agreed, stage.options)
    protocol.graph = stage.simulated.protocol.graph
    stage.set_up()
    everyone = set(stage.parties)
    said = [stage.introduction(VICTIM), stage.relay(VICTIM), stage.begin(everyone)]
    for party in stage.honest:
        stage.say(party, Survivors(stage.listed(everyone)))
    said.append(stage.certificate(stage.listed(everyone), stage.listed(everyone)))
    answer = stage.say(VICTIM, said[-1])
    assert isinstance(answer, Opened)
    assert len(answer.alive) == PARTIES - 1
    assert max(len(msgspec.msgpack.encode(each)) for each in (*said, answer)) <= protocol.largest_message


@pytest.mark.parametrize(
    "chosen",
    [
        [1, 1, *range(2, 14)],
        [2, 1, *range(3, 15)],
        [0, *range(1, 14)],
        [*range(1, 14), PARTIES],
        list(range(1, 16)),
        list(range(1, 14)),
        [],
    ],
    ids=["twice", "unsorted", "itself", "stranger", "too many", "too few", "nobody"],
)
def test_a_choice_of_neighbours_that_is_none_costs_its_party_only(chosen: list[int]) -> None:
    """It is refused when it comes, and nothing is remembered of it: the same party may still choose rightly."""
    stage = Stage(session(PARTIES, 4, 2), set(), graph=ChosenGraph(PARTIES, Degree(14, 10)))
    coordinator = stage.simulated.coordinator()
    right = stage.parties[0].step(b"")[0].body
    stage.parties[0].state.chosen = chosen
    before = coordinator.dump()
    with pytest.raises(Rejected, match="party 0 chose neighbours that it may not have"):
        coordinator.step(stage.parties[0].step(b"")[0].body)
    assert coordinator.dump() == before
    coordinator.step(right)


@pytest.mark.parametrize("places", ["chosen", "choosers", "both"])
def test_a_colluder_that_is_introduced_twice_ends_the_attempt_at_the_party(places: str) -> None:
    """Shares dealt twice to the same holder would let fewer holders than planned open them."""
    stage = Stage(session(PARTIES, 4, 2), {29}, graph=ChosenGraph(PARTIES, Degree(14, 10)))
    honest, party = stage.introduction(0), stage.parties[0]
    again = introduced(stage.adverts[party.state.chosen[0] if places != "choosers" else honest.choosers[0].sender])
    chosen = [*honest.chosen, again] if places == "chosen" else honest.chosen
    choosers = honest.choosers if places == "chosen" else [*honest.choosers, again]
    with pytest.raises(Aborted, match="a party was introduced twice, or is not a neighbour"):
        party.step(stage.channel(0).wrap(msgspec.msgpack.encode(Introduce(chosen, choosers))))
    assert not stage.deals


class OtherDegree(Run):
    """Party 2 deals shares of which so many are needed, and says that they are like all others."""

    needed = 0

    def send(self, index: int, envelopes: list[Envelope]) -> None:
        party, degree = self.parties[2], self.protocol.protocol.graph.degree
        if not isinstance(party._graph, _Other):
            party._graph = _Other(7, Degree(degree.neighbours, self.needed))
        super().send(index, envelopes)


class _Other(CompleteGraph): ...


@pytest.mark.parametrize(("absent", "kind"), [({5, 6}, "alive"), ({2, 6}, "gone")])
@pytest.mark.parametrize("more", [-3, -1, 0, 1, 2])
def test_shares_of_another_degree_cost_their_dealer_or_name_it_with_evidence(
    absent: set[int], kind: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven parties, threshold four, two of them gone: four or five shares are opened, as few as may be. Of a lower
    degree the secret is the same. (Fewer colluders then open this dealer's own secrets.)"""
    protocol = simulated(SecAgg, honest_session())
    threshold = protocol.protocol.graph.degree.threshold
    monkeypatch.setattr(OtherDegree, "needed", threshold + more)
    run = OtherDegree(protocol, ones(), absent=absent)
    holders = 7 - len(absent) - (2 not in absent)
    assert holders in (threshold, threshold + 1)
    if more <= 0:
        assert (run.total() == 7 - len(absent)).all()
        return
    with pytest.raises(Aborted, match="shares that party 2 dealt do not give the secret") as caught:
        run.total()
    assert caught.value.blamed == ("party:2",)
    assert list(convicted(protocol.protocol, caught.value.evidence)) == ["party:2"]


def test_noise_is_opened_for_the_list_alone_whoever_sent_a_vector(seeds: Callable[[int, int], range]) -> None:
    """Every set of parties that sent vectors, and every list that a lying coordinator names: honest parties open
    seeds of those in the list that sent, as many components as the plan has for the length of the list, and what opens
    is the sum over the list or nothing."""
    schedule, parties, colluder = NoiseSchedule.plan(7, 1, 2, 1e6, 1.0), 7, 6
    sets = [set(each) for size in (5, 6, 7) for each in itertools.combinations(range(parties), size)]
    pairs = list(itertools.product(sets, sets))
    drawn = np.random.default_rng(1).permutation(len(pairs))[: len(seeds(25, 400))]
    some = [(each, each) for each in sets[::6]] + [pairs[place] for place in drawn]
    opened = 0
    for sent, listed in some:
        stage = Stage(session(parties, 1, 2, schedule=schedule), {colluder})
        for say in (stage.introduction, stage.relay):
            for party in range(parties):
                stage.say(party, say(party))
        for party in sent:
            stage.say(party, stage.begin(set(range(parties))))
        found = sum_up(stage, listed)
        assert found in ([], [listed - {colluder}]), (sent, listed)
        assert not found or listed - {colluder} <= sent
        size = SHARE_BYTES * (1 + len(schedule.opened(len(listed))))
        for _, _, answer in stage.opened:
            assert set(answer.alive) <= listed, (sent, listed)
            assert set(answer.alive) - {colluder} <= sent, (sent, listed)
            assert len(answer.alive_shares) == size * len(answer.alive)
        opened += bool(found)
    assert opened >= len(sets[::6])
