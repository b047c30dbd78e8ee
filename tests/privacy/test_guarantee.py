"""Only the noise of honest survivors counts for a guarantee, and its sentence says so."""

from __future__ import annotations

import math

import pytest

from unspoken.privacy.gaussian import mu_for
from unspoken.privacy.guarantee import Guarantee, Trust


@pytest.mark.parametrize(
    ("parties", "colluding", "dropouts", "honest"),
    [(10, 0, 0, 9), (10, 1, 0, 9), (10, 5, 0, 5), (10, 5, 2, 3), (10, 0, 3, 6), (2, 0, 0, 1)],
)
def test_shares_are_sized_for_honest_survivors_and_a_curious_party_knows_its_own(
    parties: int, colluding: int, dropouts: int, honest: int
) -> None:
    trust = Trust(parties, colluding, dropouts)
    assert trust.honest_survivors == honest
    assert trust.least_survivors == parties - dropouts


def test_the_sentence_names_unit_colluders_numbers_and_assumptions() -> None:
    mu = mu_for(0.5, 1e-5)
    guarantee = Guarantee(0.5, 1e-5, 3, Trust(100, 20, 5), mu, ("one node is honest",))
    sentence = guarantee.sentence()
    for part in (
        "any 3 records",
        "20 of the 100 parties",
        "epsilon = 0.5",
        "delta = 1e-05",
        "assumes that one node is honest",
    ):
        assert part in sentence
    assert "all records of one party" in Guarantee(0.5, 1e-5, None, Trust(9, 0, 0), mu).sentence()
    assert guarantee.unit == {"group": 3}
    assert 0.5 < guarantee.attack_success < 0.6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_without_more_than_epsilon_the_best_attack_is_that_on_a_coin_that_was_turned(epsilon: float) -> None:
    """Randomised response keeps ε exactly: it tells the truth with odds e^ε, and who believes it is right as often."""
    odds = math.exp(epsilon)
    assert Guarantee(epsilon, 0.0, 1, Trust(9, 0, 0), None).attack_success == pytest.approx(odds / (1.0 + odds))
    assert Guarantee(epsilon, 0.01, 1, Trust(9, 0, 0), None).attack_success == pytest.approx(odds / (1 + odds) + 0.01)


def test_failures_of_protocol_and_sampler_help_an_attacker_too() -> None:
    """Whatever δ sets aside for them may all be known to it: on top of Φ(μ/2), or of the advantage that is known."""
    certain = 0.5 + 0.1 / 2
    for known in ({"mu": 0.0}, {"mu": None, "advantage": 0.0}):
        assert Guarantee(1.0, 0.2, 1, Trust(9, 0, 0), **known, slack=0.1).attack_success == pytest.approx(certain)
