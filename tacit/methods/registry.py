"""The methods by the names that a study uses."""

from __future__ import annotations

from tacit.methods.base import Method
from tacit.methods.baselines import Central, Conv, Local, Nothing
from tacit.methods.cape import Cape
from tacit.methods.dp_fm import DpFm
from tacit.methods.helmet import Helmet
from tacit.methods.moments import Moments
from tacit.methods.objective_perturbation import ObjectivePerturbation
from tacit.study import Study

_ALL = (Helmet, Moments, Cape, Conv, Local, Central, DpFm, ObjectivePerturbation, Nothing)
METHODS: dict[str, type[Method]] = {method.name: method for method in _ALL}


def method_for(study: Study) -> Method:
    """The study's method, set up and checked."""
    name = study.method.name
    if name not in METHODS:
        known = ", ".join(f'"{known}"' for known in METHODS)
        raise study.error("method.name", f'is "{name}", but should be one of: {known}')
    return METHODS[name](study)
