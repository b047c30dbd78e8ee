"""A ledger's total of a search or an ensemble, against neighbours: what one replaced record moves in the real sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

import unspoken.estimators
from unspoken import Ledger, PrivateClassifier
from unspoken.data.federation import ArrayFederation
from unspoken.data.splits import split
from unspoken.methods.base import Sum
from unspoken.methods.registry import method_for
from unspoken.types import Floats, Integers

RECORDS, PARTIES = 240, 4


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How far the first sum of each fit is from that of the neighbour's, by its planned sensitivity.

    Rows are split over parties by their place, whatever is in them.
    """
    sums: list[tuple[Floats, float, Integers]] = []
    really = unspoken.estimators.simulate_records

    def noted(study: Any, records: Any, parties: Any, **options: Any) -> Any:
        method = method_for(study)
        planned = method.plan().sums[0]
        blocks = ArrayFederation(study, records, parties, method.directions).blocks()
        total = sum(method.contribute(Sum(planned.name), block).noisy.sum(axis=0) for _, block in blocks)
        sums.append((np.asarray(total), planned.sensitivity, parties))
        return really(study, records, parties, **options)

    monkeypatch.setattr(unspoken.estimators, "simulate_records", noted)

    def run(model: Any, *neighbours: tuple[Floats, Integers]) -> list[float]:
        sums.clear()
        for features, labels in neighbours:
            model.fit(features, labels)
        half = len(sums) // 2
        pairs = list(zip(sums[:half], sums[half:], strict=True))
        assert all((one[2] == other[2]).all() for one, other in pairs)
        return [float(np.linalg.norm(one[0] - other[0])) / one[1] for one, other in pairs]

    return run


def classifier(method: str, **options: Any) -> PrivateClassifier:
    own = {"learner": "logistic", "regularization": 0.1} if method == "helmet" else {}
    return PrivateClassifier(
        method, classes=[0, 1], epsilon=0.5, intercept=False, protocol="ideal", parties=PARTIES, **own, **options
    )


def neighbours(folds: Any, row: int) -> tuple[tuple[Floats, Integers], tuple[Floats, Integers]]:
    """Records of which all at a party point the same way, if they stay where they are; and one of them replaced."""
    labels = np.repeat([0, 1], RECORDS // 2)
    features = np.zeros((RECORDS, 2))
    for rows, _ in folds.split(features, labels):
        party = split("iid", labels[rows], PARTIES, 0)
        features[rows, party % 2] = np.where(labels[rows] == 1, 1.0, -1.0)
    replaced, other = features.copy(), labels.copy()
    replaced[row], other[row] = features[row] / 2.0, 1 - labels[row]
    return (features, labels), (replaced, other)


@pytest.mark.parametrize(
    ("method", "folds"),
    [
        ("helmet", KFold(2)),
        ("moments", KFold(3, shuffle=True, random_state=0)),
        pytest.param("helmet", KFold(3, shuffle=True, random_state=0), marks=pytest.mark.long),
        pytest.param("moments", KFold(2), marks=pytest.mark.long),
    ],
)
def test_in_folds_without_regard_to_labels_a_record_moves_no_fit_by_more_than_planned(
    method: str, folds: KFold, moved: Any
) -> None:
    row = 1
    has = [row in rows for rows, _ in folds.split(np.zeros(RECORDS))]
    ledger = Ledger()
    search = GridSearchCV(classifier(method, ledger=ledger), {"delta": [1e-6, 1e-5]}, cv=folds)
    found = np.array(moved(search, *neighbours(folds, row)))
    assert len(found) == len(ledger.account().charges) / 2 == 2 * len(has) + 1
    assert 0.1 < found.max() <= 1.0
    # Each fit that has the record, and no other, depends on it: those of the folds, and the last.
    assert ((found > 0.0) == [*has, *has, True]).all()


def test_in_stratified_folds_one_label_moves_other_records(moved: Any) -> None:
    """Why a total is not about them: rows of other people change their fold, and at it their party."""
    folds = StratifiedKFold(2)
    found = moved(GridSearchCV(classifier("helmet"), {"delta": [1e-6]}, cv=folds), *neighbours(folds, 1))
    assert max(found) > 3.0


@pytest.mark.parametrize(("bootstrap", "times"), [(False, 1), (True, 2)])
def test_a_record_that_an_ensemble_draws_several_times_counts_several_times(
    bootstrap: bool, times: int, moved: Any
) -> None:
    features, labels = np.zeros((RECORDS, 2)), np.arange(RECORDS) % 2
    other = features.copy()
    features[17], other[17] = (1.0, 0.0), (-1.0, 0.0)
    bag = BaggingClassifier(classifier("moments"), n_estimators=8, max_samples=0.9, bootstrap=bootstrap, random_state=0)
    assert max(moved(bag, (features, labels), (other, labels))) == pytest.approx(times, rel=0.01)
