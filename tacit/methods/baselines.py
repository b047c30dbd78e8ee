"""What a private model is compared with: all data in one place without privacy, and every party on its own."""

from __future__ import annotations

import numpy as np

from tacit.data.block import Block
from tacit.data.bounding import clip_rows
from tacit.data.federation import Federation
from tacit.data.files import Records
from tacit.learners.linear import LinearLearner
from tacit.learners.losses import Softmax
from tacit.study import Study
from tacit.types import Floats, Integers

_REGULARIZATION = 1e-5


def pooled_accuracy(study: Study, train: Records, test: Records) -> float:
    """The accuracy of a non-private softmax model of all records."""
    features = clip_rows(train.features, study.data)
    block = Block(features[None], train.labels[None], np.array([len(train)]))
    return accuracy(_learner(study).fit(block)[0], clip_rows(test.features, study.data), test.labels)


def mean_alone_accuracy(study: Study, federation: Federation, test: Records) -> float:
    """The average accuracy of the non-private softmax models that the parties would have without each other."""
    learner, features = _learner(study), clip_rows(test.features, study.data)
    accuracies = [
        accuracy(model, features, test.labels) for _, block in federation.blocks() for model in learner.fit(block)
    ]
    return float(np.mean(accuracies))


def predict(weights: Floats, features: Floats) -> Integers:
    """Class numbers from a model with one row of weights an output (a single row: the second class where positive)."""
    scores = features @ weights.T
    return scores.argmax(axis=1) if len(weights) > 1 else (scores[:, 0] > 0.0).astype(np.int64)


def accuracy(weights: Floats, features: Floats, labels: Integers) -> float:
    return float((predict(weights, features) == labels).mean())


def _learner(study: Study) -> LinearLearner:
    return LinearLearner(Softmax(len(study.data.class_names)), study.data.norm, _REGULARIZATION)
