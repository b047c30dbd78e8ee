"""The promise suite notices what it is for: each error that is planted here makes it fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import attacks
import cases
import numpy as np
import pytest
import test_every_promise
import test_what_opens
from cases import Case

from unspoken.data import federation
from unspoken.learners.linear import LinearLearner
from unspoken.learners.public_directions import PublicDirections
from unspoken.methods.functions import Function
from unspoken.methods.helmet import Helmet
from unspoken.methods.multiparty import Multiparty
from unspoken.methods.planning import making
from unspoken.methods.voting import Voting
from unspoken.summation import adding, incoming, secagg
from unspoken.summation.graph import Degree

TWO_SUMS = Case("moments", (("function", "logistic-regression"),), "classification")
MEAN = Case("moments", (), "statistics", {"group": 3})
SVM = Case("helmet", (("learner", "svm"), ("regularization", 20.0)), "classification")
MAPPED = replace(SVM, directed=True)
_VOTES = (("queries", cases.QUERIES), ("asking", "first"), ("spreading", False))
BALLOTS = Case("voting", (*_VOTES, ("ballots", "neighbours"), ("neighbours", 2)), "classification", {"group": 3})
LEFT_OUT = Case("voting", _VOTES, "classification", "party", sizes=cases.SIZES[1], adjacency="add-remove")
_TRAINED = (("noise", "gaussian"), ("local_regularization", 0.01), ("regularization", 20.0))
WEIGHTED = Case("multiparty", (("labels", "weighted"), *_TRAINED), "classification", dropouts=4)

# With Laplace noise, so that nothing else is rounded.
_AVERAGE = (("labels", "average"), ("learner", "svm"), ("noise", "laplace"), ("regularization", 2700.0))
AVERAGE = Case("multiparty", _AVERAGE, "classification", "party")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.public_records(tmp_path_factory.mktemp("public"))


def halve_the_sensitivity(patch: pytest.MonkeyPatch) -> None:
    whole = LinearLearner.scaled_sensitivity
    patch.setattr(LinearLearner, "scaled_sensitivity", lambda *facts: whole(*facts) / 2.0)


def count_rounding_once(patch: pytest.MonkeyPatch) -> None:
    right = making._with_fineness
    patch.setattr(making, "_with_fineness", lambda *facts: right(*facts[:-2], 1, facts[-1]))


def divide_by_survivors(patch: pytest.MonkeyPatch) -> None:
    right = Multiparty._minimise
    patch.setattr(Multiparty, "_minimise", lambda self, shares, voters: right(self, shares, self.study.parties.count))


def divide_an_average_by_survivors(patch: pytest.MonkeyPatch) -> None:
    right = Multiparty.coordinate

    def wrong(self: Multiparty, plan: Any) -> Any:
        asking = right(self, plan)
        total = yield next(asking)
        with pytest.raises(StopIteration) as end:
            asking.send(replace(total, noisy=total.noisy * self.study.parties.count / total.survivors))
        return end.value.value

    patch.setattr(Multiparty, "coordinate", wrong)


def forget_the_rounding_of_an_average(patch: pytest.MonkeyPatch) -> None:
    right = Multiparty._votes.func
    patch.setattr(
        Multiparty,
        "_votes",
        property(lambda self: replace(right(self), sensitivity=2.0 * self.local.model_bound)),
    )


def forget_the_group(patch: pytest.MonkeyPatch) -> None:
    right = Voting.sensitivity
    patch.setattr(Voting, "sensitivity", lambda self, group, *facts: right(self, 1, *facts))


def forget_that_a_ballot_is_whole(patch: pytest.MonkeyPatch) -> None:
    right = Voting.sensitivity
    patch.setattr(Voting, "sensitivity", lambda *facts: right(*facts) / 1.1)


def of_the_second_sum(patch: pytest.MonkeyPatch, factor: float) -> None:
    right = Function.sums

    def wrong(self: Function, study: Any) -> Any:
        first, second = right(self, study)
        return first, replace(second, sensitivity=factor * second.sensitivity)

    patch.setattr(Function, "sums", wrong)


def halve_the_second_sensitivity(patch: pytest.MonkeyPatch) -> None:
    of_the_second_sum(patch, 0.5)


def clip_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(federation, "clip_rows", lambda features, data: features)


def clip_nothing_after_the_map(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PublicDirections, "apply", lambda self, rows: (rows @ self.matrix, np.ones(len(rows))))


@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (halve_the_sensitivity, SVM),
        (count_rounding_once, MEAN),
        (divide_by_survivors, WEIGHTED),
        (divide_an_average_by_survivors, replace(AVERAGE, dropouts=4)),
        (forget_the_rounding_of_an_average, AVERAGE),
        (forget_the_group, BALLOTS),
        (forget_that_a_ballot_is_whole, LEFT_OUT),
        (halve_the_second_sensitivity, TWO_SUMS),
        (clip_nothing, MEAN),
        (clip_nothing_after_the_map, MAPPED),
    ],
)
def test_a_planted_error_moves_neighbours_too_far(
    plant: Any, case: Case, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacks.attacked(case, public) is not None
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="Distance"):
        attacks.attacked(case, public)


def test_a_sensitivity_that_no_neighbours_come_near_is_noticed_beside_one_that_they_reach(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be false without a sign: the attack that would tell is missing."""
    attacks.check_reached(attacks.attacked(TWO_SUMS, public) or {})
    of_the_second_sum(monkeypatch, 4.0)
    found = attacks.attacked(TWO_SUMS, public)
    assert found is not None
    assert max(found.values()) >= attacks.ENOUGH
    with pytest.raises(AssertionError, match='of the sensitivity of "function" only'):
        attacks.check_reached(found)


def test_a_method_that_refuses_every_study_of_the_suite_is_noticed(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Helmet.__init__

    def refuse(self: Helmet, study: Any) -> None:
        right(self, study)
        raise study.error("data.features", "is wrong")

    monkeypatch.setattr(Helmet, "__init__", refuse)
    with pytest.raises(pytest.fail.Exception, match=r'no study of "helmet" is attacked: .* is wrong'):
        test_every_promise.test_every_method_that_promises_something_is_attacked("helmet", "classification", public)


def test_a_threshold_that_colluders_reach_leaves_too_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secagg, "exposure", lambda parties, corrupt, dropouts, degree: 0.0)
    monkeypatch.setattr(secagg, "complete_degree", lambda parties, corrupt, dropouts: Degree(parties - 1, 1))
    with pytest.raises(AssertionError):
        test_what_opens.test_what_is_left_of_the_noise_is_what_was_planned("secagg", 6)


def test_a_total_over_too_few_parties_is_noticed(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (incoming, adding):
        monkeypatch.setattr(module, "check_survivors", lambda count, session: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_every_promise.test_one_dropout_more_than_planned_for_reveals_nothing("ideal", public)
