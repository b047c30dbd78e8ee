"""The keys of [method] that choose a function."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from unspoken.learners.solving import Repair
from unspoken.study import Section

FunctionName = Literal[
    "auto", "linear-regression", "logistic-regression", "discriminant", "softmax", "network", "mean", "histogram"
]


class FunctionOptions(Section):
    """The keys of [method] that say which function is computed, and how."""

    function: FunctionName | None = Field(
        None,
        description='"auto", "linear-regression" (of a regression), "logistic-regression", "discriminant", "softmax", '
        '"network" (of a classification), "mean" or "histogram" (of statistics)',
    )
    coefficients: float = Field(
        2.0, gt=0.0, le=1e6, description="a guess of the norm of the model for records of norm 1, above 0, such as 2.0"
    )
    reshape: bool = Field(
        True, description="true or false (true: the mean is asked for first, and its direction is shrunk)"
    )
    repair: Repair = Field("ridge", description='"ridge", "adassp" or "none"')
    bins: int = Field(10, ge=2, le=10_000, description="the number of a histogram's bins for each number, from 2")
    hidden: int = Field(16, ge=1, le=10_000, description="the number of hidden units of a network, 1 or more")
    steps: int | None = Field(
        None, ge=1, le=10_000, description="the number of steps of auto, softmax or a network, 1 or more"
    )
    clip: float | None = Field(None, gt=0.0, description="the largest norm of a record's gradient, above 0")
    score_noise: float = Field(
        0.7, gt=0.0, description="a number above 0, such as 0.7: the noise that softmax allows in a score"
    )
    learning_rate: float = Field(1.0, gt=0.0, description="a number above 0: the step size of a network")
    seed: int = Field(0, ge=0, description="a whole number: the public seed of a network's first weights")
