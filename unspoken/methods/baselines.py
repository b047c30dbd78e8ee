"""What CAPE and `moments` are compared with, on the same functions and data, through the same engine.

`conv`: every party's message has all the noise that it needs, so their total has that of all parties. `local`: one
party alone. `central`: a trusted curator adds the noise once. `none`: no privacy. (`dp_fm` and
`objective_perturbation` have modules of their own.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.methods.base import (
    Collect,
    Conversation,
    Method,
    Pool,
    PooledMethod,
    Request,
    Total,
)
from unspoken.methods.functions import Ask, ComputesFunction, FunctionMethod, FunctionOptions, function_for
from unspoken.methods.mechanisms import CuratorNoise, IndependentNoise
from unspoken.methods.plan import OtherRelease, Plan
from unspoken.methods.planning import unprotected_plan
from unspoken.methods.releases import LinearModel, Release
from unspoken.methods.training_baselines import CentralTraining, LocalTraining, PlainTraining
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import Unprotected
from unspoken.study import Description, Study

_REGULARIZATION = 1e-5


class TrainsModels(Method):
    """A baseline that computes a function, or trains a PyTorch model where a study's [method] names a `model`."""

    training: ClassVar[type[Method]]

    @classmethod
    def variant(cls, study: Study) -> type[Description]:
        return cls.training if "model" in study.method.own_keys else cls


class Conv(FunctionMethod):
    """Conventional distributed privacy: independent noise at each party (CAPE, Section 3.1)."""

    name = "conv"
    summary = "a baseline: independent noise at each party"
    noise = IndependentNoise()

    def request(self, ask: Ask) -> Request:
        return Collect(ask.part, ask.parameters, ask.turn)


class Local(TrainsModels, FunctionMethod):
    """One party alone, the first: what it could publish of its own records."""

    name = "local"
    summary = "a baseline: no secure sum, each party adds all of its noise"
    training = LocalTraining
    noise = IndependentNoise()

    def plan(self) -> Plan:
        return replace(super().plan(), senders=1)

    @property
    def known(self) -> str:
        return "only the first party takes part, and how many records it has becomes known"

    def request(self, ask: Ask) -> Request:
        return Collect(ask.part, ask.parameters, ask.turn, only=0)


class Central(TrainsModels, FunctionMethod):
    """A curator whom everyone trusts: all records in one place, and noise once."""

    name = "central"
    summary = "a baseline: a trusted curator with all records adds the noise once"
    training = CentralTraining
    noise = CuratorNoise()
    sizes_known = False
    secrets: SecretStream | None = None
    """Where the noise comes from: the operating system, unless a test sets it."""

    def request(self, ask: Ask) -> Request:
        return Pool()

    def coordinate(self, plan: Plan) -> Conversation:
        records = yield Pool()
        conclusion = self.function.conclude()
        ask, secrets = next(conclusion), self.secrets or SecretStream()
        try:
            while True:
                planned = plan.planned(ask.part)
                contribution = self.function.contribute(records, ask.parameters, ask.part)
                noisy = planned.privatised(contribution.noisy, secrets, plan.trust.parties)
                total = Total(noisy, contribution.exact[0], 1, planned.total_std(1))
                ask = conclusion.send(total)
        except StopIteration as end:
            release: Release = end.value
            return release


class Nothing(TrainsModels, ComputesFunction, PooledMethod):
    """No privacy: the softmax model, the least-squares model or the exact statistics of all records."""

    name = "none"
    summary = "a baseline: no privacy"
    training = PlainTraining

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", FunctionOptions)
        self.function = function_for(study, self.options)

    def plan(self) -> Plan:
        sensitivity = self.function.sensitivity
        other = OtherRelease("function", self.function.dimension, "none", sensitivity, 0.0, Unprotected())
        return unprotected_plan(self.study, self.name, (), (other,))

    def coordinate(self, plan: Plan) -> Conversation:
        records: Block = yield Pool()
        if self.study.task == "classification" and self.options.function is None:
            learner = LinearLearner(
                CrossEntropy(len(self.study.data.class_names)), self.study.data.norm, _REGULARIZATION
            )
            return LinearModel(learner.fit(records)[0], learner.loss.link, self._details(records))
        if self.study.task == "regression":
            weights = np.linalg.lstsq(records.features[0], records.labels[0])[0]
            return LinearModel(weights[None], None, self._details(records))
        conclusion = self.function.conclude()
        ask = next(conclusion)
        try:
            while True:
                exact = self.function.contribute(records, ask.parameters, ask.part)
                ask = conclusion.send(Total(exact.noisy[0], exact.exact[0], 1, 0.0))
        except StopIteration as end:
            release: Release = end.value
            return release

    def _details(self, records: Block) -> dict[str, int]:
        """Nothing of parties' sizes where the study protects parties, though this method keeps no promise."""
        return {} if self.study.group is None else {"records": int(records.counts[0])}
