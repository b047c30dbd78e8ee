"""The function "network": gradient descent for a network of two layers (CAPE, Section 5.1)."""

from __future__ import annotations

from typing import Any

from unspoken.learners.network import Network
from unspoken.methods.base import Conversation
from unspoken.methods.functions.base import NAME, NamedFunction
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.parameters import Parameters, weight_parameters
from unspoken.methods.releases import NetworkModel
from unspoken.methods.workloads import Asker, Query, required_parameters
from unspoken.study import Study
from unspoken.types import Floats

_STEPS, _CLIP = 20, 1.0


class NetworkGradient(NamedFunction):
    """Sums of clipped gradients, one a step."""

    uses = ("hidden", "steps", "clip", "learning_rate", "seed")

    def __init__(self, study: Study, options: FunctionOptions) -> None:
        clip = options.clip or _CLIP
        self.network = Network(study.data.dimension, options.hidden, len(study.data.class_names), clip)
        self.dimension, self.count = self.network.size, options.steps or _STEPS
        self.sensitivity, self.record_bound = 2.0 * clip, clip
        self._options = options

    def parameters(self, name: str, turn: int) -> Parameters:
        return weight_parameters(self.network.size)

    def of(self, features: Floats, labels: Any, parameters: Floats | None) -> Floats:
        return self.network.clipped_gradient(required_parameters(parameters), features, labels)

    def conclude(self, ask: Asker) -> Conversation:
        weights = self.network.initial(self._options.seed)
        for turn in range(self.count):
            weights, total = yield from self.ask_within_bounds(ask, Query(NAME, weights, turn))
            records = max(int(total.exact[0]), 1)
            weights = weights - self._options.learning_rate * total.noisy / records
        hidden, output = self.network.layers(weights)
        details = {"records": int(total.exact[0]), "noise_std_per_gradient": total.noise_std}
        return NetworkModel(hidden, output, details)
