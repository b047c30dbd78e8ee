"""Data that is easy to learn, and estimators of little privacy for it."""

from typing import Any

import numpy as np
from sklearn.datasets import make_blobs

from unspoken.estimators import PrivateClassifier, PrivateRegressor

LEARNERS = ["softmax", "logistic", "svm"]


def blobs(classes: int = 3, records: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Well separated classes in the unit ball, and the party of each record."""
    angles = 2 * np.pi * np.arange(classes) / classes
    centers = 0.8 * np.column_stack([np.cos(angles), np.sin(angles)])
    features, labels = make_blobs(records, centers=centers, cluster_std=0.05, random_state=0)
    return features, labels, np.arange(records) % 20


def classifier(**parameters: Any) -> PrivateClassifier:
    """By the default method, unless a learner is named, which is helmet's."""
    method = {"method": "helmet"} if "learner" in parameters else {}
    return PrivateClassifier(**{"epsilon": 20.0, "classes": [0, 1, 2], "protocol": "ideal", **method, **parameters})


METHODS = ["moments", "cape", "conv", "local", "central", "dp-fm", "objective-perturbation", "none"]
"""Of regressions, and besides helmet of classifications."""


def line(records: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels between 0 and 40 that a plane explains, and the party of each record."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-0.5, 0.5, size=(records, 2))
    labels = 20.0 + features @ [20.0, -10.0] + rng.normal(scale=0.5, size=records)
    return features, labels, np.arange(records) % 10


def regressor(**parameters: Any) -> PrivateRegressor:
    given: dict[str, Any] = {"method": "cape", "epsilon": 20.0, "label_bounds": (0, 40), "norm": 1.3}
    return PrivateRegressor(**given | parameters)
