"""Classes and probabilities from a model's scores."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import expit, softmax

from unspoken.types import Floats, Integers

Link = Literal["softmax", "sigmoid"]
"""The map from scores to probabilities; sigmoids are divided by their sum"""


def classify(scores: Floats) -> Integers:
    """Class numbers: the index of the highest score; for a single column, 1 where it is positive.

    >>> classify(np.array([[0.1, 0.3, 0.2]])).tolist(), classify(np.array([[-2.0], [0.5]])).tolist()
    ([1], [0, 1])
    """
    return scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0.0).astype(np.int64)


def probabilities(scores: Floats, link: Link) -> Floats:
    """Probabilities, one column a class; a single column of scores is for the second of two classes.

    >>> probabilities(np.array([[0.0], [2.0]]), "sigmoid").round(2).tolist()
    [[0.5, 0.5], [0.12, 0.88]]
    >>> probabilities(np.array([[-1e6, -1e6, -1e6]]), "sigmoid").round(2).tolist()
    [[0.33, 0.33, 0.33]]
    """
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])
    if link == "softmax":
        return np.asarray(softmax(scores, axis=1))
    each = expit(scores)
    # Where all scores are so low that every probability is 0, no class is more likely than another.
    each[~each.any(axis=1)] = 1.0
    return np.asarray(each / each.sum(axis=1, keepdims=True))
