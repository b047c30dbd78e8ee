"""The methods by the names that a study uses."""

from __future__ import annotations

from tacit.methods.base import Method
from tacit.methods.baselines import Central, Conv, Local, Nothing
from tacit.methods.cape import Cape
from tacit.methods.cross_silo import CrossSilo
from tacit.methods.dp_fm import DpFm
from tacit.methods.helmet import Helmet
from tacit.methods.moments import Moments
from tacit.methods.multiparty import Multiparty
from tacit.methods.objective_perturbation import ObjectivePerturbation
from tacit.methods.training_baselines import CentralTraining, FedAvg, FedSgd, LocalTraining, PlainTraining
from tacit.methods.voting import Voting
from tacit.study import Study

_TRAINING: dict[str, type[Method]] = {kind.name: kind for kind in (CentralTraining, LocalTraining, PlainTraining)}
"""Baselines that train a PyTorch model where [method] names one, and compute a function otherwise."""
_ALL = (
    Helmet,
    Moments,
    Cape,
    CrossSilo,
    Multiparty,
    Voting,
    FedAvg,
    FedSgd,
    Conv,
    Local,
    Central,
    DpFm,
    ObjectivePerturbation,
    Nothing,
)
METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}


def method_for(study: Study) -> Method:
    """The study's method, set up and checked."""
    name = study.method.name
    if name not in METHODS:
        known = ", ".join(f'"{known}"' for known in METHODS)
        raise study.error("method.name", f'is "{name}", but should be one of: {known}')
    trains = "model" in (study.method.model_extra or {})
    return (_TRAINING if trains and name in _TRAINING else METHODS)[name](study)
