"""Blind averaging: every party trains a model on its own, and only the noised average of all models is revealed.

Secure Distributed DP-Helmet, Algorithm 2. Against the paper: parties of unequal size count by their records (N_i·w_i
and N_i are summed), which makes the influence of every record the same, D/Λ on the total, and needs no smallest
party; sensitivities and noise shares are those of `learners.linear` and `privacy.guarantee`; all outputs are one
vector-valued release instead of one per class.

A single party (`[parties] count = 1`, the paper's centralised setting) adds all of the noise itself and sends its model
as a message, since there is nobody to sum with. If each of several parties does so, that is the naive approach: the
baseline `independent-models`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from unspoken.data.block import Block
from unspoken.data.records import Records
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import LEARNERS, Learner, loss_of
from unspoken.methods.base import (
    Choice,
    Collect,
    Contribution,
    Conversation,
    Method,
    PartyContext,
    PartyRequest,
    Sum,
    Trials,
)
from unspoken.methods.helmet_rules import (
    choose_constant,
    choose_radius,
    choose_regularization,
    has_long_mean,
    total_sensitivity,
)
from unspoken.methods.helmet_tuning import choose
from unspoken.methods.planning import DeclaredSum, Plan, make_plan, with_doubts
from unspoken.methods.planning.mechanisms import IndependentNoise, Mechanism, NoiseShares
from unspoken.methods.releases import LinearModel
from unspoken.study import Section, Study, Template

_FAINT = 0.05
"""Scores that differ by so little change probabilities by a few hundredths at most"""
_LARGE = 0.02
"""The Λ/c² from which on a model of records with a long mean hardly says more than which class is the most frequent"""


class Options(Section):
    """The keys of [method] for helmet."""

    learner: Learner = Field("softmax", description=LEARNERS)
    regularization: float | None = Field(
        None, ge=1e-6, description="a number from 1e-6 up, such as 0.1: larger means less noise and simpler models"
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
    fewest_parties = 1
    keys = Options
    template: ClassVar[Template] = {
        "classification": """\
learner = "softmax"           # or "logistic", "svm"
# regularization = 0.1        # larger: less noise, simpler models; left out: by a rule, see `unspoken plan`
# radius = 1.0                # the largest norm of a party's model; left out: none for records, by a rule for parties
"""
    }
    estimator_parameters = ("learner", "regularization", "weights", "radius", "solver")

    @classmethod
    def used_with(cls, study: Study) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        of_sgd = dict.fromkeys(("batch", "epochs", "seed"), ("solver", ("sgd",)))
        return {"smoothing": ("learner", ("svm",)), **of_sgd}

    @classmethod
    def learns_directions(cls, study: Study) -> bool:
        return True

    @classmethod
    def gives_probabilities(cls, keys: Mapping[str, Any]) -> bool:
        return keys.get("learner") != "svm"

    @classmethod
    def tuned(cls, study: Study, public: Records, trials: Trials) -> list[Choice]:
        return choose(cls, study, public, trials)

    @classmethod
    def default_constant(cls, study: Study) -> float:
        return choose_constant(study)

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", Options)
        self.by_records = self.options.weights != "equal" and study.group is not None
        if self.options.weights == "records" and study.group is None:
            raise study.error(
                "method.weights",
                'is "records", but with unit = "party" a party\'s size is protected too; use weights = "equal"',
            )
        learner = LinearLearner(
            loss=loss_of(self.options.learner, len(study.data.class_names), self.options.smoothing),
            norm=study.data.norm,
            regularization=self.options.regularization or 1.0,
            radius=self.options.radius,
            solver=self.options.solver,
            batch=self.options.batch,
            epochs=self.options.epochs,
            seed=self.options.seed,
        )
        if self.options.regularization is None:
            quiet = choose_regularization(study, learner, self.by_records, self.noise.in_the_open)
            learner = replace(learner, regularization=quiet)
        if self.options.radius is None and study.group is None:
            learner = replace(learner, radius=choose_radius(learner))
        self.learner = learner

    @property
    def noise(self) -> Mechanism:
        """The noise mechanism, not yet sized: shares in a secure sum, or all of it at the only party."""
        return IndependentNoise() if self.study.parties.count == 1 else NoiseShares()

    def plan(self) -> Plan:
        learner, parties = self.learner, self.study.parties
        declared = DeclaredSum(
            name="model",
            dimension=learner.loss.outputs * self.study.data.dimension,
            bound=learner.model_bound * (parties.max_records if self.by_records else 1),
            sensitivity=total_sensitivity(self.study, learner, self.by_records),
            exact=("records",) if self.by_records else (),
            noise=self.noise,
            longest=learner.model_bound * parties.count * (parties.records if self.by_records else 1),
        )
        plan = make_plan(self.study, self.name, [declared], tuple(self._notes()))
        facts = {"regularization": learner.regularization, "radius": learner.radius}
        facts["noise_multiplier"] = plan.sums[0].noise_std / plan.sums[0].sensitivity
        if self.study.data.has_intercept:
            facts["constant"] = self.study.data.constant
        if self.options.regularization is None:
            plan = with_doubts(plan, self._levelled())
        return replace(plan, facts={key: value for key, value in facts.items() if value is not None})

    def _notes(self) -> Iterator[str]:
        if self.study.parties.count == 1:
            yield "the only party adds all of the noise itself: no secure sum is needed, and nobody can collude"
        if self.by_records:
            whose = "every party's" if self.noise.in_the_open else "the total"
            yield f"{whose} number of records becomes known; how many each party has is not part of the promise"
        if self.options.regularization is None:
            yield f"regularization = {self.learner.regularization:g}, by a rule, as the study leaves it open"
        if self.options.radius is None and self.learner.radius is not None:
            yield f"radius = {self.learner.radius:g}, by a rule, as the study leaves it open"
        data = self.study.data
        if data.has_intercept and data.constant != 1.0:
            yield f"for the intercept {data.constant:g} is appended to each record, by a rule"
        yield from self._faint()
        if self.options.regularization is not None:
            yield from self._levelled()

    def _faint(self) -> Iterator[str]:
        """A note on a regularisation that leaves models nothing to say."""
        largest = self.learner.model_bound * self.study.data.norm
        if largest < _FAINT:
            limit = "radius" if self.learner.model_bound == self.options.radius else "regularization"
            yield (
                f"{limit} = {getattr(self.learner, limit):g} keeps every score of a model below {largest:.2g}, so that "
                f"classes are hardly told apart; {'raise' if limit == 'radius' else 'lower'} it"
            )

    def _levelled(self) -> Iterator[str]:
        """A note on a regularisation that leaves little but the mean of all records to be learnt."""
        strength = self.learner.regularization
        if has_long_mean(self.study) and strength >= (1.0 - 1e-9) * _LARGE * self.learner.norm**2:
            cause = "so much noise asks for it" if self.options.regularization is None else "a smaller one brings noise"
            yield (
                f"regularization = {strength:g} keeps models close to what all records have in common ({cause}): where "
                "one class is more frequent than the others, expect a model that nearly always says that class; "
                '"moments" learns more here, and so does "helmet" with public records, more records or a larger epsilon'
            )

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        models = self.learner.fit(block)
        vectors = models.reshape(len(block), -1)
        if not self.by_records:
            return Contribution(vectors)
        return Contribution(vectors * block.counts[:, None], block.counts[:, None])

    def coordinate(self, plan: Plan) -> Conversation:
        total = yield (Sum if self.noise.summed else Collect)("model")
        count = int(total.exact[0]) if self.by_records else total.survivors
        average = total.noisy / count
        details = {**({"records": count} if self.by_records else {}), "noise_std_per_weight": total.noise_std / count}
        weights = average.reshape(self.learner.loss.outputs, -1)
        return LinearModel(weights, self.learner.loss.link, details)


class IndependentModels(Helmet):
    """The naive baseline: every party adds all the noise that its own model needs, and publishes the model.

    The average of n such models has √n times the noise of blind averaging, or a little less if blind averaging allows
    for colluders.
    """

    name = "independent-models"
    summary = "a baseline: an average of models that are private on their own"
    template: ClassVar[Template] = {}
    noise = IndependentNoise()
