"""Baselines for a released model. The guarantee covers none of them."""

from __future__ import annotations

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.data.federation import Federation
from unspoken.data.files import Records
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.learners.scores import classify
from unspoken.study import Study
from unspoken.types import Floats, Integers, Labels

_REGULARIZATION = 1e-5


def predict(weights: Floats, features: Floats) -> Integers:
    """Class numbers from a linear model with one row of weights per output."""
    return classify(features @ weights.T)


def accuracy(weights: Floats, features: Floats, labels: Labels) -> float:
    return float((predict(weights, features) == labels).mean())


def pooled_accuracy(study: Study, train: Records, test: Records) -> float:
    """The accuracy of a non-private softmax model of all records."""
    features = clip_rows(train.features, study.data)
    block = Block(features[None], train.labels[None], np.array([len(train)]))
    return accuracy(_learner(study).fit(block)[0], clip_rows(test.features, study.data), test.labels)


def mean_alone_accuracy(study: Study, federation: Federation, test: Records) -> float:
    """The average accuracy of non-private softmax models that the parties train alone."""
    learner, features = _learner(study), clip_rows(test.features, study.data)
    accuracies = [
        accuracy(model, features, test.labels) for _, block in federation.blocks() for model in learner.fit(block)
    ]
    return float(np.mean(accuracies))


def _learner(study: Study) -> LinearLearner:
    return LinearLearner(CrossEntropy(len(study.data.class_names)), study.data.norm, _REGULARIZATION)
