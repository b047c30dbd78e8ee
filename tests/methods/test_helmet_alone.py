"""Blind averaging without others: one party that adds all of the noise, and models that are private on their own.

Totals come from the real engine. All records but the changed ones are zero vectors or copies of one record, so that the
distance of neighbours' totals is known; 4,000 numbers show the deviation of noise to 1.1 %, and five times that is
allowed; secrets are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from factories import maker
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.helmet import Helmet
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.gaussian import delta_of, epsilon_of
from unspoken.study import Study, StudyError

KEY = bytes(range(32))
FEATURES = 2000
ROOM = 5.0 / math.sqrt(2.0 * 2 * FEATURES)
study = maker(
    data={"features": FEATURES, "classes": 2},
    parties={"count": 1, "records": 40, "max_records": 50},
    method={"learner": "logistic", "regularization": 1.0},
    delta=1e-5,
)


def released(agreed: Study, features: Any, labels: Any | None = None) -> Any:
    """The weights that the engine releases, with secrets that are always the same."""
    method = method_for(agreed)
    labels = np.zeros(len(features), dtype=np.int64) if labels is None else labels
    groups = np.arange(len(features)) % agreed.parties.count
    federation = ArrayFederation(agreed, Records(features, labels), groups)
    return local.run(method, method.plan(), federation, Conditions(secrets=SecretStream(KEY))).release


def zeros(count: int) -> Any:
    return np.zeros((count, FEATURES))


@pytest.mark.parametrize(("name", "parties"), [("helmet", 1), ("independent-models", 1), ("independent-models", 4)])
def test_every_message_has_all_of_the_noise_that_the_promise_needs(name: str, parties: int) -> None:
    agreed = study(name, parties=parties, epsilon=0.7)
    plan = method_for(agreed).plan()
    planned, release = plan.sum_named("model"), released(agreed, zeros(40 * parties))
    assert not plan.is_summed
    assert delta_of(planned.mu, 0.7) <= 1e-5
    assert epsilon_of(planned.mu, 1e-5) == pytest.approx(0.7, rel=1e-4)
    seen = float(release.weights.std()) * 40 * parties
    assert seen == pytest.approx(math.sqrt(parties) * planned.noise_std, rel=ROOM)
    assert release.details["noise_std_per_weight"] * 40 * parties == pytest.approx(seen, rel=ROOM)


def test_blind_averaging_has_the_noise_of_one_message_where_the_naive_way_has_that_of_all() -> None:
    blind, naive = (
        method_for(study(name, parties=100)).plan().sum_named("model") for name in ("helmet", "independent-models")
    )
    assert naive.total_std(100) == pytest.approx(math.sqrt(99) * blind.total_std(100), rel=0.01)


@pytest.mark.parametrize("name", ["helmet", "independent-models"])
@pytest.mark.parametrize(
    ("unit", "changed", "reached"), [("record", 1, 0.9), ({"group": 5}, 5, 0.8), ({"group": 90}, 40, 0.95)]
)
def test_neighbours_of_a_party_alone_stay_within_the_sensitivity_and_come_close(
    name: str, unit: Any, changed: int, reached: float
) -> None:
    """90 records are more than a party has, and count as all that it may have."""
    options = {"learner": "svm", "smoothing": 0.1, "regularization": 2.0, "radius": 0.1 if changed == 40 else 10.0}
    agreed = study(name, parties={"max_records": 40}, unit=unit, method=options)
    one, other = zeros(40), zeros(40)
    one[:changed, 0], other[:changed, 0] = 1.0, -1.0
    moved = 40 * float(np.linalg.norm(released(agreed, one).weights - released(agreed, other).weights))
    stated = method_for(agreed).plan().sum_named("model").sensitivity
    assert reached * stated <= moved <= stated


@pytest.mark.parametrize("weights", ["records", "equal"])
@pytest.mark.parametrize("spread", [False, True])
def test_records_of_a_group_move_a_sum_no_further_than_the_parties_that_they_lie_at(weights: str, spread: bool) -> None:
    """min(k·D/Λ, 2R·N) at one party, and that for each of the parties where one record lies at each."""
    group, most = (3, 4) if spread else (4, 4)
    options = {"learner": "svm", "regularization": 1e-3, "radius": 0.5, "weights": weights}
    agreed = study(parties={"count": 3, "records": 4, "max_records": 4}, unit={"group": group}, method=options)
    one, other = zeros(12), zeros(12)
    changed = np.arange(12) % 3 == 0 if not spread else np.arange(12) < 3
    one[:, 0], other[:, 0] = changed, -1.0 * changed
    scale = 12 if weights == "records" else 3
    moved = scale * float(np.linalg.norm(released(agreed, one).weights - released(agreed, other).weights))
    stated = method_for(agreed).plan().sum_named("model").sensitivity
    whole = 2.0 * 0.5 * (most if weights == "records" else 1)
    assert stated == pytest.approx(3 * whole, rel=0.01)
    assert moved <= (3 if spread else 1) * whole * 1.01
    assert moved >= (3 if spread else 1) * whole * 0.9


def test_the_promise_of_a_party_alone_excepts_that_party_only() -> None:
    plan = method_for(study()).plan()
    assert "except the only party itself" in plan.guarantee.sentence()
    assert any("no secure sum is needed, and nobody can collude" in note for note in plan.notes)
    assert plan.to_json()["summation"] is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"colluding": 1}, r"colluding is 1, but with one party there is nobody to collude with; remove it"),
        ({"dropouts": 0.5}, r"dropouts is 0.5, but with one party"),
        ({"enclaves": True}, r"enclaves is true, but with one party"),
        ({"unit": "party"}, r"unit is \"party\", but the only party has all records"),
        ({"method": {"name": "moments"}}, r"count is 1, but \"moments\" needs 2 or more; have more parties"),
        ({"method": {"name": "cape"}}, r"count is 1, but \"cape\" needs 2 or more"),
    ],
)
def test_what_makes_no_sense_for_a_party_alone_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        method_for(maker(parties=1)(**said))


def test_no_study_has_zero_parties() -> None:
    with pytest.raises(StudyError, match="count is 0, but should be a whole number of parties"):
        study(parties=0)


@pytest.mark.parametrize(
    ("name", "options"), [("central", {}), ("none", {}), ("local", {}), ("objective-perturbation", {})]
)
def test_baselines_for_records_in_one_place_take_one_party_too(name: str, options: dict[str, Any]) -> None:
    agreed = maker(name, parties={"count": 1, "records": 40}, method=options)()
    features = np.random.default_rng(0).normal(size=(40, 4)) / 4.0
    assert released(agreed, features).weights.shape[1] == 4


@pytest.mark.parametrize("parties", [1, 20])
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_noise_multiplier_is_the_noise_over_the_sensitivity_and_gives_epsilon(parties: int, attempts: int) -> None:
    plan = method_for(study(parties=parties, noise_multiplier=4.0, attempts=attempts)).plan()
    planned = plan.sum_named("model")
    assert planned.noise_std / planned.sensitivity == pytest.approx(4.0)
    assert plan.to_json()["noise_multiplier"] == pytest.approx(4.0)
    assert plan.guarantee.epsilon == pytest.approx(epsilon_of(math.sqrt(attempts) / 4.0, 1e-5 - plan.slack), rel=1e-6)
    assert plan.guarantee.epsilon > epsilon_of(math.sqrt(attempts) / 4.001, 1e-5)


def test_the_noise_multiplier_that_a_plan_states_makes_the_same_plan() -> None:
    promised = method_for(study(parties=20, epsilon=0.9, colluding=5)).plan()
    multiplier = promised.to_json()["noise_multiplier"]
    noisy = method_for(study(parties=20, noise_multiplier=multiplier, colluding=5)).plan()
    assert noisy.sum_named("model").noise_std == pytest.approx(promised.sum_named("model").noise_std, rel=1e-6)
    assert noisy.guarantee.epsilon == pytest.approx(0.9, rel=1e-4)
    with pytest.raises(StudyError, match="has both epsilon and noise_multiplier, but either follows from the other"):
        study(epsilon=1.0, noise_multiplier=1.0)


def test_rules_choose_by_the_noise_that_the_multiplier_gives() -> None:
    def chosen(**said: Any) -> float:
        method = method_for(maker(parties={"count": 20, "records": 50})(**said))
        assert isinstance(method, Helmet)
        return method.learner.regularization

    assert chosen(noise_multiplier=0.5) < chosen(noise_multiplier=50.0) == chosen(epsilon=epsilon_of(1 / 50.0, 1e-6))
    assert chosen(method="independent-models") > chosen(method="helmet")
