"""What scikit-learn learns from the same features without privacy: the reference beside private models.

A classifier is a logistic regression whose C is the best of some by cross-validation on the training records, so that
neither too much nor too little regularisation makes it a weak rival.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""Candidates for C"""
FOLDS = 3
_MOST = 5_000
"""The number of training records that C is chosen on at most"""


def classifier(features: Any, labels: Any, seed: int = 0) -> Any:
    """A logistic regression of all records, with the C that served best."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    rows = np.random.default_rng(seed).permutation(len(labels))[:_MOST]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # On steps that ended at max_iter
        # C weighs the sum over records: so many times fewer have so many times more of it.
        scale = len(labels) / len(rows)
        found = {
            strength: cross_val_score(
                LogisticRegression(C=strength * scale, max_iter=100), features[rows], labels[rows], cv=folds
            ).mean()
            for strength in STRENGTHS
        }
        return LogisticRegression(C=max(found, key=lambda strength: found[strength]), max_iter=1000).fit(
            features, labels
        )


def regressor(features: Any, labels: Any) -> Any:
    """Least squares."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression().fit(features, labels)
