"""A coordinator that says the right things in the wrong order, twice, or cut short, and parties that do so.

Each message is refused by a sentence that says why, and what is only rejected changes nothing: the honest course goes
on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from adversaries.lying import DealtShares, Stage, Survivors, session
from adversaries.lying_nodes import NodeStage
from adversaries.lying_nodes import session as session_of_nodes
from unspoken.noise.schedule import NoiseSchedule
from unspoken.summation.base import Aborted, Message, Rejected
from unspoken.summation.introductions import Framed
from unspoken.summation.keys import seal
from unspoken.summation.node_messages import PartialTotal
from unspoken.summation.secagg_messages import SHARE_BYTES, Checked, marks_of

EVERYONE = set(range(6))
EARLY: dict[str, tuple[Callable[[Stage], Message], str]] = {
    "shares": (lambda stage: DealtShares([], [], b""), "shares came before the neighbours were introduced"),
    "dealers": (lambda stage: stage.begin(EVERYONE), "the dealers were named before their shares came"),
    "survivors": (lambda stage: Survivors(stage.listed(EVERYONE)), "before this party had sent its vector"),
}


def introduced() -> Stage:
    stage = Stage(session(6, 1, 1), {5})
    for party in EVERYONE:
        stage.say(party, stage.introduction(party))
    return stage


def relayed() -> Stage:
    stage = introduced()
    for party in EVERYONE:
        stage.say(party, stage.relay(party))
    return stage


def assert_refused(stage: Stage, message: Message, error: type[Exception], reason: str) -> None:
    """The first party refuses the message. After a rejection it is what it was."""
    party = stage.parties[0]
    before = party.dump()
    with pytest.raises(error, match=reason):
        party.step(stage.channel(0).wrap(msgspec.msgpack.encode(message)))
    assert party.dump() == before


@pytest.mark.parametrize("which", EARLY)
def test_what_comes_too_early_changes_nothing(which: str) -> None:
    message, reason = EARLY[which]
    assert_refused(Stage(session(6, 1, 1), {5}), message(Stage(session(6, 1, 1), {5})), Rejected, reason)
    if which != "shares":
        assert_refused(introduced(), message(introduced()), Rejected, reason)
    if which == "survivors":
        assert_refused(relayed(), message(relayed()), Rejected, reason)


def test_neighbours_shares_and_dealers_are_told_once() -> None:
    """Told again, they change nothing; told otherwise, they end the attempt, except for shares, of which the first
    ones count."""
    stage = introduced()
    assert_refused(stage, stage.introduction(0), Rejected, "introduced twice")
    assert_refused(stage, stage.introduction(0, EVERYONE - {4}), Aborted, "two different sets of neighbours")
    stage = relayed()
    for dealers in (EVERYONE, {1, 2}, set[int]()):
        assert_refused(stage, stage.relay(0, dealers), Rejected, "shares came twice")
    stage.say(0, stage.begin(EVERYONE))
    assert_refused(stage, stage.relay(0), Rejected, "shares came twice")
    assert_refused(stage, stage.begin(EVERYONE), Rejected, "the dealers were named twice")
    assert_refused(stage, stage.begin(EVERYONE - {4}), Aborted, "two different lists of dealers")
    with pytest.raises(Rejected, match="told to begin after its masks were agreed on"):
        stage.parties[0].step(b"")


def test_shares_without_their_seals_or_marks_change_nothing() -> None:
    stage = introduced()
    whole = stage.relay(0)
    for cut in ({"sealed": whole.sealed[:-1]}, {"marks": whole.marks[:-16]}, {"senders": whole.senders[:-1]}):
        broken = msgspec.structs.replace(whole, **cut)
        assert_refused(stage, broken, Rejected, "shares came without their senders or their marks")
    assert stage.say(0, whole) == Checked([])


@pytest.mark.parametrize("length", [0, 1, 2 * SHARE_BYTES - 1, 2 * SHARE_BYTES, 2 * SHARE_BYTES + 1])
def test_a_share_of_another_length_is_complained_about_even_if_its_dealer_marked_it(length: int) -> None:
    """If it were kept, its holder could not open what it is asked for, and would be blamed for that."""
    stage, share = introduced(), bytes(length)
    sealed = seal(stage.parties[1]._seal(0), 1, share)
    marks = marks_of(stage.label, 1, 0, share).ljust(32, b"\0")[:32]
    answer = stage.say(0, DealtShares([1], [sealed], marks))
    good = length == 2 * SHARE_BYTES
    assert answer == Checked([] if good else [1])
    assert (1 in stage.parties[0].state.inbox) == good


def test_who_has_not_advertised_its_keys_or_checks_twice_is_refused() -> None:
    stage = Stage(session(6, 1, 1), set())
    coordinator: Any = stage.simulated.coordinator()
    adverts = {party: stage.parties[party].step(b"")[0].body for party in EVERYONE}
    borrowed = Framed(stage.label, 1, memoryview(msgspec.msgpack.encode(stage.adverts[0])))
    with pytest.raises(Rejected, match="party 1 advertised keys of party 0"):
        coordinator.step(msgspec.msgpack.encode(borrowed))
    for party in EVERYONE - {5}:
        coordinator.step(adverts[party])
    answers = {int(to[-1]): stage.parties[int(to[-1])].step(body) for to, body in coordinator.advance()}
    with pytest.raises(Rejected, match="party 5 sent a message but had not advertised keys"):
        coordinator.step(adverts[5])
    for ((_, body),) in answers.values():
        coordinator.step(body)
    checked = {int(to[-1]): stage.parties[int(to[-1])].step(body)[0].body for to, body in coordinator.advance()}
    coordinator.step(checked[0])
    before = coordinator.dump()
    with pytest.raises(Rejected, match="party 0 checked shares twice, or dealt none"):
        coordinator.step(checked[0])
    assert coordinator.dump() == before


def test_a_node_signs_no_list_with_digests_too_many_or_too_few() -> None:
    stage = NodeStage(session_of_nodes(5, 1), corrupt={1, 2})
    stage.post()
    whole = stage.proposal(range(5))
    before = stage.endpoints[0].dump()
    for digests in (b"", whole.digests[:-1], whole.digests + bytes(32)):
        with pytest.raises(Rejected, match=f"the digests of the survivors' keys have {len(digests)} bytes"):
            stage.say(0, msgspec.structs.replace(whole, digests=digests))
    assert stage.endpoints[0].dump() == before
    stage.signatures(whole)


def test_a_part_with_other_noise_seeds_than_those_to_be_opened_is_refused() -> None:
    schedule = NoiseSchedule.plan(5, 1, 2, 1e6, 1.0)
    stage = NodeStage(session_of_nodes(5, 2, schedule=schedule), corrupt={1, 2})
    coordinator: Any = stage.simulated.coordinator()
    stage.post()
    waiting = coordinator.settle()
    for ask in (coordinator.agree, coordinator.finish):
        while waiting:
            to, body = waiting.pop(0)
            waiting += coordinator.step(body) if to == "coordinator" else stage.endpoints[int(to[-1])].step(body)
        waiting = ask()
    total, due = memoryview(stage.agreed.pack(stage.agreed.zeros())), 32 * len(schedule.opened(5)) * 5
    assert due
    for length in (0, due - 32, due + 32):
        with pytest.raises(Rejected, match=f"node 2 sent {length} bytes of noise seeds"):
            coordinator.step(stage.said_by(2, PartialTotal(total, bytes(length))))
