"""The keys of [method] for training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from unspoken.study import Section


def _positive(sizes: list[int]) -> list[int]:
    if any(size < 1 for size in sizes):
        raise ValueError(f"is {sizes}, but should list sizes of 1 or more")
    return sizes


Sizes = Annotated[list[int], AfterValidator(_positive)]
"""The sizes of hidden layers"""


class TrainingOptions(Section):
    """The keys of [method] that say what is trained, and how."""

    model: str = Field("linear", description='"linear", "mlp", "cnn" or "package.module:Class"')
    hidden: Sizes = Field([], description="the sizes of hidden layers (of mlp and cnn), such as [64]")
    rounds: int = Field(100, ge=1, le=10**6, description="the number of rounds, 1 or more")
    rate: float = Field(
        0.1, gt=0.0, le=1.0, description="the expected share of all records in a batch, above 0 and at most 1"
    )
    clip: float = Field(1.0, gt=0.0, le=1e6, description="the largest norm of an example's gradient, above 0")
    optimizer: Literal["sgd", "adam"] = Field("sgd", description='"sgd" or "adam"')
    learning_rate: float | None = Field(None, gt=0.0, description="the step size, above 0, such as 0.5")
    momentum: float = Field(0.0, ge=0.0, lt=1.0, description="of sgd, from 0 to below 1")
    seed: int = Field(0, ge=0, description="a whole number: the public seed of the first weights")

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> Self:
        if self.hidden and self.model == "linear":
            raise ValueError('has hidden layers, but model = "linear" has none; use model = "mlp", or remove hidden')
        if self.momentum > 0.0 and self.optimizer == "adam":
            raise ValueError('has momentum, which is of optimizer = "sgd"; "adam" has its own: remove it')
        return self


class GradientOptions(TrainingOptions):
    """The keys of [method] for training by sums of gradients."""

    sampling: Literal["poisson", "without-replacement"] = Field(
        "poisson", description='"poisson" or "without-replacement"'
    )
    projection: int | None = Field(None, ge=1, description="to how many numbers gradients are projected, 1 or more")
    projection_kind: Literal["structured", "gaussian"] = Field(
        "structured", description='"structured" (clips after the projection) or "gaussian" (the paper\'s, clips before)'
    )

    @model_validator(mode="after")
    def _kind_of_something(self) -> Self:
        if self.projection is None and "projection_kind" in self.model_fields_set:
            raise ValueError("has projection_kind, but no projection; say to how many numbers, or remove it")
        return self


class FederatedOptions(TrainingOptions):
    """The keys of [method] for training at the parties."""

    epochs: int = Field(1, ge=1, description="how often a party goes through its records in a round, 1 or more")
    batch: int = Field(20, ge=1, description="how many records a party's own batches have, 1 or more")
    local_rate: float = Field(0.1, gt=0.0, description="the step size of a party's own steps, above 0")
    local_steps: int = Field(5, ge=1, description="of fedsgd: how many noisy steps a party makes in a round")
