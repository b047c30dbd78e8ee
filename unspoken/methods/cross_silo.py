"""Cross-silo private SGD: the noise of a trusted curator without a curator (Heikkilä et al.).

In each round the coordinator sends the weights; every party clips its examples' gradients on its random share of the
batch, adds its share of the noise, and takes part in a secure sum; the coordinator makes a step of the optimiser. A
party with an empty share sends noise like any other. Against the paper: noise shares are sized for the honest survivors
of dropouts too, noise is drawn in integers after rounding, batches without replacement are accounted for
as `privacy.subsampled` says, and each takes a fresh list of tokens (see `summation.record_shuffle`).
"""

from __future__ import annotations

from typing import ClassVar

from unspoken.methods.planning.mechanisms import NoiseShares
from unspoken.methods.training.base import TrainingMethod
from unspoken.methods.training.batches import FixedBatches
from unspoken.methods.training.gradients import GradientDescent
from unspoken.methods.training.options import GradientOptions
from unspoken.methods.workloads import Workload
from unspoken.study import Template


class CrossSilo(TrainingMethod):
    """DP-SGD over parties, by secure sums."""

    name = "cross-silo"
    summary = 'private SGD of any PyTorch model, by secure sums (needs the extra "torch")'
    keys = GradientOptions
    template: ClassVar[Template] = dict.fromkeys(
        ("classification", "regression"),
        """\
model = "linear"              # or "mlp" (with hidden = [64]), "cnn", or a torch module as "package.module:Class"
rounds = 100                  # more rounds: more steps, each under more noise
rate = 0.1                    # the expected share of all records in a round's batch
clip = 1.0                    # the largest norm of an example's gradient
optimizer = "sgd"             # or "adam"
# learning_rate = 0.5         # if left out: from the noise, for a linear classifier; more keys: docs/cross_silo.md
""",
    )
    noise = NoiseShares()

    def make_workload(self) -> Workload:
        return GradientDescent(self.study, self.study.options("method", GradientOptions), FixedBatches)
