"""The methods by the names that a study uses."""

from __future__ import annotations

from unspoken.methods.base import Method
from unspoken.methods.baselines import Central, Conv, Local, Nothing
from unspoken.methods.cape import Cape
from unspoken.methods.cross_silo import CrossSilo
from unspoken.methods.dp_fm import DpFm
from unspoken.methods.helmet import Helmet
from unspoken.methods.moments import Moments
from unspoken.methods.multiparty import Multiparty
from unspoken.methods.objective_perturbation import ObjectivePerturbation
from unspoken.methods.training_baselines import CentralTraining, FedAvg, FedSgd, LocalTraining, PlainTraining
from unspoken.methods.voting import Voting
from unspoken.study import Study

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
