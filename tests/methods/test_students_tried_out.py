"""A student of one's own is tried out before the vote, as it is taught and saved after it: nothing is spent on one that
must fail. What cannot be known beforehand is told in a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import unspoken
from factories import make
from unspoken.methods.voting import Voting
from unspoken.study import Study, StudyError

NAMES = ["healthy", "ill", "unsure"]


class Plain:
    """The class whose mean is nearest, by whatever labels it is given."""

    def fit(self, X: Any, y: Any) -> Any:
        self.classes_ = np.unique(y)
        self._means = np.array([X[y == name].mean(axis=0) for name in self.classes_])
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[((X[:, None] - self._means) ** 2).sum(axis=2).argmin(axis=1)]


class Means(Plain, BaseEstimator):  # type: ignore[misc]
    pass


class InAList(Means):
    def predict(self, X: Any) -> Any:
        return super().predict(X).tolist()


class Counts(Means):
    """It takes labels for numbers."""

    def fit(self, X: Any, y: Any) -> Any:
        self.counts = np.bincount(y)
        return super().fit(X, y)


class Numbers(Means):
    """It answers with numbers, whatever it learnt."""

    def predict(self, X: Any) -> Any:
        return np.arange(len(X)) % 3


class Abstains(Means):
    def predict(self, X: Any) -> Any:
        return np.full(len(X), -1)


class NotToBeSaved(Means):
    def fit(self, X: Any, y: Any) -> Any:
        self.later = (number for number in range(3))
        return super().fit(X, y)


class OfNoNames(Means):
    """Nobody knows which class a column of its probabilities is for."""

    def fit(self, X: Any, y: Any) -> Any:
        super().fit(X, y)
        self.names, self.classes_ = self.classes_, None
        return self

    def predict(self, X: Any) -> Any:
        return np.tile(self.names, len(X))[: len(X)]

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), 3), 1.0 / 3.0)


class EndsTheProgram(Means):
    """It learns and predicts, but has no probabilities."""

    def predict_proba(self, X: Any) -> Any:
        raise SystemExit("no probabilities here")


class OfFiveFeatures(Means):
    """The constant of parties' records is not among them."""

    def fit(self, X: Any, y: Any) -> Any:
        if X.shape[1] != 5:
            raise ValueError(f"{X.shape[1]} features")
        return super().fit(X, y)


class Picky(Means):
    """It wants more public records of each class than winners may bring."""

    def fit(self, X: Any, y: Any) -> Any:
        if np.unique(y, return_counts=True)[1].min() < 10:
            raise ValueError("too few of a class")
        return super().fit(X, y)


class DrawsLots(Means):
    def predict(self, X: Any) -> Any:
        return np.random.default_rng().permutation(super().predict(X))


def study(folder: Path, **keys: Any) -> Study:
    columns = {name: {"min": -3, "max": 3} for name in "abcde"}
    rng = np.random.default_rng(0)
    table = "\n".join(",".join(f"{value:.3f}" for value in row) for row in rng.uniform(-3, 3, size=(30, 5)))
    (folder / "public.csv").write_text(f"a,b,c,d,e\n{table}\n", encoding="utf-8")
    return make(
        "voting",
        data={"columns": columns, "label": "state", "classes": NAMES},
        parties={"count": 4, "records": 5},
        method={"public": str(folder / "public.csv"), "queries": 12, "spreading": False, **keys},
        epsilon=20.0,
        summation="tally",
    )


def mine(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Counts, "cannot be trained on 5 features and the classes' names (healthy, …) ("),
        (Numbers, "predicts 0, but should predict one of the names that a student learns (healthy, …)"),
        (Abstains, "predicts -1, but should predict one of the names"),
        (Plain, "is no BaseEstimator, which a pipeline for tables needs; derive it"),
        (OfNoNames, "cannot be asked for scores, or saved, once fitted ("),
        (EndsTheProgram, "cannot be asked for scores, or saved, once fitted (no probabilities here)"),
        (NotToBeSaved, "cannot be asked for scores, or saved, once fitted ("),
    ],
)
def test_a_student_that_would_fail_after_the_vote_is_refused_before_it(
    kind: type, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match=re.escape(f'student is "{mine(kind)}", which {problem}')):
        Voting(study(tmp_path, student=mine(kind)))
    Voting(study(tmp_path, model=mine(kind)))


def records() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    return rng.uniform(-3, 3, size=(20, 5)), np.array(NAMES)[np.arange(20) % 3], np.arange(20) % 4


def frame() -> Any:
    import pandas as pd

    rows, names, parties = records()
    return pd.DataFrame(rows, columns=list("abcde")), names, parties


@pytest.mark.parametrize("kind", [Means, InAList, OfFiveFeatures])
def test_a_student_that_learns_names_is_released(kind: type, tmp_path: Path) -> None:
    rows, names, parties = frame()
    done = unspoken.simulate(study(tmp_path, student=mine(kind)), rows, names, parties, X_test=rows, y_test=names)
    assert 0.0 <= done.metrics["accuracy"] <= 1.0
    assert {str(name) for name in done.model.predict(rows)} <= set(NAMES)


def test_a_student_that_cannot_learn_from_these_winners_is_told_of_in_a_sentence(tmp_path: Path) -> None:
    problem = r'student is ".*:Picky", which cannot learn from these winners \(too few of a class\); use "softmax", or'
    with pytest.raises(StudyError, match=problem):
        unspoken.simulate(study(tmp_path, student=mine(Picky)), *frame())


def test_an_analysis_of_votes_that_cannot_be_cast_again_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made of the ballots that were counted, which are made again of the same records."""
    agreed = study(tmp_path, model=mine(DrawsLots))
    unspoken.simulate(agreed, *frame())
    monkeypatch.setattr("unspoken.engines.local.run", lambda *_, **__: pytest.fail("it ran"))
    with pytest.raises(StudyError, match=r"model is .*:DrawsLots\", which learns something else each time"):
        unspoken.simulate(agreed, *frame(), private_analysis=True)
