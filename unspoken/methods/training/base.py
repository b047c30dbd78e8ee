"""A PyTorch model that is trained in rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from unspoken.methods.parameters import Parameters, weight_parameters
from unspoken.methods.releases import TorchWeights
from unspoken.methods.training.options import TrainingOptions
from unspoken.methods.workloads import Workload, WorkloadMethod
from unspoken.study import Section, Study
from unspoken.types import Floats

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel

OptionsType = TypeVar("OptionsType", bound=TrainingOptions)


def model_for(study: Study, options: TrainingOptions) -> TorchModel:
    """The study's PyTorch model."""
    from unspoken.learners.torch_models import TorchModel
    from unspoken.learners.torch_modules import ModelError

    if study.task == "statistics":
        raise study.error("study.task", 'is "statistics", but a model is for classification and regression only')
    regression = study.task == "regression"
    outputs = 1 if regression else len(study.data.class_names)
    loss: Literal["cross-entropy", "squares"] = "squares" if regression else "cross-entropy"
    try:
        return TorchModel(options.model, study.data.dimension, outputs, loss, options.hidden, options.seed)
    except ModelError as error:
        raise study.error("method.model", f'is "{options.model}", which {error.problem}') from None


class Training(Workload, Generic[OptionsType]):
    """Rounds in which parties get the model's weights and answer with what they make of them."""

    needs_every_party = True

    def __init__(self, study: Study, options: OptionsType) -> None:
        self.study, self.options = study, options
        self.model = model_for(study, options)

    def parameters(self, name: str, turn: int) -> Parameters:
        return self.weights

    @property
    def weights(self) -> Parameters:
        """The weights that a party takes."""
        return weight_parameters(self.model.size)

    def release(self, weights: Floats, **details: float) -> TorchWeights:
        return TorchWeights(self.model, self.weights.nearest(weights), details)


class TrainingMethod(WorkloadMethod):
    """A method that trains and does nothing else."""

    tasks = ("classification", "regression")
    keys: ClassVar[type[Section]] = TrainingOptions

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        return False
