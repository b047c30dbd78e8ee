"""Learn one model together without sharing data, with differential privacy that holds against everyone.

>>> import unspoken
>>> model = unspoken.PrivateClassifier(method="helmet", epsilon=1.0, delta=1e-6)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspoken.errors import UnspokenError as UnspokenError
    from unspoken.estimators import PrivateClassifier as PrivateClassifier
    from unspoken.estimators import PrivateRegressor as PrivateRegressor
    from unspoken.simulation import Simulation as Simulation
    from unspoken.simulation import compute as compute
    from unspoken.simulation import simulate as simulate
    from unspoken.study import Study as Study
    from unspoken.study import make_study as make_study
    from unspoken.study import read_study as read_study

# Imported on first use, so that `import unspoken` and `unspoken --help` are quick.
_HOMES = {
    "PrivateClassifier": "unspoken.estimators",
    "PrivateRegressor": "unspoken.estimators",
    "Simulation": "unspoken.simulation",
    "Study": "unspoken.study",
    "UnspokenError": "unspoken.errors",
    "compute": "unspoken.simulation",
    "make_study": "unspoken.study",
    "read_study": "unspoken.study",
    "simulate": "unspoken.simulation",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("unspoken")
    if name not in _HOMES:
        raise AttributeError(f"module 'unspoken' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
