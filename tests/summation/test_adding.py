"""Sums that hide nothing can be added up in several places, and each party is in the total once."""

from __future__ import annotations

import numpy as np
import pytest

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import collection, compute_nodes, ideal
from unspoken.summation.base import Protocol, Rejected, Session
from unspoken.summation.simulated_keys import SimulatedEndpoints

SESSION = Session("digest", "sum", 9, 0, 5, 4, 32)


def endpoints(kind: type[Protocol], options: Section, session: Session = SESSION) -> SimulatedEndpoints[Protocol]:
    return SimulatedEndpoints(kind(session, options), SecretStream(bytes(32)))


IN_THE_OPEN = [(ideal.Ideal, ideal.Options()), (collection.Collection, collection.Options())]


@pytest.mark.parametrize(("kind", "options"), IN_THE_OPEN)
def test_parts_make_the_whole_and_no_party_is_in_it_twice(kind: type[Protocol], options: Section) -> None:
    simulated = endpoints(kind, options)
    vectors = np.random.default_rng(0).integers(0, 2**32, (9, 4), dtype=np.uint64)
    whole, parts = simulated.coordinator(), []
    for start in (0, 4):
        part = simulated.coordinator()
        for index in range(start, start + 4):
            part.step(simulated.party(index, SecretStream(bytes(32))).submit(vectors[index])[0].body)
        parts.append(part.part() or b"")
    for part in reversed(parts):
        whole.absorb(part)
    assert (whole.total() == vectors[:8].sum(axis=0) % 2**32).all()
    assert whole.survivors().tolist() == [True] * 8 + [False]
    with pytest.raises(Rejected, match="a second message came from party 0"):
        whole.absorb(parts[0])
    with pytest.raises(Rejected, match="a second message came from party 5"):
        whole.step(simulated.party(5, SecretStream(bytes(32))).submit(vectors[5])[0].body)
    assert (whole.total() == vectors[:8].sum(axis=0) % 2**32).all()


def test_a_part_of_another_sum_is_rejected() -> None:
    other = endpoints(ideal.Ideal, ideal.Options(), Session("digest", "another", 9, 0, 5, 4, 32)).coordinator()
    with pytest.raises(Rejected, match="another study or another sum"):
        endpoints(ideal.Ideal, ideal.Options()).coordinator().absorb(other.part() or b"")


def test_what_is_hidden_is_not_divided() -> None:
    coordinator = endpoints(compute_nodes.ComputeNodes, compute_nodes.Options()).coordinator()
    assert coordinator.part() is None
    with pytest.raises(Rejected, match="cannot take in what another one has"):
        coordinator.absorb(b"")
