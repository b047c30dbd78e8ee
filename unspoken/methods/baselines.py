"""What CAPE and `moments` are compared with, on the same functions and data, through the same engine.

`conv`: every party's message has all the noise that it needs, so their total has that of all parties. `local`: one
party alone. `central`: a trusted curator adds the noise once. `none`: no privacy. (`dp_fm` and
`objective_perturbation` have modules of their own.)
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import Softmax
from unspoken.methods.base import (
    Collect,
    Conversation,
    Pool,
    PooledMethod,
    Request,
    Total,
)
from unspoken.methods.functions import Ask, FunctionMethod, FunctionOptions, function_for
from unspoken.methods.plan import OtherRelease, Plan, cautions, trust_of
from unspoken.methods.releases import LinearModel, Release
from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.stream import SecretStream
from unspoken.privacy.guarantee import Guarantee
from unspoken.study import Study

_REGULARIZATION = 1e-5


class Conv(FunctionMethod):
    """Conventional distributed privacy: independent noise at each party (CAPE, Section 3.1)."""

    name = "conv"
    noise = "independent"

    def request(self, ask: Ask) -> Request:
        return Collect(ask.part, ask.parameters, ask.turn)


class Local(FunctionMethod):
    """One party alone, the first: what it could publish of its own records."""

    name = "local"
    noise = "independent"

    def plan(self) -> Plan:
        return replace(super().plan(), senders=1)

    @property
    def known(self) -> str:
        return "only the first party takes part, and how many records it has becomes known"

    def request(self, ask: Ask) -> Request:
        return Collect(ask.part, ask.parameters, ask.turn, only=0)


class Central(FunctionMethod):
    """A curator whom everyone trusts: all records in one place, and noise once."""

    name = "central"
    noise = "curator"
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
                # The bound is a party's, and here are the records of all.
                encoding = replace(planned.encoding, bound=planned.encoding.bound * plan.trust.parties)
                contribution = self.function.contribute(records, ask.parameters, ask.part)
                words = encoding.encode(contribution.noisy)[0]
                deviation = planned.total_std(1) * planned.encoding.scale
                words += sample(deviation, planned.dimension, secrets).view(np.uint64)
                total = Total(planned.encoding.decode(words), contribution.exact[0], 1, planned.total_std(1))
                ask = conclusion.send(total)
        except StopIteration as end:
            release: Release = end.value
            return release


class Nothing(PooledMethod):
    """No privacy: the softmax model, the least-squares model or the exact statistics of all records."""

    name = "none"

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", FunctionOptions)
        self.function = function_for(study, self.options)

    def plan(self) -> Plan:
        trust = trust_of(self.study)
        guarantee = Guarantee(math.inf, 0.0, self.study.group, trust, None)
        other = OtherRelease("function", self.function.dimension, "none", self.function.sensitivity, 0.0)
        plan = Plan(self.study, self.name, (), guarantee, 0.0, (), (other,))
        return Plan(self.study, self.name, (), guarantee, 0.0, cautions(plan), (other,))

    def coordinate(self, plan: Plan) -> Conversation:
        records: Block = yield Pool()
        if self.study.study.task == "classification" and self.options.function is None:
            learner = LinearLearner(Softmax(len(self.study.data.class_names)), self.study.data.norm, _REGULARIZATION)
            return LinearModel(learner.fit(records)[0], learner.loss.link, self._details(records))
        if self.study.study.task == "regression":
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
