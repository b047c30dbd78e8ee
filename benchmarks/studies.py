"""The package as benchmarks use it: make a study, run all of it on this machine, and see what the release is worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from unspoken.data.federation import ArrayFederation, Federation
from unspoken.data.files import Records
from unspoken.data.splits import split
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.engines.outcome import Outcome
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.methods.registry import method_for
from unspoken.methods.releases import LinearModel, Release
from unspoken.noise.stream import SecretStream
from unspoken.study import Study, make_study
from unspoken.types import Floats, Integers, Labels

__all__ = [
    "ArrayFederation",
    "Federation",
    "Finished",
    "Floats",
    "Integers",
    "LinearModel",
    "Plan",
    "Records",
    "Release",
    "Study",
    "deal",
    "make_study",
    "method_for",
    "plan_of",
    "run",
    "run_records",
    "sections",
    "share_right",
    "split",
    "study",
]


class Finished(NamedTuple):
    """A run that ended, and what was planned for it."""

    outcome: Outcome
    plan: Plan

    @property
    def release(self) -> Release:
        return self.outcome.release


def study(
    data: dict[str, Any],
    parties: dict[str, Any],
    privacy: dict[str, Any],
    method: dict[str, Any],
    protocol: str = "ideal",
    **summation: Any,
) -> Study:
    """A study from its sections; with `classes` in its data it is a classification, else a regression.

    The ideal sum draws the total's noise at once: its totals are distributed as a secure sum's, and come sooner.
    """
    return make_study(sections(data, parties, privacy, method, protocol, **summation))


def sections(
    data: dict[str, Any],
    parties: dict[str, Any],
    privacy: dict[str, Any],
    method: dict[str, Any],
    protocol: str = "ideal",
    **summation: Any,
) -> dict[str, Any]:
    """The same as a dictionary, for other versions."""
    return {
        "study": {"name": "benchmark", "task": "classification" if "classes" in data else "regression"},
        "data": data,
        "parties": parties,
        "privacy": privacy,
        "method": method,
        "summation": {"protocol": protocol, **summation},
    }


def plan_of(agreed: Study) -> Plan:
    return method_for(agreed).plan()


def run(method: Method, federation: Federation, **how: Any) -> Finished:
    """Run a method from its plan to its release."""
    plan = method.plan()
    return Finished(local.run(method, plan, federation, Conditions(**how)), plan)


def run_records(agreed: Study, records: Records, groups: Integers, secrets: SecretStream | None = None) -> Finished:
    """The same for a study, with the party of each record."""
    return run(method_for(agreed), ArrayFederation(agreed, records, groups), secrets=secrets)


def share_right(agreed: Study, release: Release, features: Floats, labels: Labels) -> float:
    """The accuracy of a released model."""
    return float((release.predict(agreed, features) == labels).mean())


def deal(records: int, parties: int) -> Integers:
    """The party of each record, in turn."""
    return np.arange(records) % parties
