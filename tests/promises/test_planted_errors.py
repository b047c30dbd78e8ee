"""The promise suite notices what it is for: each error that is planted here makes it fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import attacks
import pytest
import test_every_promise
import test_what_opens
from attacks import Case

from unspoken.data import federation
from unspoken.learners.linear import LinearLearner
from unspoken.methods import planning
from unspoken.methods.multiparty import Multiparty
from unspoken.methods.voting import Voting
from unspoken.summation import adding, base, secagg

MEAN = Case("moments", (), "statistics", {"group": 3})
SVM = Case("helmet", (("learner", "svm"), ("regularization", 20.0)), "classification")
_VOTES = (("queries", attacks.QUERIES), ("asking", "first"), ("spreading", False))
BALLOTS = Case("voting", (*_VOTES, ("ballots", "neighbours"), ("neighbours", 2)), "classification", {"group": 3})
_TRAINED = (("noise", "gaussian"), ("local_regularization", 0.01), ("regularization", 20.0))
WEIGHTED = Case("multiparty", (("labels", "weighted"), *_TRAINED), "classification", dropouts=4)

_AVERAGE = (("labels", "average"), ("learner", "svm"), ("noise", "gaussian"), ("regularization", 2700.0))
AVERAGE = Case("multiparty", _AVERAGE, "classification", "party")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacks.public_records(tmp_path_factory.mktemp("public"))


def halve_the_sensitivity(patch: pytest.MonkeyPatch) -> None:
    whole = LinearLearner.scaled_sensitivity
    patch.setattr(LinearLearner, "scaled_sensitivity", lambda self, most: whole(self, most) / 2.0)


def count_rounding_once(patch: pytest.MonkeyPatch) -> None:
    right = planning._with_fineness
    patch.setattr(planning, "_with_fineness", lambda *facts: right(*facts[:-1], 1))


def divide_by_survivors(patch: pytest.MonkeyPatch) -> None:
    right = Multiparty._minimise
    patch.setattr(Multiparty, "_minimise", lambda self, shares, voters: right(self, shares, self.study.parties.count))


def forget_the_rounding_of_an_average(patch: pytest.MonkeyPatch) -> None:
    right = Multiparty._votes.func
    patch.setattr(
        Multiparty,
        "_votes",
        property(lambda self: replace(right(self), sensitivity=2.0 * self.local.model_bound)),
    )


def forget_the_group(patch: pytest.MonkeyPatch) -> None:
    right = Voting.sensitivity
    patch.setattr(Voting, "sensitivity", lambda self, group, queries=None: right(self, 1, queries))


def clip_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(federation, "clip_rows", lambda features, data: features)


@pytest.mark.parametrize(
    ("plant", "case"),
    [
        (halve_the_sensitivity, SVM),
        (count_rounding_once, MEAN),
        (divide_by_survivors, WEIGHTED),
        (forget_the_rounding_of_an_average, AVERAGE),
        (forget_the_group, BALLOTS),
        (clip_nothing, MEAN),
    ],
)
def test_a_planted_error_moves_neighbours_too_far(
    plant: Any, case: Case, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attacks.attacked(case, public) is not None
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="Distance"):
        attacks.attacked(case, public)


def test_a_threshold_that_colluders_reach_leaves_too_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secagg, "surrounded", lambda parties, corrupt, degree: 0.0)
    with pytest.raises(AssertionError):
        test_what_opens.test_what_is_left_of_the_noise_is_what_was_planned("secagg", 6)


def test_a_total_over_too_few_parties_is_noticed(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, adding):
        monkeypatch.setattr(module, "check_survivors", lambda count, session: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_every_promise.test_one_dropout_more_than_planned_for_reveals_nothing("ideal", public)
