"""Learning from multiparty data by votes on public records (Hamm, Cao & Belkin 2016, and its supplement).

Every party trains a classifier on its own and votes on public records without labels. A trainer, whom all parties
trust, minimises a regularised risk on the public records and adds noise to the minimiser:

- `labels = "majority"`: each record has the label that most parties voted for;
- `labels = "weighted"`: each label counts by its share of the votes, so that a single party matters M times less;
- `labels = "average"`: the parties' weights are averaged, and public records are not needed.

Where parties vote, their classifiers may be of any kind (`model`), since only one label for each record is needed. If a
classifier fails or predicts no class, the vote is for the first class, because a failure must not be visible.

Formal guarantee. Replacing all records of a party may change its vote on every record. The minimiser of the λ-strongly
convex risk then moves by at most q·c/(λM) (weighted) or q·c/λ (majority), c the norm of records and q the most that
another label moves the slopes (`Loss.label_effect`; the paper has 2 for logistic loss, where 1 is right). An average
moves by 2R/M, R the largest norm of a party's model, and by what rounding adds. Minimisers are certified, and what the
certificate leaves open is in the sensitivity.

M is the number of parties that the study planned with, whoever drops out: an average is the sum over M, and with s
voters the shares are of s votes and λ grows to λM/s, so that the minimiser still moves by q·c/(λM).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.data.public import PublicRecords, required_public
from unspoken.errors import UnspokenError
from unspoken.learners import certified
from unspoken.learners.linear import SLACK, LinearLearner
from unspoken.learners.losses import LEARNERS, CrossEntropy, Learner, SoftLabelLoss, loss_of
from unspoken.learners.parametrization import space_for
from unspoken.learners.scores import classify
from unspoken.methods.base import Collect, Contribution, Conversation, Method, PartyContext, PartyRequest, Total
from unspoken.methods.classifiers import (
    ARGUMENTS,
    VOTER,
    Arguments,
    Classifier,
    ClassifierError,
    make_classifier,
    votes_of,
)
from unspoken.methods.multiparty_noise import TRAINER_NOISE, TrainerNoise
from unspoken.methods.planning import DeclaredSum, Plan, PlannedSum, with_doubts
from unspoken.methods.planning.budget import trust_of
from unspoken.methods.planning.expectation import times
from unspoken.methods.planning.making import Setting, plan_sum, state_plan
from unspoken.methods.planning.mechanisms import NoNoise
from unspoken.methods.releases import LinearModel
from unspoken.noise.stream import SecretStream
from unspoken.study import Section, Sha256, Study, Template
from unspoken.types import Floats

_ALL, _MUCH = 10.0, 2.0
"""The lengths of the noise, in lengths of the longest model, from which on it hides almost all, and much"""
_FAILURE = 0.05
"""The probability that each part of Theorem 4 fails"""


class Options(Section):
    """The keys of [method] for multiparty."""

    labels: Literal["majority", "weighted", "average"] = Field(
        "weighted", description='"majority", "weighted" or "average"'
    )
    learner: Learner = Field("softmax", description=LEARNERS)
    regularization: float = Field(0.01, ge=1e-6, description="a number from 1e-6 up, such as 0.01")
    local_regularization: float = Field(
        0.01, ge=1e-6, description="a number from 1e-6 up, such as 0.01: Λ of the parties' own classifiers"
    )
    model: str | None = Field(
        None,
        description='a party\'s voter: "softmax", "mlp", "cnn", or a scikit-learn classifier or torch module as '
        '"package.module:Class"',
    )
    model_options: Arguments = Field({}, description=ARGUMENTS)
    public: str | None = Field(None, description="the file with the public records: an NPZ file with X, or a table")
    public_sha256: Sha256 = None
    noise: Literal["laplace", "gaussian"] | None = Field(
        None, description='"laplace" (pure epsilon) or "gaussian"; without it, whichever is shorter'
    )
    smoothing: float = Field(
        0.1, ge=1e-3, le=10.0, description="the half-width of the Huber loss's bend (svm), from 0.001 to 10"
    )


class Multiparty(Method):
    """Majority-voted ERM, weighted ERM and parameter averaging, with a trusted trainer."""

    name = "multiparty"
    summary = "parties' classifiers label public records for a trainer whom all trust"
    tasks = ("classification",)
    keys = Options
    template: ClassVar[Template] = {
        "classification": """\
public = "{public}"         # public records without labels, with the same columns (of a matrix: NPZ with X)
# model = "sklearn.svm:SVC"   # a voter of any kind; without it, linear ones of the learner's kind
# public_sha256 = "…"         # of that file, as `unspoken plan` prints it: nobody can then vote on another one
labels = "weighted"           # all votes count; or "majority", or "average" (of parameters, without public records)
learner = "softmax"           # or "logistic", "svm"
regularization = 0.01         # larger: less noise, simpler models
# noise = "laplace"           # keeps delta = 0; without it, this or "gaussian", whichever is shorter
"""
    }
    votes_on_public = True

    @classmethod
    def used_with(cls, study: Study) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        return {"smoothing": ("learner", ("svm",))}

    @classmethod
    def computes(cls, study: Study) -> str:
        """The trainer's learner, whatever votes."""
        return str(cls.chosen(study, "learner"))

    secrets: SecretStream | None = None
    """The source of the trainer's noise: the operating system, unless a test sets it"""

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", Options)
        self.averages = self.options.labels == "average"
        self.loss = loss_of(self.options.learner, len(study.data.class_names), self.options.smoothing)
        strength = self.options.regularization if self.averages else self.options.local_regularization
        self.local = LinearLearner(self.loss, study.data.norm, strength)
        self._voter = self._make_voter()

    def _make_voter(self) -> Classifier | None:
        """The parties' classifier, if the study names one; None: a linear one of the trainer's kind."""
        name, data = self.options.model, self.study.data
        if name is None:
            if self.options.model_options:
                raise self.study.error("method.model_options", "is given, but no model; name one, or remove it")
            return None
        if self.averages:
            problem = f'is "{name}", but labels = "average" averages weights of linear models; remove it'
            raise self.study.error("method.model", problem)
        classes = len(data.class_names)
        softmax = LinearLearner(CrossEntropy(classes), data.norm, self.options.local_regularization)
        how = replace(VOTER, arguments=self.options.model_options)
        try:
            return make_classifier(name, softmax, data.dimension, classes, (), how)
        except ClassifierError as error:
            raise self.study.error("method.model", f'is "{name}", which {error.problem}') from None

    @cached_property
    def _file(self) -> PublicRecords:
        return required_public(self.study, "to vote on")

    @cached_property
    def public(self) -> Floats:
        """The public records, bounded as the parties' are."""
        return clip_rows(self._file.features, self.study.data)

    def sensitivity(self) -> float:
        """The sensitivity of the released model, before noise, to the protected unit."""
        parties, group = self.study.parties.count, self.study.group or 1
        if self.averages:
            # `_votes` has what rounding adds at all the parties that a group may be at.
            return self._votes.sensitivity / parties
        # One party may turn every majority, so more of them turn no more.
        share = 1.0 if self.options.labels == "majority" else min(group, parties) / parties
        moved = self.loss.label_effect * share * self.study.data.norm * (1.0 + SLACK) + 4.0 * self._rounding
        return moved / self.options.regularization

    @property
    def _rounding(self) -> float:
        """A bound on the rounding error of the gradient of the trainer's risk, and the tolerance that allows for it."""
        bend = self.loss.curvature * self.study.data.norm**2
        return self.loss.slope_norm * self.study.data.norm * certified.rounding(bend / self.options.regularization)

    def risk_bound(self) -> float:
        """Theorem 4: a bound on the excess risk over any model of norm 1, which holds with probability 0.9.

        (C + λ)·ν² + 16L²(32k + log(1/δ))/(λN) + λ/2, for the curvature C, the Lipschitz constant L (1 in the paper)
        and a norm ν that the noise exceeds with probability δ at most (`TrainerNoise.likely_norm`). k = 1 for two
        classes, whose loss is one of a single margin. For K classes k = 2K: the theorem of Sridharan et al. 2009 behind
        it is for a single margin, and their bound on Rademacher averages, which 32 comes from, grows by √(2K) for K
        scores (Maurer 2016, Corollary 4). Where parties drop out λ may have grown: each term has its worst λ.
        """
        strength, noise = self.options.regularization, self.noise.likely_norm(_FAILURE)
        strongest = strength
        if self.options.labels == "weighted":
            strongest *= self.study.parties.count / max(trust_of(self.study).least_survivors, 1)
        smooth = self.loss.curvature * self.study.data.norm**2 + strongest
        lipschitz, classes = self.loss.slope_norm * self.study.data.norm, self.loss.classes
        averages = 32.0 * (1.0 if classes == 2 else 2.0 * classes)
        sampled = 16.0 * lipschitz**2 * (averages + math.log(1.0 / _FAILURE)) / (strength * len(self.public))
        return smooth * noise**2 + sampled + strongest / 2.0

    @cached_property
    def noise(self) -> TrainerNoise:
        """The noise on the trainer's model: of the kind that the study names, or else the shorter one."""
        if self.options.noise is not None:
            return self._noise_of(self.options.noise)
        possible = [self._noise_of("laplace"), *([self._gaussian] if self._gaussian else [])]
        return min(possible, key=lambda noise: noise.release.noise_std)

    @cached_property
    def _gaussian(self) -> TrainerNoise | None:
        """Gaussian noise, if the study's δ is enough for it."""
        found = self._noise_of("gaussian")
        try:
            found.release  # noqa: B018
        except UnspokenError:
            return None
        return found

    def _noise_of(self, kind: str) -> TrainerNoise:
        strength, norm = self.options.regularization, self.study.data.norm
        bound, longest = self.loss.slope_norm * norm / strength, self.loss.longest(strength, norm)
        return TRAINER_NOISE[kind](self.study, self._size, bound, self.sensitivity(), longest)

    def plan(self) -> Plan:
        sums, others, epsilon = (self._votes,), (self.noise.release,), self.study.epsilon
        notes = self._notes()
        plan = state_plan(self.study, self.name, self.noise.setting, sums, others, epsilon=epsilon, notes=notes)
        return with_doubts(plan, self._doubts())

    def _doubts(self) -> Iterator[str]:
        """A sentence if the noise is so long that hardly anything, or not much, can be learnt.

        The lengths are of all weights together, the model's before noise at most R (`Loss.longest`). Measured on
        digits, breast cancer, wine and iris, with 10 to 100 parties, each kind of labels and λ from 0.01 to 1: where
        the noise is ten times as long as R, models are at most 7 points better than always saying the most frequent
        class, and at twice R they are 5 to 60 points below those without noise.
        """
        release = self.noise.release
        length = release.noise_std * math.sqrt(release.dimension)
        ratio, longest = length / release.longest, f"{release.longest:.3g}"
        if ratio < _MUCH:
            return
        hidden, expected, factor = (
            "much",
            "only classes that lie far apart can be learnt",
            f"up to {times(ratio / _MUCH)}",
        )
        if ratio >= _ALL:
            constant = "a model that is little better than always saying the most frequent class"
            hidden, expected, factor = "almost all", f"expect {constant}", f"at least {times(ratio / _ALL)}"
        yield (
            f"the noise hides {hidden} of what the parties say: it has length {length:.3g}, where no model with "
            f"regularization = {self.options.regularization:g} is longer than {longest}, so {expected}; have {factor} "
            f"times as much epsilon, {self._remedies()}"
        )

    def _remedies(self) -> str:
        """What makes the noise shorter, besides a larger ε."""
        if self.options.labels == "majority":
            return 'or more regularization, or labels = "weighted" and many parties'
        others = "" if self.averages or self._voter is not None else ', or labels = "average"'
        return f"or as many times the parties, or more regularization{others}"

    def _notes(self) -> tuple[str, ...]:
        notes = self._notes_on_noise()
        if self.averages:
            return notes
        bound = self.risk_bound()
        worth = f"at most {bound:.3g}" + ("" if bound < 10.0 else ", a bound so large that it says nothing")
        kind = self.noise.adjective
        told = f"by Theorem 4, for {kind} noise, nine times in ten the excess risk over any model of norm 1 is {worth}"
        return (*notes, told, self._file.note)

    def _notes_on_noise(self) -> tuple[str, ...]:
        """That Gaussian noise would be far less: Laplace noise grows by the number of weights, and needs no δ."""
        laplace, delta = self.noise.release.noise_std, self.study.privacy.delta
        if self._gaussian is None or (gaussian := self._gaussian.release.noise_std) > laplace / 2.0:
            return ()
        return (
            f'Laplace noise of deviation {laplace:.4g} keeps delta = 0; noise = "gaussian" would have {gaussian:.4g} '
            f"with the study's delta = {delta:g}",
        )

    @property
    def _size(self) -> int:
        return self.loss.outputs * self.study.data.dimension

    @cached_property
    def _votes(self) -> PlannedSum:
        """The parties' messages to the trainer: without noise, since it is trusted."""
        classes = len(self.study.data.class_names)
        size = self._size if self.averages else len(self.public) * classes
        bound = self.local.model_bound if self.averages else math.sqrt(len(self.public))
        moved = min(self.study.group or 1, self.study.parties.count) * 2.0 * bound
        declared = DeclaredSum("votes", size, bound, moved, noise=NoNoise(trusted=True))
        setting = Setting(trust_of(self.study), attempts=self.study.privacy.attempts)
        planned = plan_sum(self.study, setting, declared, 1.0)
        return replace(planned, noise_std=0.0)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        if self._voter is not None:
            return Contribution(np.stack([self._voted(self._voter, block, party) for party in range(len(block))]))
        models = self.local.fit(block)
        if self.averages:
            return Contribution(models.reshape(len(block), -1))
        return Contribution(np.stack([self._vote(model).ravel() for model in models]))

    def _voted(self, voter: Classifier, block: Block, party: int) -> Floats:
        """One party's votes by a classifier of its own: a label for each public record, whatever happens."""
        count, classes = int(block.counts[party]), len(self.study.data.class_names)
        labels = np.asarray(block.labels[party, :count], dtype=np.int64)
        votes = votes_of(voter, block.features[party, :count], labels, self.public, classes, self.public)
        votes[~votes.any(axis=1), 0] = 1.0
        return votes.ravel()

    def _vote(self, model: Floats) -> Floats:
        """One party's votes on the public records: (N, K) indicators."""
        numbers = classify(self.public @ model.T)
        return np.asarray(numbers[:, None] == np.arange(len(self.study.data.class_names)), dtype=np.float64)

    def coordinate(self, plan: Plan) -> Conversation:
        total: Total = yield Collect("votes")
        if self.averages:
            weights = total.noisy.reshape(self.loss.outputs, -1) / self.study.parties.count
        else:
            votes = np.rint(total.noisy).reshape(len(self.public), -1)
            weights = self._minimise(votes / total.survivors, total.survivors)
        return LinearModel(self._noised(weights), self.loss.link, {"voters": total.survivors})

    def _minimise(self, shares: Floats, voters: int) -> Floats:
        """The certified minimiser for the votes: each label by its share, or the majority's alone."""
        regularization = self.options.regularization
        if self.options.labels == "weighted":
            regularization *= self.study.parties.count / voters
        else:
            shares = np.asarray(shares.argmax(axis=1)[:, None] == np.arange(shares.shape[1]), dtype=np.float64)
        targets = shares if self.loss.outputs > 1 else shares[:, 1:]
        space = space_for(self.public[None])
        weights = np.full((1, len(self.public)), 1.0 / len(self.public))
        tolerance = SLACK / 2.0 * self.sensitivity() * self.options.regularization + self._rounding
        coefficients = certified.minimise(
            space,
            SoftLabelLoss(self.loss.classes, self.loss),
            targets[None],
            weights,
            regularization,
            np.array([tolerance]),
        )
        return np.asarray(space.weights(coefficients)[0])

    def _noised(self, weights: Floats) -> Floats:
        return self.noise.added(weights, self.secrets or SecretStream())
