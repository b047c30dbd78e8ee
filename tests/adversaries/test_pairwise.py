"""Pairwise masks against a coordinator that introduces parties to few others, of whom some collude with it.

What opens has all honest parties of a list in it, and no list is shorter than agreed.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adversaries.lying import session
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import COORDINATOR, Aborted, address_of
from unspoken.summation.introductions import Advertise, Framed, Introduce, introduced, mask_seed
from unspoken.summation.keys import WRAPPING_BYTES, Channel
from unspoken.summation.masks import add_masks
from unspoken.summation.pairwise import Masked, Options, Pairwise, PairwiseParty
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words

PARTIES, COLLUDING, DROPOUTS = 9, 3, 2
LEAST = PARTIES - DROPOUTS


class Few:
    """All parties have advertised their keys; the colluders' secrets are known."""

    def __init__(self, colluders: int) -> None:
        self.simulated = SimulatedEndpoints(Pairwise(session(PARTIES, COLLUDING, DROPOUTS), Options()), SecretStream())
        self.session, self.colluders = self.simulated.session, set(range(colluders))
        self.parties: dict[int, PairwiseParty] = {
            index: self.simulated.party(index, SecretStream())
            for index in range(PARTIES)  # type: ignore[misc]
        }
        self.secrets = {index: self.parties[index].state.mask_secret for index in self.colluders}
        self.adverts = {index: self._advertised(party) for index, party in self.parties.items()}

    def _advertised(self, party: PairwiseParty) -> Advertise:
        framed = msgspec.msgpack.decode(party.step(b"")[0].body, type=Framed)
        return msgspec.msgpack.decode(framed.body, type=Advertise)

    def introduce(self, party: int, others: set[int]) -> None:
        secret, key = self.simulated.keys.coordinator.agreement_secret, self.adverts[party].cipher_key
        channel = Channel(secret, key, self.session.label(), COORDINATOR, address_of(party))
        shown = [introduced(self.adverts[other]) for other in sorted(others - {party})]
        self.parties[party].step(channel.wrap(msgspec.msgpack.encode(Introduce(shown, []))))

    def sent(self, party: int) -> Words:
        """A party's vector, without the masks that the colluders know."""
        framed = msgspec.msgpack.decode(self.parties[party].submit(vector_of(party))[0].body, type=Framed)
        masked = msgspec.msgpack.decode(framed.body[WRAPPING_BYTES:], type=Masked)
        label, key = self.session.label(), self.adverts[party].mask_key
        known = [
            (mask_seed(self.secrets[other], key, label, party, other), party > other)
            for other in sorted(self.colluders)
        ]
        return add_masks(self.session.unpack(masked.vector).astype(np.uint64), known, self.session)


def vector_of(party: int) -> Words:
    return np.full(4, 1000 + party, dtype=np.uint64)


@pytest.mark.parametrize("colluders", [COLLUDING, COLLUDING + 1, LEAST - 1])
def test_each_colluder_more_takes_one_party_away_from_the_smallest_sum_that_opens(colluders: int) -> None:
    """With as many as planned, that sum has as many honest parties as the noise is sized for; with `n − D − 1` of them,
    a party is alone."""
    few = Few(colluders)
    honest = set(range(PARTIES - (LEAST - colluders), PARTIES))
    for party in honest:
        few.introduce(party, honest | few.colluders)
    total = few.session.reduce(sum((few.sent(party) for party in honest), np.zeros(4, dtype=np.uint64)))
    assert np.array_equal(total, sum(map(vector_of, honest)))
    assert len(honest) == few.simulated.protocol.openable(colluders).parties - colluders
    # No proper part of them is more than random words, as their masks with the others stay.
    if len(honest) > 1:
        assert not np.array_equal(few.session.reduce(few.sent(min(honest))), vector_of(min(honest)))


def test_a_list_with_one_party_less_is_refused() -> None:
    few = Few(COLLUDING)
    with pytest.raises(Aborted, match=f"only {LEAST - 2} neighbours were introduced; {LEAST - 1} are needed"):
        few.introduce(PARTIES - 1, set(range(LEAST - 2)) | {PARTIES - 1})
    with pytest.raises(Aborted, match="before it knew its neighbours' keys"):
        few.parties[PARTIES - 1].submit(vector_of(PARTIES - 1))
