"""The keys of [method] for voting."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from unspoken.methods.classifiers import ARGUMENTS, Arguments
from unspoken.methods.training.options import Sizes
from unspoken.study import Section, Sha256


class Options(Section):
    """The keys of [method] for voting."""

    ballots: Literal["ensemble", "neighbours"] = Field("ensemble", description='"ensemble" or "neighbours"')
    neighbours: int = Field(5, ge=1, description="a whole number, 1 or more: the nearest records that vote")
    queries: int | None = Field(
        None, ge=1, le=10**6, description="a whole number, 1 or more: the public records that are asked about"
    )
    asking: Literal["typical", "first"] = Field(
        "typical",
        description='"typical" (records in the middle of clusters are asked about) or "first"',
    )
    public: str | None = Field(None, description="the file with the public records: an NPZ file with X, or a table")
    public_sha256: Sha256 = None
    model: str = Field(
        "softmax",
        description='a party\'s own model: "softmax", "mlp", "cnn", or a scikit-learn classifier or torch module as '
        '"package.module:Class"',
    )
    adaptation: Literal["none", "coral"] = Field(
        "none",
        description='"none" or "coral" (a party moves its records to where the public ones lie before it votes)',
    )
    model_options: Arguments = Field({}, description=ARGUMENTS)
    local_regularization: float = Field(
        0.001, ge=1e-6, description="a number from 1e-6 up, such as 0.001: Λ of the parties' softmax models"
    )
    student: str = Field(
        "softmax",
        description='"softmax", "mlp", "cnn", or a scikit-learn classifier or torch module as "package.module:Class"',
    )
    student_options: Arguments = Field({}, description=ARGUMENTS)
    regularization: float = Field(
        0.001, ge=1e-6, description="a number from 1e-6 up, such as 0.001: Λ of a softmax student"
    )
    spreading: bool = Field(
        True, description="true or false (true: labels spread to similar public records before the student learns)"
    )
    hidden: Sizes = Field([], description="the sizes of hidden layers (of mlp and cnn), such as [64]")
    epochs: int = Field(
        30, ge=1, le=10**5, description="a whole number, 1 or more: the passes of a torch model over its records"
    )
    batch: int = Field(20, ge=1, description="a whole number, 1 or more: the records in a step of a torch model")
    optimizer: Literal["adam", "sgd"] | None = Field(
        None, description='"adam" (the default, unless learning_rate is given) or "sgd": how torch models are trained'
    )
    learning_rate: float | None = Field(
        None, gt=0.0, description="a number above 0: the step size of torch models (0.01 for adam, 0.1 for sgd)"
    )
    seed: int = Field(0, ge=0, description="a whole number: the public seed of torch and scikit-learn models")

    @model_validator(mode="after")
    def _layers_of_something(self) -> Self:
        if self.hidden and not {"mlp", "cnn"} & {self.model, self.student}:
            raise ValueError(
                f'has hidden layers, but neither model = "{self.model}" nor student = "{self.student}" takes their '
                'sizes from the study; use "mlp" for one of them, or remove hidden'
            )
        return self
