"""A network of two layers, of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unspoken.data.bounding import with_constant
from unspoken.learners import network
from unspoken.methods.releases.scikit import ScikitModel
from unspoken.study import Study
from unspoken.types import Floats


@dataclass(frozen=True)
class NetworkModel(ScikitModel):
    """Rectified hidden units, then a softmax (`learners.network`)."""

    hidden: Floats
    """The hidden layer, one row a unit; its inputs are the study's vector and a constant 1."""
    weights: Floats
    """The output layer, one row a class; its inputs are the hidden units and a constant 1."""
    details: dict[str, Any]
    link = "softmax"

    def scores(self, study: Study, features: Floats) -> Floats:
        return network.scores(self.hidden, self.weights, with_constant(features, study.data))

    def fitted(self, study: Study, order: list[int]) -> Any:
        """A perceptron with one hidden layer; two classes have a single output there."""
        from sklearn.neural_network import MLPClassifier
        from sklearn.preprocessing import LabelBinarizer

        classes, hidden, output = np.array(study.data.class_names), self.hidden, self.weights
        biases = hidden[:, -1] + (hidden[:, -2] * study.data.constant if study.data.has_intercept else 0.0)
        if len(output) == 2:
            output = output[1:] - output[:1]
        model = MLPClassifier(hidden_layer_sizes=(len(hidden),), activation="relu")
        model.coefs_ = [hidden[:, order].T.copy(), output[:, :-1].T.copy()]
        model.intercepts_ = [biases.copy(), output[:, -1].copy()]
        model.n_layers_, model.n_outputs_ = 3, len(output)
        model.out_activation_ = "logistic" if len(output) == 1 else "softmax"
        model._label_binarizer = LabelBinarizer().fit(np.arange(len(classes)))
        model._label_binarizer.classes_ = classes
        model.classes_, model.n_features_in_ = classes, len(order)
        return model
