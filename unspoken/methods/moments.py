"""Moments: a secure sum of what a model needs of all records, as if they were in one place.

However records are spread over parties, the sums are the same; nothing is averaged and no party trains. A regression
takes one sum of XᵀX and XᵀY. A classification has the choice:

- `function = "logistic-regression"` or `"discriminant"`: one sum of second moments, in which everything is solved;
- `function = "softmax"` (the default): the first moment, then `steps` sums of clipped gradients. They are d·K numbers
  each where second moments are d²/2, so for many features there is far less noise, and less to send, in a few rounds.

What is done with the noisy sums uses the known noise alone: see `learners.second_moments`, `learners.solving` and
`learners.softmax_steps`.
"""

from __future__ import annotations

from typing import ClassVar

from unspoken.methods.functions import FunctionMethod, FunctionOptions
from unspoken.methods.mechanisms import NoiseShares
from unspoken.study import Template


class Moments(FunctionMethod):
    """Models from sums over all records, of which only the total is revealed."""

    name = "moments"
    summary = "least squares and a few steps from secure sums over all records"
    template: ClassVar[Template] = {"classification": "", "regression": ""}
    noise = NoiseShares()

    def read_options(self) -> FunctionOptions:
        options = super().read_options()
        if options.function is None and self.study.task == "classification":
            return options.model_copy(update={"function": "softmax"})
        return options
