"""Methods that compute a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unspoken.methods.functions.auto import LEFT_OPEN, automatic, knows_directions
from unspoken.methods.functions.base import Function, NamedFunction
from unspoken.methods.functions.discriminant import Discriminant
from unspoken.methods.functions.histogram import Histogram
from unspoken.methods.functions.mean import Mean
from unspoken.methods.functions.network import NetworkGradient
from unspoken.methods.functions.options import FunctionOptions
from unspoken.methods.functions.regression import LeastSquares
from unspoken.methods.functions.softmax import SoftmaxRegression
from unspoken.methods.workloads import Workload, WorkloadMethod
from unspoken.study import Study
from unspoken.study.description import BY_RULE

_FUNCTIONS: dict[str, dict[str, type[NamedFunction]]] = {
    "regression": {"linear-regression": LeastSquares},
    "classification": {
        "logistic-regression": LeastSquares,
        "discriminant": Discriminant,
        "softmax": SoftmaxRegression,
        "network": NetworkGradient,
    },
    "statistics": {"mean": Mean, "histogram": Histogram},
}
"""The functions of each task by their names in a study, the default first"""
CHOSEN_BY_RULE: dict[str, str] = {"classification": "softmax", "regression": "linear-regression"}
"""The function that learns the kind of model that "auto" does"""


def function_for(study: Study, options: FunctionOptions) -> Function:
    """The function that the study asks for, or the default of its task."""
    fitting = _FUNCTIONS[study.task]
    name: str = options.function or next(iter(fitting))
    if name == "auto" and study.task != "statistics":
        return automatic(study, options)
    if name not in fitting:
        listed = " or ".join(f'"{known}"' for known in fitting)
        raise study.error("method.function", f'is "{name}", but for the task "{study.task}" it should be {listed}')
    return fitting[name](study, options)


class FunctionMethod(WorkloadMethod):
    """A method whose workload is the function that the study names, or one that it is given."""

    keys = FunctionOptions
    knows_exact = takes_functions = True

    @classmethod
    def default_function(cls, study: Study) -> str:
        """The function of a study that names none."""
        return next(iter(_FUNCTIONS[study.task]))

    @classmethod
    def computes(cls, study: Study) -> str:
        return super().computes(study) or cls.default_function(study)

    @classmethod
    def chosen(cls, study: Study, key: str) -> Any:
        return cls.computes(study) if key == "function" else super().chosen(study, key)

    @classmethod
    def used_with(cls, study: Study) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        uses = {name: kind.uses for name, kind in _FUNCTIONS[study.task].items()}
        uses |= {} if study.task == "statistics" else {"auto": LEFT_OPEN}
        keys = [key for key in FunctionOptions.model_fields if key != "function"]
        return {key: ("function", tuple(name for name, used in uses.items() if key in used)) for key in keys}

    @classmethod
    def told(cls, study: Study) -> str:
        name = cls.computes(study)
        return f"{CHOSEN_BY_RULE[study.task]}{BY_RULE}" if name == "auto" else name

    @classmethod
    def learns_directions(cls, study: Study) -> bool:
        fitting = _FUNCTIONS[study.task]
        named = str(study.method.own_keys.get("function") or cls.default_function(study))
        if study.task != "classification":
            return False
        if named == "auto":
            return not knows_directions(study)
        return named in fitting and fitting[named].learns_mapped

    def read_options(self) -> FunctionOptions:
        """The keys of [method]. A method may have more of them, or other defaults."""
        return self.study.options("method", FunctionOptions)

    def make_workload(self) -> Workload:
        return function_for(self.study, self.read_options())
