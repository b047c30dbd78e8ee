"""Public records with labels, by which a model is measured while it is trained, chosen, and stopped early.

The coordinator does the measuring; parties need not have the file. Weights are released in every round anyway, so
choosing among them costs no privacy. When to stop follows from them too, so that no less is promised if it stops early:
the promise is that of all rounds (`Plan.guarantee_after`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspoken.data.files import Records, read_records
from unspoken.learners.public_directions import PublicDirections
from unspoken.methods.base import Method
from unspoken.methods.releases import TorchWeights
from unspoken.methods.training.options import TrainingOptions
from unspoken.study import Study, StudyError, file_beside
from unspoken.types import Floats

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel


def remarks(method: Method, name: str) -> list[str]:
    """Read the study's validation records as a run would, or remark that this machine does not have them.

    This is no note of the plan: parties plan without the file, and all must make the same plan.
    """
    try:
        file_beside(method.study, name, "method.validation")
    except StudyError:
        return [f'validation = "{name}" is not on this machine; the coordinator must have it when the study runs']
    method.check_coordinator()
    return []


class Validation:
    """Measures the model every few rounds, if the study names records to do it with."""

    def __init__(
        self, study: Study, options: TrainingOptions, model: TorchModel, directions: PublicDirections | None
    ) -> None:
        self._study, self._options, self._model, self._directions = study, options, model, directions
        self._records: Records | None = None
        if options.validation is not None:
            self._records = read_records(file_beside(study, options.validation, "method.validation"), study)
            self._check(self._records)
        self._best: tuple[float, Floats] | None = None
        self._since_best = 0
        self.history: list[dict[str, float]] = []
        """What was measured: the number of rounds made so far, and the metrics after them"""

    def _check(self, records: Records) -> None:
        """Refuse records that the module does not take: they would count as records of the first class."""
        failed, said = TorchWeights(self._model, self._model.initial(), {}).failures(self._study, records.features)
        if failed:
            raise self._study.error(
                "method.validation",
                f'is "{self._options.validation}", of whose {len(records):,} records the model cannot score '
                f"{failed:,} ({said}); leave these out, or let the module take them",
            )

    def is_over(self, turn: int, weights: Floats) -> bool:
        """Measure the weights after this turn, if it is time; whether to stop."""
        made = turn + 1
        if self._records is None or (made % self._options.validate_every and made < self._options.rounds):
            return False
        release = TorchWeights(self._model, weights, {})
        seen = release if self._directions is None else release.mapped_back(self._directions)
        metrics = seen.metrics(self._study, self._records)
        self.history.append({"rounds": made, **metrics})
        quality = -metrics["mse"] if self._study.task == "regression" else metrics["accuracy"]
        if self._best is None or quality > self._best[0]:
            self._best, self._since_best = (quality, weights), 0
        else:
            self._since_best += 1
        return self._options.patience is not None and self._since_best >= self._options.patience

    def chosen(self, last: Floats) -> Floats:
        """The best weights that were measured; the last ones if none were."""
        return last if self._best is None else self._best[1]

    @property
    def details(self) -> dict[str, float]:
        """What the certificate says of it: the rounds that were made, and the metric by which the model was chosen."""
        if self._best is None:
            return {}
        name = "mse" if self._study.task == "regression" else "accuracy"
        return {"rounds_made": self.history[-1]["rounds"], f"validation_{name}": abs(self._best[0])}
