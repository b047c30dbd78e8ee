"""The keys of [method] for training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from unspoken.study import Section, Sha256


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
    momentum: float = Field(0.0, ge=0.0, lt=1.0, description="a number from 0 to below 1: the momentum of sgd")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description='"constant", or "linear" or "cosine" for steps that shrink to 0 in the last round'
    )
    warmup: int = Field(0, ge=0, description="a whole number, 0 or more: rounds in which steps grow to their size")
    weight_decay: float = Field(
        0.0, ge=0.0, le=1e3, description="a number, 0 or more: how much weights shrink in a step, in step sizes"
    )
    seed: int = Field(0, ge=0, description="a whole number: the public seed of the first weights")
    loss: str | None = Field(
        None, description='"cross-entropy", "squares" or a function of one\'s own, as "package.module:function"'
    )
    class_weights: list[Annotated[float, Field(gt=0.0, le=1e6)]] | None = Field(
        None, description="a number above 0 for each class, in their order: how much a record of it counts"
    )
    shape: Sizes | None = Field(None, description="the shape in which the module takes a record, such as [3, 32, 32]")
    weights: str | None = Field(None, description="an NPZ file of first weights by name, such as pretrained layers")
    weights_sha256: Sha256 = None
    frozen: list[str] = Field([], description='the names of layers that are not trained, such as ["convolutions"]')
    validation: str | None = Field(
        None, description="a file with public records and labels, to measure the model with while it is trained"
    )
    validate_every: int = Field(10, ge=1, description="a whole number, 1 or more: the rounds between measurements")
    patience: int | None = Field(
        None, ge=1, description="a whole number, 1 or more: measurements without a better model before it stops"
    )

    @model_validator(mode="after")
    def _files(self) -> Self:
        if self.weights is None and self.weights_sha256 is not None:
            raise ValueError("has weights_sha256, but no weights; name the file that has it, or remove it")
        for key in ("validate_every", "patience"):
            if self.validation is None and key in self.model_fields_set:
                raise ValueError(f"has {key}, but no validation; name a file with public records, or remove it")
        return self

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> Self:
        if self.warmup >= self.rounds:
            raise ValueError(f"has warmup = {self.warmup}, but rounds = {self.rounds} only; lower it")
        if self.hidden and self.model == "linear":
            raise ValueError('has hidden layers, but model = "linear" has none; use model = "mlp", or remove hidden')
        if self.hidden and ":" in self.model:
            raise ValueError(
                f'has hidden layers, but model = "{self.model}" is a class of your own, which never learns of them; '
                'give their sizes in the class and remove hidden, or use model = "mlp"'
            )
        if self.momentum > 0.0 and self.optimizer == "adam":
            raise ValueError('has momentum, which is for optimizer = "sgd"; "adam" has its own, so remove it')
        return self


class GradientOptions(TrainingOptions):
    """The keys of [method] for training by sums of gradients."""

    sampling: Literal["poisson", "without-replacement", "within-parties"] = Field(
        "poisson",
        description='"poisson", "without-replacement" (of all records, by tokens) or "within-parties" (of each '
        "party's own records)",
    )
    projection: int | None = Field(
        None, ge=1, description="a whole number, 1 or more: the length of projected gradients"
    )
    projection_kind: Literal["structured", "gaussian"] = Field(
        "structured", description='"structured" (clips after the projection) or "gaussian" (the paper\'s, clips before)'
    )

    @model_validator(mode="after")
    def _kind_of_something(self) -> Self:
        if self.projection is None and "projection_kind" in self.model_fields_set:
            raise ValueError(
                "has projection_kind, but no projection; give the length of projected gradients, or remove it"
            )
        return self


class FederatedOptions(TrainingOptions):
    """The keys of [method] for training at the parties."""

    epochs: int = Field(1, ge=1, description="a whole number, 1 or more: a party's passes over its records in a round")
    batch: int = Field(20, ge=1, description="a whole number, 1 or more: the records in a party's own batches")
    local_rate: float = Field(0.1, gt=0.0, description="a number above 0: the step size of a party's own steps")
    adaptation: Literal["none", "coral"] = Field(
        "none",
        description='"none" or "coral" (fedavg: a party moves its records to where the public ones lie before it '
        "trains)",
    )
    local_steps: int = Field(
        5, ge=1, description="a whole number, 1 or more: a party's noisy steps in a round (fedsgd)"
    )
