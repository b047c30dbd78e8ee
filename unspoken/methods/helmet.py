"""Blind averaging: every party trains a model on its own, and only the noised average of all models is revealed.

Secure Distributed DP-Helmet, Algorithm 2. Against the paper: parties of unequal size count by their records (N_i·w_i
and N_i are summed), which makes the influence of every record the same, 2L/Λ on the total, and needs no smallest
party; sensitivities and noise shares are those of `learners.linear` and `privacy.guarantee`; all outputs are one
vector-valued release instead of one per class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from unspoken.data.block import Block
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import loss_of
from unspoken.methods.base import Contribution, Conversation, Method, PartyContext, PartyRequest, Sum
from unspoken.methods.plan import DeclaredSum, Plan
from unspoken.methods.planning import make_plan
from unspoken.methods.releases import LinearModel
from unspoken.study import Section, Study, Template


class Options(Section):
    """The keys of [method] for helmet."""

    learner: Literal["softmax", "logistic", "svm"] = Field("softmax", description='"softmax", "logistic" or "svm"')
    regularization: float = Field(
        0.1, ge=1e-6, description="a number from 1e-6 up, such as 0.1: larger means less noise and simpler models"
    )
    weights: Literal["records", "equal"] | None = Field(
        None, description='"records" (each party counts by its number of records) or "equal"'
    )
    radius: float | None = Field(None, gt=0.0, description="the largest norm of a party's model, above 0")
    solver: Literal["certified", "sgd"] = Field("certified", description='"certified" or "sgd"')
    batch: int = Field(20, ge=1, description="the number of records in a batch of sgd, 1 or more")
    epochs: int = Field(50, ge=1, description="the number of passes of sgd over a party's records, 1 or more")
    smoothing: float = Field(
        0.1, ge=1e-3, le=10.0, description="the half-width of the Huber loss's bend (svm), from 0.001 to 10"
    )
    seed: int = Field(0, ge=0, description="a whole number: the public seed of the order of records in sgd")


class Helmet(Method):
    """Secure Distributed DP-Helmet."""

    name = "helmet"
    summary = "blind averaging of models that parties train alone"
    tasks = ("classification",)
    keys = Options
    template: ClassVar[Template] = {
        "classification": """\
learner = "softmax"           # or "logistic", "svm"
regularization = 0.1          # larger: less noise, simpler models
"""
    }
    estimator_parameters = ("learner", "regularization", "weights", "radius", "solver")

    @classmethod
    def gives_probabilities(cls, keys: Mapping[str, Any]) -> bool:
        return keys.get("learner") != "svm"

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", Options)
        self.by_records = self.options.weights != "equal" and study.group is not None
        if self.options.weights == "records" and study.group is None:
            raise study.error(
                "method.weights",
                'is "records", but with unit = "party" a party\'s size is protected too; use weights = "equal"',
            )
        self.learner = LinearLearner(
            loss=loss_of(self.options.learner, len(study.data.class_names), self.options.smoothing),
            norm=study.data.norm,
            regularization=self.options.regularization,
            radius=self.options.radius,
            solver=self.options.solver,
            batch=self.options.batch,
            epochs=self.options.epochs,
            seed=self.options.seed,
        )

    def plan(self) -> Plan:
        learner, parties, group = self.learner, self.study.parties, self.study.group
        if group is None:
            sensitivity = learner.party_sensitivity()
        elif self.by_records:
            sensitivity = group * learner.scaled_sensitivity(parties.max_records)
        else:
            # The k records may lie at k different parties.
            sensitivity = group * learner.sensitivity(parties.records)
        declared = DeclaredSum(
            name="model",
            dimension=learner.loss.outputs * self.study.data.dimension,
            bound=learner.model_bound * (parties.max_records if self.by_records else 1),
            sensitivity=sensitivity,
            exact=("records",) if self.by_records else (),
        )
        notes = (
            ("the total number of records becomes known; how many each party has is not part of the promise",)
            if self.by_records
            else ()
        )
        return make_plan(self.study, self.name, [declared], notes)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        models = self.learner.fit(block)
        vectors = models.reshape(len(block), -1)
        if not self.by_records:
            return Contribution(vectors)
        return Contribution(vectors * block.counts[:, None], block.counts[:, None])

    def coordinate(self, plan: Plan) -> Conversation:
        total = yield Sum("model")
        count = int(total.exact[0]) if self.by_records else total.survivors
        average = total.noisy / count
        details = {**({"records": count} if self.by_records else {}), "noise_std_per_weight": total.noise_std / count}
        weights = average.reshape(self.learner.loss.outputs, -1)
        return LinearModel(weights, self.learner.loss.link, details)
