"""A PyTorch model that is trained in rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from unspoken.methods.parameters import Parameters, weight_parameters
from unspoken.methods.planning.mechanisms import Mechanism
from unspoken.methods.releases import TorchWeights
from unspoken.methods.training import pretrained
from unspoken.methods.training.options import TrainingOptions
from unspoken.methods.training.pretrained import first_weights
from unspoken.methods.training.validation import Validation
from unspoken.methods.workloads import Workload, WorkloadMethod
from unspoken.study import Section, Study
from unspoken.types import Floats

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel

OptionsType = TypeVar("OptionsType", bound=TrainingOptions)


def model_for(study: Study, options: TrainingOptions) -> TorchModel:
    """The study's PyTorch model."""
    from unspoken.learners.torch_models import TorchModel
    from unspoken.learners.torch_modules import ModelError, Recipe

    if study.task == "statistics":
        raise study.error("study.task", 'is "statistics", but a model is for classification and regression only')
    outputs = 1 if study.task == "regression" else len(study.data.class_names)
    _check_loss(study, options, outputs)
    loss = options.loss or ("squares" if study.task == "regression" else "cross-entropy")
    recipe = Recipe(
        shape=tuple(options.shape or ()),
        first=first_weights(study, options),
        frozen=tuple(options.frozen),
        class_weights=tuple(options.class_weights or ()),
    )
    try:
        return TorchModel(options.model, study.data.dimension, outputs, loss, options.hidden, options.seed, recipe)
    except ModelError as error:
        key = "loss" if error.name == options.loss else "model"
        raise study.error(f"method.{key}", f'is "{error.name}", which {error.problem}') from None


def _check_loss(study: Study, options: TrainingOptions, outputs: int) -> None:
    """Refuse a loss, or weights of classes, that do not fit the task."""
    fits = {"classification": "cross-entropy", "regression": "squares"}[study.task]
    if options.loss is not None and ":" not in options.loss and options.loss != fits:
        raise study.error(
            "method.loss",
            f'is "{options.loss}", but a {study.task} takes "{fits}" or a function as "package.module:function"',
        )
    if options.class_weights is None:
        return
    if study.task != "classification":
        raise study.error("method.class_weights", f"is given, but the task is a {study.task}; remove it")
    if len(options.class_weights) != outputs:
        raise study.error(
            "method.class_weights", f"has {len(options.class_weights)} numbers, but there are {outputs} classes"
        )


def is_linear(study: Study) -> bool:
    """Whether the model that the study trains is a linear classifier, as it is if the study names none."""
    return study.task == "classification" and bool(study.method.own_keys.get("model", "linear") == "linear")


class Training(Workload, Generic[OptionsType]):
    """Rounds in which parties get the model's weights and answer with gradients, updates or models."""

    needs_every_party = True

    def __init__(self, study: Study, options: OptionsType) -> None:
        self.study, self.options = study, options
        self.model = model_for(study, options)
        self.may_end_early = options.patience is not None

    def parameters(self, name: str, turn: int) -> Parameters:
        return self.weights

    @property
    def weights(self) -> Parameters:
        """The weights that a party takes."""
        return weight_parameters(self.model.size)

    def notes(self, noise: Mechanism, senders: int | None) -> tuple[str, ...]:
        notes = [*self.model.notes, *pretrained.notes(self.study, self.options)]
        if self.options.validation is not None:
            notes.append(
                "validation records count as public: they choose the model that is released, and the certificate says "
                "how well it does on them"
            )
        if self.options.patience is not None:
            notes.append(
                "epsilon is that of all rounds, also of a run that stops earlier by what public records say: what it "
                "released has chosen when it stops"
            )
        return tuple(notes)

    def check_coordinator(self) -> None:
        self.watch()

    def watch(self) -> Validation:
        """What measures the model in the course of the training."""
        return Validation(self.study, self.options, self.model, self.directions)

    def release(self, weights: Floats, watch: Validation | None = None, **details: Any) -> TorchWeights:
        """The model; the best that was measured, if some were."""
        history: tuple[dict[str, float], ...] = ()
        if watch is not None:
            weights, details, history = watch.chosen(weights), details | watch.details, tuple(watch.history)
        return TorchWeights(self.model, self.weights.nearest(weights), details, history)


class TrainingMethod(WorkloadMethod):
    """A method that trains and does nothing else."""

    tasks = ("classification", "regression")
    keys: ClassVar[type[Section]] = TrainingOptions

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        return False

    @classmethod
    def learns_directions(cls, study: Study) -> bool:
        return is_linear(study)
