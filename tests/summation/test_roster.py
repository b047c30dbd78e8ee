"""Identities come from the study: endpoints made from its roster sum, and nobody else gets in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factories import maker
from unspoken.noise.stream import SecretStream
from unspoken.study import Study, make_study
from unspoken.summation.base import Rejected, Roster, Session
from unspoken.summation.graph import complete_degree
from unspoken.summation.keys import Identity, public_key
from unspoken.summation.secagg import SecAggCoordinator, SecAggParty

IDENTITIES = [Identity(bytes([number]) * 32) for number in range(1, 5)]
SECRET = bytes([99]) * 32


study = maker(
    parties=4,
    roster={"parties": [identity.public.hex() for identity in IDENTITIES], "coordinator": public_key(SECRET).hex()},
)


def endpoints(agreed: Study, identities: list[Identity]) -> tuple[SecAggCoordinator, list[SecAggParty]]:
    """Each made from the study and one secret of its own, as on machines of their own."""
    session = Session(agreed.digest(), "model", 4, 1, 4, 3, 64)
    roster, degree = Roster.of(agreed), complete_degree(4, 0)
    parties = [
        SecAggParty(session, roster, degree, index, identity, SecretStream())
        for index, identity in enumerate(identities)
    ]
    return SecAggCoordinator(session, roster, degree, SECRET, SecretStream()), parties


def test_endpoints_made_from_the_studys_roster_sum() -> None:
    coordinator, parties = endpoints(study(), IDENTITIES)
    for party in parties:
        coordinator.step(party.step(b"")[0].body)
    for _ in range(2):
        for envelope in coordinator.advance():
            for answer in parties[int(envelope.to.split(":")[1])].step(envelope.body):
                coordinator.step(answer.body)
    for index, party in enumerate(parties):
        coordinator.step(party.submit(np.full(3, index, dtype=np.uint64))[0].body)
    for envelope in coordinator.finish():
        for answer in parties[int(envelope.to.split(":")[1])].step(envelope.body):
            coordinator.step(answer.body)
    assert coordinator.total().tolist() == [6, 6, 6]


def test_someone_who_is_not_in_the_roster_is_refused() -> None:
    stranger = Identity(bytes([77]) * 32)
    coordinator, parties = endpoints(study(), [stranger, *IDENTITIES[1:]])
    with pytest.raises(Rejected, match="signature of party 0"):
        coordinator.step(parties[0].step(b"")[0].body)


def test_another_roster_is_another_study() -> None:
    other = public_key(bytes([98]) * 32).hex()
    assert study().digest() != study(roster={"coordinator": other}).digest()


@pytest.mark.parametrize(
    ("roster", "message"),
    [
        ({"parties": ["00"]}, "should be the parties' Ed25519 keys"),
        ({"parties": [IDENTITIES[0].public.hex()] * 4}, "names a key twice"),
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
