"""Learn one model together without sharing data, with differential privacy that holds against everyone.

>>> import unspoken
>>> model = unspoken.PrivateClassifier(epsilon=1.0, delta=1e-6)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspoken.comparison import Compared as Compared
    from unspoken.comparison import compare as compare
    from unspoken.data.checking import check as check
    from unspoken.errors import DataWarning as DataWarning
    from unspoken.errors import PrivacyWarning as PrivacyWarning
    from unspoken.errors import UnspokenError as UnspokenError
    from unspoken.estimators import PrivateClassifier as PrivateClassifier
    from unspoken.estimators import PrivateRegressor as PrivateRegressor
    from unspoken.methods.registry import plan as plan
    from unspoken.privacy.ledger import Ledger as Ledger
    from unspoken.report.convictions import Convictions as Convictions
    from unspoken.report.convictions import EvidenceError as EvidenceError
    from unspoken.report.convictions import verify_evidence as verify_evidence
    from unspoken.report.verification import CertificateError as CertificateError
    from unspoken.report.verification import Verified as Verified
    from unspoken.report.verification import verify as verify
    from unspoken.simulation import Simulation as Simulation
    from unspoken.simulation import compute as compute
    from unspoken.simulation import functional_mechanism as functional_mechanism
    from unspoken.simulation import simulate as simulate
    from unspoken.simulation import tune as tune
    from unspoken.study import Study as Study
    from unspoken.study import make_study as make_study
    from unspoken.study import read_study as read_study

# Imported on first use, so that `import unspoken` and `unspoken --help` are quick.
_HOMES = {
    "CertificateError": "unspoken.report.verification",
    "Compared": "unspoken.comparison",
    "Convictions": "unspoken.report.convictions",
    "DataWarning": "unspoken.errors",
    "EvidenceError": "unspoken.report.convictions",
    "PrivacyWarning": "unspoken.errors",
    "Ledger": "unspoken.privacy.ledger",
    "PrivateClassifier": "unspoken.estimators",
    "PrivateRegressor": "unspoken.estimators",
    "Simulation": "unspoken.simulation",
    "Study": "unspoken.study",
    "UnspokenError": "unspoken.errors",
    "Verified": "unspoken.report.verification",
    "check": "unspoken.data.checking",
    "compare": "unspoken.comparison",
    "compute": "unspoken.simulation",
    "functional_mechanism": "unspoken.simulation",
    "make_study": "unspoken.study",
    "plan": "unspoken.methods.registry",
    "read_study": "unspoken.study",
    "simulate": "unspoken.simulation",
    "tune": "unspoken.simulation",
    "verify": "unspoken.report.verification",
    "verify_evidence": "unspoken.report.convictions",
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
