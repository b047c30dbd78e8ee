"""Learn one model together without sharing data, with differential privacy that holds against everyone.

>>> import tacit
>>> model = tacit.PrivateClassifier(method="helmet", epsilon=1.0, delta=1e-6)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.errors import TacitError as TacitError
    from tacit.estimators import PrivateClassifier as PrivateClassifier
    from tacit.estimators import PrivateRegressor as PrivateRegressor
    from tacit.simulation import Simulation as Simulation
    from tacit.simulation import compute as compute
    from tacit.simulation import simulate as simulate
    from tacit.study import Study as Study
    from tacit.study import make_study as make_study
    from tacit.study import read_study as read_study

# Imported when first used, so that `import tacit` and `tacit --help` are quick.
_HOMES = {
    "PrivateClassifier": "tacit.estimators",
    "PrivateRegressor": "tacit.estimators",
    "Simulation": "tacit.simulation",
    "Study": "tacit.study",
    "TacitError": "tacit.errors",
    "compute": "tacit.simulation",
    "make_study": "tacit.study",
    "read_study": "tacit.study",
    "simulate": "tacit.simulation",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("tacit")
    if name not in _HOMES:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
