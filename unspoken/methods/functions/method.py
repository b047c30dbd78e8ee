"""Methods that compute a function."""

from __future__ import annotations

from collections.abc import Callable

from unspoken.methods.functions.base import Function
from unspoken.methods.functions.discriminant import Discriminant
from unspoken.methods.functions.histogram import Histogram
from unspoken.methods.functions.mean import Mean
from unspoken.methods.functions.network import NetworkGradient
from unspoken.methods.functions.options import FunctionName, FunctionOptions
from unspoken.methods.functions.regression import LeastSquares
from unspoken.methods.functions.softmax import SoftmaxRegression
from unspoken.methods.workloads import Workload, WorkloadMethod
from unspoken.study import Study

_FUNCTIONS: dict[str, dict[FunctionName, Callable[[Study, FunctionOptions], Function]]] = {
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
_SPOILT_BY_CLIPPING = ("discriminant", "network")


def function_for(study: Study, options: FunctionOptions) -> Function:
    """The function that the study asks for, or the default of its task."""
    fitting = _FUNCTIONS[study.task]
    name = options.function or next(iter(fitting))
    if name not in fitting:
        listed = " or ".join(f'"{known}"' for known in fitting)
        raise study.error("method.function", f'is "{name}", but for the task "{study.task}" it should be {listed}')
    return fitting[name](study, options)


class ComputesFunctions(WorkloadMethod):
    """A method whose workload is the function that the study names."""

    keys = FunctionOptions

    @classmethod
    def is_spoilt_by_clipping(cls, study: Study) -> bool:
        return super().is_spoilt_by_clipping(study) or study.method.own_keys.get("function") in _SPOILT_BY_CLIPPING

    def read_options(self) -> FunctionOptions:
        """The keys of [method]. A method may have more of them, or other defaults."""
        return self.study.options("method", FunctionOptions)

    def make_workload(self) -> Workload:
        return function_for(self.study, self.read_options())


class FunctionMethod(ComputesFunctions):
    """Computes a function under noise. `unspoken.compute` can give it a function of one's own."""
