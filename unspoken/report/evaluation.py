"""How good a released model is, and what it is compared with. None of it is covered by the guarantee."""

from __future__ import annotations

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows, scale_labels, unscale_labels
from unspoken.data.federation import Federation
from unspoken.data.files import Records
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import Softmax
from unspoken.learners.network import scores as network_scores
from unspoken.methods.base import Release
from unspoken.study import DataSection, Study
from unspoken.types import Floats, Integers, Labels

_REGULARIZATION = 1e-5


def scores_of(release: Release, features: Floats) -> Floats:
    """One column an output, of bounded records."""
    if release.scorer is not None:
        return release.scorer(features)
    if release.hidden is not None:
        return network_scores(release.hidden, release.weights, features)
    scores: Floats = features @ release.weights.T
    return scores


def classify(scores: Floats) -> Integers:
    """Class numbers: the highest score, or of a single column the second class where it is positive."""
    return scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0.0).astype(np.int64)


def predict(weights: Floats, features: Floats) -> Integers:
    """Class numbers from a linear model with one row of weights an output."""
    return classify(features @ weights.T)


def accuracy(weights: Floats, features: Floats, labels: Labels) -> float:
    return float((predict(weights, features) == labels).mean())


def predict_numbers(release: Release, features: Floats, data: DataSection) -> Floats:
    """A regression's labels, in the units of the study's label_bounds. Records are taken as they are, unclipped."""
    return unscale_labels(scores_of(release, with_constant(features, data))[:, 0], data)


def with_constant(features: Floats, data: DataSection) -> Floats:
    """Append the constant 1 if the study has one."""
    return np.concatenate([features, np.ones((len(features), 1))], axis=1) if data.has_intercept else features


def evaluate(study: Study, release: Release, test: Records, train: Records | None = None) -> dict[str, float]:
    """How good the released model is on these records.

    With training records, a regression's `coefficient_error` is ‖w − w*‖/d (CAPE, Section 5.2), w* their least-squares
    model without privacy, both for labels scaled to [−1, 1].
    """
    if study.study.task == "statistics":
        return {}
    if study.study.task == "classification":
        # Clipping a record changes no linear model's class, and a network is meant for records as they are.
        scores = scores_of(release, with_constant(test.features, study.data))
        return {"accuracy": float((classify(scores) == test.labels).mean())}
    errors = predict_numbers(release, test.features, study.data) - test.labels
    metrics = {"mse": float((errors**2).mean())}
    if train is not None and release.is_linear:
        metrics["coefficient_error"] = coefficient_error(release.weights[0], least_squares(study, train))
    return metrics


def least_squares(study: Study, train: Records) -> Floats:
    """The weights of the least-squares model of all records, without privacy."""
    labels = scale_labels(np.asarray(train.labels, dtype=np.float64), study.data)
    return np.asarray(np.linalg.lstsq(with_constant(train.features, study.data), labels)[0])


def coefficient_error(weights: Floats, reference: Floats) -> float:
    """‖w − w*‖/d."""
    return float(np.linalg.norm(weights - reference) / len(weights))


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


def _learner(study: Study) -> LinearLearner:
    return LinearLearner(Softmax(len(study.data.class_names)), study.data.norm, _REGULARIZATION)
