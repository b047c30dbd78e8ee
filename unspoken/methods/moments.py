"""Moments: secure sums over all records, from which the coordinator computes the model as if the records were in one
place.

The sums do not depend on how records are spread over parties; no party trains a model. By default `function = "auto"`:
`learners.default_rule` chooses everything from public facts, and `unspoken plan` shows the choices. A study may also
choose:

- `function = "linear-regression"` (of a regression), `"logistic-regression"` or `"discriminant"`: one sum of second
  moments, in which everything is solved;
- `function = "softmax"`: the first moment, then `steps` sums of clipped gradients.

The model is computed from the noisy sums and the known level of their noise, and from nothing else: see
`learners.second_moments`, `learners.solving` and `learners.softmax_steps`.
"""

from __future__ import annotations

from typing import ClassVar

from unspoken.methods.functions import FunctionMethod, FunctionOptions
from unspoken.methods.functions.auto import LEFT_OPEN
from unspoken.methods.functions.method import CHOSEN_BY_RULE
from unspoken.methods.planning.mechanisms import NoiseShares
from unspoken.study import Study, Template


class Moments(FunctionMethod):
    """Models from sums over all records. Only the totals are revealed."""

    name = "moments"
    summary = "models and statistics from secure sums over all records; nothing to tune"
    template: ClassVar[Template] = {
        "classification": "",
        "regression": "",
        "statistics": """\
function = "mean"             # of each column; or "histogram", with bins = 10
""",
    }
    noise = NoiseShares()

    @classmethod
    def default_function(cls, study: Study) -> str:
        """By rule, unless the study sets keys that the rule would choose, and so chooses for itself."""
        if study.task == "statistics":
            return super().default_function(study)
        given = study.method.own_keys.keys() & FunctionOptions.model_fields.keys()
        return CHOSEN_BY_RULE[study.task] if given - set(LEFT_OPEN) else "auto"

    def read_options(self) -> FunctionOptions:
        options = super().read_options()
        if options.function is None:
            return options.model_copy(update={"function": self.default_function(self.study)})
        return options
