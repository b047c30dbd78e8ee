"""Identities come from the study: endpoints made from its roster sum, and nobody else gets in."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from factories import make, maker
from other_packages import of_ours
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.study import StudyError, make_study
from unspoken.summation import collection, record_shuffle
from unspoken.summation.base import (
    COORDINATOR,
    Coordinator,
    Endpoint,
    Envelope,
    Protocol,
    Rejected,
    Roster,
    Session,
    Unsuitable,
    VoteShape,
    address_of,
)
from unspoken.summation.keys import Identity
from unspoken.summation.record_shuffle import RecordShuffle
from unspoken.summation.registry import PROTOCOLS, open_session
from unspoken.summation.shuffle_course import ShuffleSession
from unspoken.summation.simulated_keys import SimulatedKeys
from unspoken.types import Words

IDENTITIES = [Identity(bytes([number]) * 32) for number in range(1, 5)]
COORDINATOR_IDENTITY = Identity(bytes([99]) * 32)
HELPERS = [Identity(bytes([number]) * 32) for number in range(101, 121)]
EACH = pytest.mark.parametrize("name", PROTOCOLS)


study = maker(
    parties=4,
    roster={
        "parties": [identity.public.hex() for identity in IDENTITIES],
        "coordinator": COORDINATOR_IDENTITY.public.hex(),
        "helpers": [identity.public.hex() for identity in HELPERS[:3]],
    },
)


def opened(name: str, roster: Roster | None) -> Protocol:
    agreed = study(summation=name)
    session = Session(agreed.digest(), "model", 4, 1, 4, 6, 64, vote=VoteShape(2, 3))
    return open_session(agreed, session, roster)


def roster_for(name: str) -> Roster:
    """A roster with as many helpers as the protocol asks for."""
    needed = len(opened(name, None).helper_addresses)
    return Roster.of(study(roster={"helpers": [identity.public.hex() for identity in HELPERS[:needed]]}))


def endpoints(protocol: Protocol, identities: list[Identity]) -> tuple[Coordinator, dict[str, Endpoint]]:
    """Each made from the study and one secret of its own, as on machines of their own."""
    coordinator = protocol.coordinator(COORDINATOR_IDENTITY, SecretStream())
    everyone: dict[str, Endpoint] = {COORDINATOR: coordinator}
    for index, identity in enumerate(identities):
        everyone[address_of(index)] = protocol.party(index, identity, SecretStream())
    for index, address in enumerate(protocol.helper_addresses):
        everyone[address] = protocol.helper(index, HELPERS[index], SecretStream())
    return coordinator, everyone


def total(protocol: Protocol, rows: Words) -> Words:
    """The whole protocol, from keys to the total."""
    coordinator, everyone = endpoints(protocol, IDENTITIES)

    def deliver(envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            deliver(everyone[envelope.to].step(envelope.body))

    parties: list[Any] = [everyone[address_of(index)] for index in range(len(rows))]
    for party in parties:
        deliver(party.step(b""))
    for _ in range(coordinator.setup_stages):
        deliver(coordinator.advance())
    for party, row in zip(parties, rows, strict=True):
        deliver(party.submit(row))
    deliver(coordinator.settle())
    deliver(coordinator.agree())
    deliver(coordinator.finish())
    return coordinator.total()


@EACH
def test_endpoints_made_from_the_studys_roster_sum(name: str) -> None:
    rows = np.arange(24, dtype=np.uint64).reshape(4, 6)
    rows[0, [1, 3]] += np.uint64(100)
    found = total(opened(name, roster_for(name)), rows)
    added = rows.sum(axis=0)
    winners = added.reshape(2, 3).argmax(axis=1)
    assert found.tolist() == (winners if "vote" in PROTOCOLS[name].serves else added).tolist()


def test_a_planned_study_sums_and_collects_by_its_own_roster() -> None:
    """A study by CAPE: the sum of common noise by compute nodes, then messages in the open."""
    agreed = study("cape", summation="compute-nodes")
    plan = method_for(agreed).plan()
    planned, roster = plan.sums[0], Roster.of(agreed)
    for protocol in (plan.preparation(planned).with_roster(roster), plan.collection(planned).with_roster(roster)):
        rows = np.random.default_rng(0).integers(0, 2**32, (4, protocol.session.length), dtype=np.uint64)
        assert (total(protocol, rows) == protocol.session.reduce(rows.sum(axis=0))).all()


def test_tokens_are_shuffled_by_the_studys_own_roster() -> None:
    session = ShuffleSession(study().digest(), "list", 4)
    protocol = RecordShuffle(session, record_shuffle.Options(), Roster.of(study()))
    coordinator = protocol.coordinator(COORDINATOR_IDENTITY, SecretStream())
    parties = [protocol.party(index, identity, SecretStream(), 2) for index, identity in enumerate(IDENTITIES)]
    waiting = [envelope for party in parties for envelope in party.step(b"")]
    while waiting:
        envelope = waiting.pop(0)
        coordinates = envelope.to == COORDINATOR
        waiting += (coordinator if coordinates else parties[int(envelope.to.split(":")[1])]).step(envelope.body)
    assert len(coordinator.tokens()) == 8
    assert sorted(np.concatenate([party.positions() for party in parties]).tolist()) == list(range(8))


@EACH
def test_someone_who_is_not_in_the_roster_is_refused(name: str) -> None:
    if PROTOCOLS[name].reveals_contributions:
        return
    stranger = Identity(bytes([77]) * 32)
    _, everyone = endpoints(opened(name, roster_for(name)), [stranger, *IDENTITIES[1:]])
    party: Any = everyone[address_of(0)]
    first = (party.step(b"") or party.submit(np.zeros(6, dtype=np.uint64)))[0]
    with pytest.raises(Rejected, match=of_ours(name, "signature of party 0")):
        everyone[first.to].step(first.body)


@EACH
def test_planning_needs_no_roster_and_endpoints_do(name: str) -> None:
    planned, ready = opened(name, None), opened(name, roster_for(name))
    for public in ("assumptions", "notes", "parameters", "opens_noise", "helper_addresses"):
        assert getattr(planned, public) == getattr(ready, public)
    assert planned.openable(1) == ready.openable(1)
    assert planned.upload_bytes() == ready.upload_bytes()
    for made in (
        lambda: planned.party(0, IDENTITIES[0], SecretStream()),
        *([] if planned.reveals_contributions else [lambda: planned.coordinator(COORDINATOR_IDENTITY, SecretStream())]),
        *([lambda: planned.helper(0, HELPERS[0], SecretStream())] if planned.helper_addresses else []),
    ):
        with pytest.raises(ValueError, match=r"Expected a roster: .* needs the public keys to make endpoints"):
            made()
    if not ready.helper_addresses:
        with pytest.raises(ValueError, match="has none"):
            ready.helper(0, HELPERS[0], SecretStream())


def test_a_roster_that_does_not_fit_the_session_is_refused() -> None:
    roster = Roster.of(study())
    with pytest.raises(StudyError, match=r"\[roster\] helpers has 2 keys, but there are 3 helpers"):
        opened("compute-nodes", Roster(roster.parties, roster.coordinator, roster.helpers[:2]))
    with pytest.raises(StudyError, match=r"\[roster\] parties has 3 keys, but 4 parties take part"):
        opened("secagg", Roster(roster.parties[:3], roster.coordinator))
    with pytest.raises(Unsuitable, match="has 3 keys"):
        opened("secagg", None).with_roster(SimulatedKeys(SecretStream(), 3).roster)
    session = Session("digest", "messages", 4, 1, 4, 6, 64)
    ready = collection.Collection(session, collection.Options(), roster)
    with pytest.raises(ValueError, match="Expected 0 <= index=4 < 4 parties"):
        ready.party(4, IDENTITIES[0], SecretStream())


def test_a_million_simulated_parties_cost_nothing_up_front() -> None:
    keys = SimulatedKeys(SecretStream(), 10**6, 3)
    assert len(keys.roster.parties) == 10**6
    assert keys._identities._public == {}
    assert keys.roster.parties[999_999] == keys.identity(999_999).public
    assert keys.roster.coordinator == keys.coordinator.public
    assert keys.roster.helpers == tuple(keys.helper(index).public for index in range(3))
    assert len({keys.coordinator, *(keys.helper(index) for index in range(3))}) == 4


def test_the_same_secrets_give_the_same_simulated_keys() -> None:
    first, second = (SimulatedKeys(SecretStream(bytes(32)), 3, 2) for _ in range(2))
    assert list(first.roster.parties) == list(second.roster.parties)
    assert (first.coordinator, first.helper(1), first.helper_root(1)) == (
        second.coordinator,
        second.helper(1),
        second.helper_root(1),
    )


def test_another_roster_is_another_study() -> None:
    other = Identity(bytes([98]) * 32).public.hex()
    assert study().digest() != study(roster={"coordinator": other}).digest()


@pytest.mark.parametrize(
    ("roster", "message"),
    [
        ({"parties": ["00"]}, "should be the parties' Ed25519 keys"),
        ({"parties": [IDENTITIES[0].public.hex()] * 4}, "has the key .*… twice"),
        (
            {"parties": [identity.public.hex() for identity in IDENTITIES[:3]]},
            "has 3 keys, but \\[parties\\] count is 4",
        ),
        ({"coordinater": "x"}, "did you mean 'coordinator'"),
    ],
)
def test_a_wrong_roster_is_explained(roster: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study(roster=roster)


def test_a_study_without_a_roster_cannot_leave_simulation() -> None:
    content = study().model_dump(mode="json", exclude_none=True)
    del content["roster"]
    with pytest.raises(ValueError, match=r"\[roster\] is missing"):
        Roster.of(make_study(content))
    with pytest.raises(ValueError, match="so there cannot be 5"):
        study().with_parties(5)


@pytest.mark.parametrize(
    ("protocol", "helpers", "told"),
    [
        (
            "compute-nodes",
            0,
            'has 0 keys, but "compute-nodes" has 3 helpers here; list the key of each, in their order',
        ),
        ("compute-nodes", 1, 'has 1 key, but "compute-nodes" has 3 helpers here; list'),
        ("secagg", 3, 'has 3 keys, but "secagg" has no helpers here; remove it'),
    ],
)
def test_a_plan_is_refused_if_the_roster_has_other_helpers_than_the_protocol(
    protocol: str, helpers: int, told: str
) -> None:
    keys = [Identity(bytes([number]) * 32).public.hex() for number in range(1, 12)]
    roster = {"parties": keys[:6], "coordinator": keys[6], "helpers": keys[7 : 7 + helpers]}
    study = make("helmet", parties=6, summation=protocol, roster=roster)
    with pytest.raises(StudyError, match=re.escape(f"[roster] helpers {told}")):
        method_for(study).plan()
