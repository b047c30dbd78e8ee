"""SecAgg and SecAgg+ against a coordinator that lies: what worked on earlier protocols, and fails here.

Each attack is played against the real endpoints. It fails with as many colluders as planned; where a bound is the
point, one colluder more makes it succeed.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest

from adversaries.lying import Begin, DealtShares, Stage, Survivors, session
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Rejected, Unsuitable
from unspoken.summation.graph import ChosenGraph, CircleGraph, Degree
from unspoken.summation.introductions import introduced
from unspoken.summation.secagg import Options, SecAgg, quorum_of
from unspoken.summation.secagg_messages import SHARE_BYTES, agreed_statement


def agree_and_open(stage: Stage, lists: dict[int, set[int]], dealers: set[int]) -> None:
    """Tell each party its own list of survivors, collect signatures, and ask everyone to open for its list."""
    for party, survivors in lists.items():
        stage.say(party, Survivors(stage.listed(survivors)))
    for party, survivors in lists.items():
        stage.say(party, stage.certificate(stage.listed(dealers), stage.listed(survivors)))


def test_an_honest_run_opens_one_sum_of_all_survivors() -> None:
    stage = Stage(session(7, 2, 2), colluders={5, 6})
    stage.set_up()
    everyone = set(range(7))
    agree_and_open(stage, dict.fromkeys(range(7), everyone), everyone)
    assert stage.sums() == [{0, 1, 2, 3, 4}]
    assert not stage.known_keys()


@pytest.mark.parametrize(("more", "falls"), [(0, False), (1, True)])
def test_two_survivor_lists_need_one_colluder_more_than_planned(more: int, falls: bool) -> None:
    """Alive for some and gone for others, a party would be unmasked: both lists need a quorum."""
    parties, planned = 11, 2
    colluders = set(range(planned + more))
    stage = Stage(session(parties, planned, 3), colluders)
    stage.set_up()
    everyone, victim = set(range(parties)), parties - 1
    others = sorted(everyone - colluders - {victim})
    half = (len(others) + 1) // 2
    lists = {party: everyone - {victim} for party in others[:half]} | dict.fromkeys(others[half:], everyone)
    lists[victim] = everyone
    agree_and_open(stage, lists, everyone)
    both = stage.known_seeds() & stage.known_keys()
    assert (victim in both) == falls
    assert ({victim} in stage.sums()) == falls


def test_two_quorums_are_possible_only_above_the_planned_colluders() -> None:
    for parties in range(2, 40):
        for colluding in range(parties):
            quorum = quorum_of(parties, colluding)
            # Two sets of signers, which share no honest one, have 2q signatures of n − T honest ones and twice T.
            assert 2 * quorum > parties - colluding + 2 * colluding
            assert 2 * (quorum - 1) <= parties + colluding


def test_a_party_signs_one_statement_an_attempt() -> None:
    stage = Stage(session(7, 0, 2), colluders=set())
    stage.set_up()
    assert stage.say(0, Survivors(stage.listed({0, 1, 2, 3, 4, 5})))
    assert stage.say(0, Survivors(stage.listed({0, 1, 2, 3, 4, 5})))
    assert stage.say(0, Survivors(stage.listed({0, 1, 2, 3, 4, 6}))) is None
    assert len({survivors for _, _, survivors in stage.signatures}) == 1


def test_shares_are_opened_only_for_a_quorum_of_valid_signatures_of_distinct_parties() -> None:
    stage = Stage(session(7, 2, 2), colluders={5, 6})
    stage.set_up()
    everyone = stage.listed(set(range(7)))
    for party in range(3):
        stage.say(party, Survivors(everyone))
    assert stage.quorum == 5
    whole = stage.certificate(everyone, everyone)
    assert stage.say(0, whole) is not None, "three honest signatures and two of colluders are a quorum"
    for party in (1, 2):
        fewer = msgspec.structs.replace(
            whole, signers=stage.listed({0, 1, 2, 5}), signatures=whole.signatures[: 4 * 64]
        )
        assert stage.say(party, fewer) is None
        forged = whole.signatures[:256] + bytes(64)
        assert stage.say(party, msgspec.structs.replace(whole, signatures=forged)) is None
        twice = whole.signatures[:64] * 5
        assert stage.say(party, msgspec.structs.replace(whole, signatures=twice)) is None
        other = agreed_statement(stage.label, everyone, stage.listed(set(range(6))))
        signatures = b"".join(stage.identity(signer).sign(other) for signer in (0, 1, 2, 5, 6))
        assert stage.say(party, msgspec.structs.replace(whole, signatures=signatures)) is None
    # One that has agreed on nothing opens nothing, whoever else has.
    assert stage.say(3, whole) is None


def test_a_party_that_was_shown_other_dealers_is_not_opened_by_the_quorum() -> None:
    """The victim masks among few dealers; the others, who saw more, would open its seed if it had signed nothing."""
    parties, colluders = 11, {0, 1}
    stage = Stage(session(parties, 2, 3), colluders)
    everyone, victim = set(range(parties)), 10
    for party in everyone:
        stage.say(party, stage.introduction(party))
    for party in everyone:
        stage.say(party, stage.relay(party))
    few = everyone - {7, 8, 9}
    for party in everyone:
        stage.say(party, stage.begin(few if party == victim else everyone))
    honest = dict.fromkeys(sorted(everyone - colluders - {victim}), everyone)
    agree_and_open(stage, honest, everyone)
    assert stage.opened, "the others have a quorum among themselves"
    assert victim not in stage.known_seeds()
    # A signature on the dealers that it saw is none on those that the quorum saw.
    stage.say(victim, stage.certificate(stage.listed(few), stage.listed(everyone)))
    assert victim not in stage.known_seeds()
    assert all(victim not in group for group in stage.sums())


@pytest.mark.parametrize(
    ("more", "opens", "falls"), [(0, False, False), (4, False, False), (5, True, False), (18, True, True)]
)
def test_vectors_among_a_few_neighbours_never_make_a_total(more: int, opens: bool, falls: bool) -> None:
    """Shares are relayed among a few parties only, and all are told that everyone survived. With five colluders more
    than planned the few are part of a quorum, and open shares; but the others' masks stay, unless they all collude."""
    few, colluders = set(range(12)), {0, 1, 2, *range(12, 12 + more)}
    stage = Stage(session(30, 3, 2), colluders, graph=ChosenGraph(30, Degree(12, 9)))
    assert len(few | colluders) - stage.quorum == more - 5
    for party in range(30):
        stage.say(party, stage.introduction(party))
    for party in few:
        stage.say(party, stage.relay(party))
    for party in few:
        stage.say(party, stage.begin(set(range(30))))
    everyone = set(range(30))
    agree_and_open(stage, dict.fromkeys(few, everyone), everyone)
    assert bool(stage.opened) == opens
    assert bool(stage.sums()) == falls


@pytest.mark.parametrize("sent", [8, 10])
def test_a_list_of_survivors_that_did_not_all_send_opens_nothing(sent: int) -> None:
    """Components of the noise are opened for as many as are said to be there: those who are not there keep it shut."""
    schedule = NoiseSchedule.plan(10, 1, 2, 1e6, 1.0)
    stage = Stage(session(10, 1, 2, schedule=schedule), colluders={0})
    everyone = set(range(10))
    for party in everyone:
        stage.say(party, stage.introduction(party))
    for party in everyone:
        stage.say(party, stage.relay(party))
    for party in range(sent):
        stage.say(party, stage.begin(everyone))
    agree_and_open(stage, dict.fromkeys(range(sent), everyone), everyone)
    assert stage.opened
    assert stage.sums() == ([] if sent < 10 else [everyone - {0}])


@pytest.mark.parametrize("sent", [8, 9, 10])
def test_noise_is_opened_for_as_many_as_are_in_the_list_and_no_more(sent: int) -> None:
    schedule = NoiseSchedule.plan(10, 1, 2, 1e6, 1.0)
    stage = Stage(session(10, 1, 2, schedule=schedule), colluders={0})
    stage.set_up()
    survivors = set(range(sent))
    agree_and_open(stage, dict.fromkeys(survivors, survivors), set(range(10)))
    size = SHARE_BYTES * (1 + len(schedule.opened(sent)))
    assert len(stage.opened) == sent
    assert all(len(opened.alive_shares) == size * len(opened.alive) > 0 for _, _, opened in stage.opened)


def test_nothing_of_one_attempt_is_worth_anything_in_another() -> None:
    """Keys, shares, signatures: the label of every attempt is another, and all of them are bound to it."""
    keys = bytes(32)
    first = Stage(session(7, 1, 2, attempt=bytes(16)), {6}, keys=SecretStream(keys))
    second = Stage(session(7, 1, 2, attempt=bytes([1]) * 16), {6}, keys=SecretStream(keys))
    first.set_up()
    old = [introduced(first.adverts[other]) for other in range(1, 7)]
    fresh = second.introduction(0)
    with pytest.raises(Rejected, match="does not match its identity"):
        second.parties[0]._meet(msgspec.structs.replace(fresh, chosen=old), lambda: None)
    second.set_up()
    relayed = first.relay(0)
    third = Stage(session(7, 1, 2), {6}, keys=SecretStream(keys))
    for party in range(7):
        third.say(party, third.introduction(party))
    checked = third.say(0, DealtShares(relayed.senders, relayed.sealed, relayed.marks))
    assert checked is not None
    assert checked.complaints == relayed.senders  # type: ignore[union-attr]
    everyone = first.listed(set(range(7)))
    for party in range(6):
        first.say(party, Survivors(everyone))
        second.say(party, Survivors(everyone))
    assert second.say(0, first.certificate(everyone, everyone)) is None


def test_a_party_keeps_to_the_neighbours_that_it_drew() -> None:
    stage = Stage(session(40, 4, 2), set(), graph=ChosenGraph(40, Degree(10, 6)))
    party, whole = stage.parties[0], stage.introduction(0)
    stranger = next(other for other in range(1, 40) if other not in party.state.chosen)
    with pytest.raises(Aborted, match="not a neighbour"):
        party._meet(
            msgspec.structs.replace(whole, chosen=[*whole.chosen, introduced(stage.adverts[stranger])], choosers=[]),
            lambda: None,
        )
    with pytest.raises(Aborted, match="only 5 neighbours were introduced; 6 are needed"):
        party._meet(msgspec.structs.replace(whole, chosen=whole.chosen[:5]), lambda: None)
    stage.say(0, whole)
    for other in range(1, 40):
        stage.say(other, stage.introduction(other))
    stage.say(0, stage.relay(0))


@pytest.mark.parametrize(("left", "enough"), [(5, False), (6, True)])
def test_a_party_sends_its_vector_only_if_those_who_could_open_its_masks_are_among_the_dealers(
    left: int, enough: bool
) -> None:
    """With one holder of its shares less than the threshold the vector would be a spend for nothing: no total with it
    could ever be opened. (Nor could it be opened alone: an honest holder's share is needed, and who opens it is masked
    with.) So it is kept back."""
    stage = Stage(session(40, 4, 5), set(), graph=ChosenGraph(40, Degree(10, 6)))
    for party in range(40):
        stage.say(party, stage.introduction(party))
    for party in range(40):
        stage.say(party, stage.relay(party))
    chosen = stage.parties[0].state.chosen
    dealers = set(range(40)) - set(chosen[left:])
    assert stage.say(0, stage.begin(dealers)) is None
    assert bool(stage.parties[0].state.dealers) == (0 in stage.vectors) == enough
    if not enough:
        with pytest.raises(Aborted, match="only 5 neighbours are left; 6 are needed"):
            stage.parties[0]._begin(stage.begin(dealers))


def test_withheld_keys_of_chosen_neighbours_are_noticed_when_the_dealers_are_named() -> None:
    stage = Stage(session(40, 4, 2), set(), graph=ChosenGraph(40, Degree(10, 6)))
    party = stage.parties[0]
    hidden = party.state.chosen[0]
    stage.say(0, stage.introduction(0, set(range(40)) - {hidden}))
    stage.say(0, DealtShares([], [], b""))
    with pytest.raises(Aborted, match=f"party {hidden} is among the dealers, but its keys were not introduced"):
        party._begin(Begin(stage.listed(set(range(40)))))


def test_a_public_circle_can_be_ground_by_the_coordinator_and_a_choice_of_its_own_cannot() -> None:
    """On the circle an attempt decides the graph: among a few thousand one surrounds the victim with colluders."""
    parties, colluders = 30, set(range(10))
    graph = CircleGraph(parties, Degree(4, 3))
    surrounded = (
        attempt
        for attempt in itertools.count(1)
        if set(graph.neighbours(29, session(parties, 10, 1, attempt.to_bytes(16, "big")).label())) <= colluders
    )
    assert next(surrounded) < 5000
    own = ChosenGraph(parties, Degree(4, 3))
    stages = [Stage(session(parties, 10, 1, bytes(16)), colluders, graph=own) for _ in range(4)]
    chosen = {tuple(stage.parties[29].state.chosen) for stage in stages}
    assert len(chosen) == 4, "the label does not decide it"


def test_a_lower_bound_on_survivors_holds_at_every_step() -> None:
    stage = Stage(session(7, 1, 2), {6})
    for party in range(7):
        stage.say(party, stage.introduction(party))
    for party in range(7):
        stage.say(party, stage.relay(party))
    assert stage.say(0, stage.begin({0, 1, 2, 3})) is None
    assert not stage.parties[0].state.dealers
    with pytest.raises(Aborted, match="left out this party"):
        stage.parties[0]._begin(stage.begin({1, 2, 3, 4, 5, 6}))
    for party in range(7):
        stage.say(party, stage.begin({0, 1, 2, 3, 4, 5}))
    assert stage.say(0, Survivors(stage.listed({0, 1, 2, 3}))) is None
    assert stage.say(0, Survivors(stage.listed({1, 2, 3, 4, 5}))) is None
    assert stage.say(0, Survivors(stage.listed({0, 1, 2, 3, 4, 6}))) is None, "6 is not among the dealers"
    assert stage.say(0, Survivors(stage.listed({0, 1, 2, 3, 4}))) is not None


@pytest.mark.parametrize(("parties", "colluding", "dropouts"), [(3, 1, 1), (10, 7, 2), (20, 10, 9), (10, 4, 4)])
def test_studies_without_room_for_a_quorum_are_refused_with_the_remedy(
    parties: int, colluding: int, dropouts: int
) -> None:
    with pytest.raises(Unsuitable, match=r"must agree on the survivors .*; set (dropouts|colluding) = \d"):
        SecAgg(session(parties, colluding, dropouts), Options())


@pytest.mark.parametrize(("colluding", "dropouts"), [(2, 4), (2, 6), (2, 7), (2, 8), (5, 3), (10, 0)])
def test_a_curious_coordinator_is_a_remedy_only_where_it_helps(colluding: int, dropouts: int) -> None:
    agreed = session(10, colluding, dropouts)
    with pytest.raises(Unsuitable) as refused:
        SecAgg(agreed, Options())
    assert "-1" not in refused.value.problem
    if "curious" in refused.value.problem:
        SecAgg(agreed, Options(coordinator="curious"))
    else:
        with pytest.raises(Unsuitable, match=r"can unmask another; set (dropouts|colluding) = "):
            SecAgg(agreed, Options(coordinator="curious"))


def test_a_finished_party_keeps_no_secret() -> None:
    schedule = NoiseSchedule.plan(7, 1, 2, 1e6, 1.0)
    stage = Stage(session(7, 1, 2, schedule=schedule), set())
    secrets = [
        secret
        for party in stage.parties.values()
        for secret in (party.state.cipher_secret, party.state.mask_secret, party.state.self_seed, *party.seeds)
    ]
    stage.set_up()
    everyone = set(range(7))
    inboxes = [share for party in stage.parties.values() for share in party.state.inbox.values()]
    agree_and_open(stage, dict.fromkeys(range(7), everyone), everyone)
    for party in stage.parties.values():
        party.forget_vector()
        dumped = party.dump()
        assert not any(secret in dumped for secret in [*secrets, *inboxes])
        with pytest.raises(Rejected, match="its part of the sum is over"):
            party.step(b"")


@pytest.mark.parametrize(("colluders", "falls"), [({0}, False), ({0, 1}, True)])
def test_a_party_that_is_set_back_to_before_it_signed_counts_as_a_colluder(colluders: set[int], falls: bool) -> None:
    """With a state older than its signature it signs again: with one colluder less than planned that is safe."""
    stage = Stage(session(11, 2, 3), colluders)
    stage.set_up()
    stale = stage.parties[10].dump()
    everyone, victim = set(range(11)), 9
    others = sorted(everyone - colluders - {victim, 10})
    agree_and_open(stage, dict.fromkeys([*others[:4], 10], everyone - {victim}), everyone)
    stage.parties[10].load(stale)
    agree_and_open(stage, dict.fromkeys([*others[4:], victim, 10], everyone), everyone)
    assert (victim in stage.known_keys() & stage.known_seeds()) == falls
