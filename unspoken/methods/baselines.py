"""Baselines: the same workloads as other methods, through the same engine, with another kind of noise.

`conv`: every party's message has all the noise that it needs by itself, so the total has the noise of all parties.
`local`: one party alone. `central`: a trusted curator adds the noise once. `none`: no privacy. (`dp_fm`,
`objective_perturbation`, `fedavg` and `fedsgd` have modules of their own.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from unspoken.data.block import Block
from unspoken.methods.base import Collect, Conversation, PartyContext, PartyRequest, Pool, Total
from unspoken.methods.functions import FunctionMethod
from unspoken.methods.planning import OtherRelease, Plan
from unspoken.methods.planning.budget import trust_of
from unspoken.methods.planning.making import Setting, plan_sum, state_plan
from unspoken.methods.planning.mechanisms import CuratorNoise, IndependentNoise, NoNoise
from unspoken.methods.training.averaging import AveragedModels
from unspoken.methods.training.base import is_linear
from unspoken.methods.training.batches import PooledBatches
from unspoken.methods.training.gradients import GradientDescent
from unspoken.methods.training.options import FederatedOptions, GradientOptions, TrainingOptions
from unspoken.methods.workloads import Query, Workload, answered_by
from unspoken.noise.stream import SecretStream
from unspoken.privacy.events import Unprotected
from unspoken.study import Section, Study


class FunctionOrTraining(FunctionMethod):
    """Computes a function, or trains a PyTorch model where a study's [method] names a `model`."""

    training_keys: ClassVar[type[TrainingOptions]] = GradientOptions

    @classmethod
    def trains(cls, study: Study) -> bool:
        return "model" in study.method.own_keys

    @classmethod
    def keys_for(cls, study: Study) -> type[Section]:
        return cls.training_keys if cls.trains(study) else super().keys_for(study)

    @classmethod
    def used_with(cls, study: Study) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        return {} if cls.trains(study) else super().used_with(study)

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        return not cls.trains(study)

    @classmethod
    def learns_directions(cls, study: Study) -> bool:
        return is_linear(study) if cls.trains(study) else super().learns_directions(study)

    def make_workload(self) -> Workload:
        return self.make_training() if self.trains(self.study) else super().make_workload()

    def make_training(self) -> Workload:
        """The training that the study asks for."""
        return GradientDescent(self.study, self.study.options("method", GradientOptions))


class IndependentMessages(FunctionMethod):
    """Conventional distributed privacy: independent noise at each party (CAPE, Section 3.1)."""

    name = "conv"
    summary = "a baseline: independent noise at each party"
    noise = IndependentNoise()


class Local(FunctionOrTraining):
    """Local differential privacy: what the first party could publish of its own records.

    All parties train a model together. Each protects its own gradient, with all the noise that this needs.
    """

    fewest_parties = 1
    name = "local"
    summary = "a baseline: no secure sum, each party adds all of its noise"
    noise = IndependentNoise()

    @property
    def senders(self) -> int | None:
        return None if self.workload.needs_every_party else 1

    def request(self, query: Query) -> PartyRequest:
        only = None if self.workload.needs_every_party else 0
        return Collect(query.name, query.parameters, query.turn, only=only)


class Central(FunctionOrTraining):
    """A curator whom everyone trusts: all records in one place, and noise once. Training is DP-SGD."""

    fewest_parties = 1
    name = "central"
    summary = "a baseline: a trusted curator with all records adds the noise once"
    noise = CuratorNoise()
    secrets: SecretStream | None = None
    """The source of batches and noise: the operating system, unless a test sets it."""

    def make_training(self) -> Workload:
        return GradientDescent(self.study, self.study.options("method", GradientOptions), PooledBatches)

    def coordinate(self, plan: Plan) -> Conversation:
        records: Block = yield Pool()
        secrets = self.secrets or SecretStream()

        def noisy_total(query: Query) -> Total:
            planned = plan.sum_named(query.name)
            contribution = self.workload.contribute(query, records, [PartyContext(secrets)])
            noisy = planned.privatised(contribution.noisy, secrets, plan.trust.parties)
            return Total(noisy, contribution.exact[0], 1, planned.total_std(1))

        return (yield from self.concluded(answered_by(noisy_total)))


class NonPrivate(FunctionOrTraining):
    """No privacy: the function of all records in one place, or the average of models that parties train (FedAvg)."""

    fewest_parties = 1
    name = "none"
    summary = "a baseline: no privacy"
    training_keys = FederatedOptions
    noise = NoNoise()
    takes_functions = False

    @classmethod
    def learns_directions(cls, study: Study) -> bool:
        """Without noise there is nothing to gain."""
        return False

    def check_unit(self) -> None:
        """Accept any unit, since nothing is promised."""

    def make_training(self) -> Workload:
        return AveragedModels(self.study, self.study.options("method", FederatedOptions))

    def plan(self) -> Plan:
        if not self.workload.needs_every_party:
            result = self.sums()[-1]
            release = OtherRelease(result.name, result.dimension, "none", result.sensitivity, 0.0, Unprotected())
            return state_plan(self.study, self.name, Setting(trust_of(self.study)), others=(release,))
        setting, sums = Setting(trust_of(self.study), attempts=self.study.privacy.attempts), []
        for declared in self.sums():
            # Encoded as finely as a total of sensitivity 1 would be.
            planned = plan_sum(self.study, setting, replace(declared, sensitivity=1.0), 1.0)
            sums.append(replace(planned, sensitivity=declared.sensitivity, noise_std=0.0))
        return state_plan(self.study, self.name, setting, tuple(sums))

    def coordinate(self, plan: Plan) -> Conversation:
        if self.workload.needs_every_party:
            return (yield from super().coordinate(plan))
        records: Block = yield Pool()
        return self.workload.exact_fit(records) or self.exact_release(records)
