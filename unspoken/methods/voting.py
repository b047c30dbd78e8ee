"""Voting: private labels instead of private weights (AE-DPFL and kNN-DPFL, Zhu et al. 2020).

Parties answer Q public queries without labels. A ballot is the prediction of a party's own model (`ensemble`), or the
shares of the labels of its k records that are nearest to the query (`neighbours`). The ballots are added up with every
party's share of the noise, the winning label of each query is revealed, and a student that learns from the labelled
queries is released. The coordinator chooses the public records that are asked about: representative ones
(`learners.query_selection`), or the first. Before the student learns, labels spread to similar public records, also to
those that were not asked about (`learners.label_spreading`).

Formal guarantee. A ballot is a vector of shares that add up to 1. It is zeros if a model abstains by predicting no
class (−1), if no model can be trained on the party's records (which must not be visible), and if the party has no
records. Whatever happens to a party's records, each of its ballots moves by at most √2, so all Q of them by √(2Q). With
`neighbours`, a replaced record replaces at most one of the k neighbours, so it moves a ballot by √2/k only. A model
(`ensemble`) may change completely with one record. (The paper's Theorem for records has √(2/k) where √2/k is right.)
Noise of deviation σ on each total makes all Q noisy totals one Gaussian release of μ = √(2Q)/σ, or √(2Q)/(kσ). Winners
and student are computed from them.

With `adjacency = "add-remove"` (the paper's Definitions 2 and 3), all records of a party are there or not, and if not,
its ballots are zeros. Shares b ≥ 0 that add up to 1 have ‖b‖₂ ≤ ‖b‖₁ = 1, so a ballot moves by at most 1 and all Q of
them by √Q: √2 less than for a party whose records are replaced. A single record that is left out moves ballots as far
as a replaced one: another may become one of the k neighbours, and a model may change altogether. (At least k records
are left, since each party must have more than k.) Who takes part is not hidden; a party without records may.

Parties may first align their own records with the public ones (`adaptation = "coral"`, Algorithm 1, line 1). With
models the sensitivity still holds, because a ballot is such a vector whatever function of the party's records it is.
With `neighbours` it is refused where single records are protected (`learners.coral` says why).

The guarantee holds for any choice of queries, so parties need not trust the coordinator's choice.

With `[summation] protocol = "tally"` talliers open the winners only. With a summation that adds, the noisy totals
become known. The plan says so, the guarantee covers them, and they teach the student more than winners do. A study
that gives both ε and noise, and no number of queries, asks as many as they allow.

On the data at hand, winners often cost much less than the guarantee says (`privacy.votes`). `analysis` tells those who
may see all ballots; the result is itself secret.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from unspoken.data.block import Block
from unspoken.data.bounding import clip_rows
from unspoken.data.public import PublicRecords, required_public
from unspoken.learners.coral import aligned
from unspoken.learners.label_spreading import MOST, can_spread, spread_labels
from unspoken.learners.linear import LinearLearner
from unspoken.learners.losses import CrossEntropy
from unspoken.learners.nearest_neighbours import neighbour_shares
from unspoken.learners.query_selection import CLUSTERED, typical_records
from unspoken.methods.base import (
    NONE_FAILED,
    Contribution,
    Conversation,
    Method,
    PartyContext,
    PartyRequest,
    Sum,
    Total,
    Vote,
)
from unspoken.methods.classifiers import (
    Classifier,
    ClassifierError,
    ClassifierSettings,
    make_classifier,
    votes_again,
    votes_of,
)
from unspoken.methods.parameters import Indices
from unspoken.methods.planning import DeclaredSum, Plan, make_plan, promised_for
from unspoken.methods.planning.budget import budget
from unspoken.methods.planning.making import setting_of
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.releases import Release
from unspoken.methods.voting_notes import note_on_leads, notes_on_units
from unspoken.methods.voting_options import Options
from unspoken.privacy.events import Adjacency
from unspoken.privacy.integer import LARGEST_PLANNED_EPSILON, LOST_VARIANCE, continuous_deviation
from unspoken.privacy.votes import data_dependent_epsilon
from unspoken.study import Study, StudyError, Template
from unspoken.summation.registry import protocol_of
from unspoken.types import Flags, Floats, Integers


class Voting(Method):
    """Noisy votes on public records, and a student."""

    name = "voting"
    summary = "parties vote on public records; a student learns from the winners"
    tasks = ("classification",)
    keys = Options
    asks = frozenset({"sum", "vote"})
    template: ClassVar[Template] = {
        "classification": """\
public = "{public}"         # public records without labels, with the same columns (of a matrix: NPZ with X)
# public_sha256 = "…"         # of that file, as `unspoken plan` prints it: nobody can then vote on another one
queries = 100                 # how many of them are asked about: each takes a part of epsilon
ballots = "ensemble"          # by models of the parties' own; or "neighbours", by their nearest records
model = "softmax"             # or "mlp", "cnn", a scikit-learn classifier or torch module as "package.module:Class"
# model_options = { C = 10.0 } # arguments of a scikit-learn classifier; student_options likewise
student = "softmax"           # likewise
"""
    }
    summation_template = """\
protocol = "tally"            # talliers open the winners only; any sum works too, but then noisy totals become known
talliers = 3                  # or 5, 7: more than half of them keep to themselves what they receive
"""
    solves_for = "queries"
    votes_on_public = True

    @classmethod
    def needs_norm(cls, study: Study) -> bool:
        return False

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        self.options = study.options("method", Options)
        self._classes = len(study.data.class_names)
        few = study.group is not None and study.parties.records <= self.options.neighbours
        if self.options.ballots == "neighbours" and few:
            raise study.error(
                "parties.records",
                f"is {study.parties.records}, but with neighbours = {self.options.neighbours} each party needs more "
                "records than that",
            )
        if self.options.adaptation != "none" and self.options.ballots == "neighbours" and study.group is not None:
            raise study.error(
                "method.adaptation",
                f'is "{self.options.adaptation}", with which one record moves all records of its party, and so may '
                'replace all neighbours instead of one of k; use ballots = "ensemble", or protect whole parties '
                '(unit = "party")',
            )
        self._local = self._classifier("model", self.options.local_regularization)
        self._student = self._classifier("student", self.options.regularization)

    def _classifier(self, key: Literal["model", "student"], regularization: float) -> Classifier:
        options, data = self.options, self.study.data
        try:
            return make_classifier(
                getattr(options, key),
                LinearLearner(CrossEntropy(self._classes), data.norm, regularization),
                data.dimension,
                self._classes,
                options.hidden,
                self._training(key),
                self.study if key == "student" else None,
            )
        except ClassifierError as error:
            raise self._unfit(key, error) from None

    def _training(self, key: Literal["model", "student"]) -> ClassifierSettings:
        options = self.options
        arguments = options.model_options if key == "model" else options.student_options
        rate = options.learning_rate
        how = options.optimizer or ("adam" if rate is None else "sgd")
        return ClassifierSettings(options.epochs, options.batch, rate, options.seed, how, arguments)

    def _unfit(self, key: Literal["model", "student"], error: ClassifierError) -> StudyError:
        """The error about a classifier that the study names."""
        return self.study.error(f"method.{key}", f'is "{getattr(self.options, key)}", which {error.problem}')

    @cached_property
    def _file(self) -> PublicRecords:
        return required_public(self.study, "to vote on")

    @property
    def _public(self) -> Floats:
        return self._file.features

    @cached_property
    def _clipped(self) -> Floats:
        """The public records, bounded as the parties' are."""
        return clip_rows(self._public, self.study.data)

    @cached_property
    def queries(self) -> int:
        """The number of public records that are asked about."""
        asked, there = self.options.queries, len(self._public)
        if asked is not None and there < asked:
            raise self.study.error(
                "method.queries",
                f"is {asked}, but {self._file.name} has {there} records only; lower it, or name a file with more",
            )
        if asked is None:
            asked = min(there, _QUERIES if self._affordable is None else self._affordable)
        return asked

    @cached_property
    def order(self) -> Integers:
        """The places of the public records, those first that the coordinator asks about."""
        everything = np.arange(len(self._public))
        if self.options.asking == "first":
            return everything
        typical = typical_records(clip_rows(self._public[:CLUSTERED], self.study.data), self.queries)
        return np.concatenate([typical, np.delete(everything, typical)])

    @property
    def request(self) -> Vote | Sum:
        kind = Vote if self._opens_winners_only else Sum
        return kind("ballots", indices=self.order[: self.queries])

    def indices(self, request: PartyRequest) -> Indices:
        """The places of the public records that are asked about."""
        return Indices(self.queries, len(self._public))

    def _asked(self, request: PartyRequest) -> Floats:
        """The public records that a party is asked about, bounded as its own are."""
        if request.indices is None:
            raise ValueError("Expected the places of public records with the request.")
        return clip_rows(self._public[request.indices], self.study.data)

    @cached_property
    def _affordable(self) -> int | None:
        """The number of queries that ε pays for with the given noise; None unless the study gives both."""
        privacy = self.study.privacy
        if privacy.epsilon is None or privacy.noise_multiplier is None:
            return None
        single = self.sensitivity(self.study.group, 1)
        # The cost of drawing noise grows with the number of queries; here it is that for all public records.
        most = DeclaredSum("ballots", len(self._public) * self._classes, 1.0, single, classes=self._classes)
        slack = setting_of(self.study, [most]).slack
        if slack >= privacy.delta:
            return len(self._public)  # the plan says what is wrong
        asked = math.floor((budget(self.study, privacy.delta - slack) * privacy.noise_multiplier / single) ** 2)
        if asked < 1:
            remedy = "one of them" if privacy.epsilon < LARGEST_PLANNED_EPSILON else "the noise"
            raise self.study.error(
                "privacy.epsilon",
                f"is {privacy.epsilon:g}, too little for a single query with noise_multiplier = "
                f"{privacy.noise_multiplier:g}; raise {remedy}",
            )
        return asked

    @property
    def _opens_winners_only(self) -> bool:
        """Whether talliers open the winners and no totals."""
        return "vote" in protocol_of(self.study).serves

    def sensitivity(self, group: int | None, queries: int | None = None, adjacency: Adjacency | None = None) -> float:
        """The sensitivity of the ballots' totals to `group` records (None: a party's), for all (or so many) queries.

        It is for the study's neighbours, unless others are named.
        """
        asked = queries or self.queries
        whole = math.sqrt(2.0 * asked)
        if group is None:
            return math.sqrt(asked) if (adjacency or self.study.privacy.adjacency) == "add-remove" else whole
        # Several records may be at several parties, or replace several neighbours of one. Where a party adapts its
        # records before it votes, one of them may replace all.
        swaps_one = self.options.ballots == "neighbours" and self.options.adaptation == "none"
        moved = group / (min(self.options.neighbours, self.study.parties.records) if swaps_one else 1)
        # However many they are, they can replace no more than all ballots of all parties.
        return min(moved, self.study.parties.count) * whole

    def plan(self) -> Plan:
        declared = DeclaredSum(
            name="ballots",
            dimension=self.queries * self._classes,
            bound=math.sqrt(self.queries),
            sensitivity=self.sensitivity(self.study.group),
            classes=self._classes,
            adjacency=self.study.privacy.adjacency,
        )
        multiplier = self.study.privacy.noise_multiplier
        mu = None
        if multiplier is not None:
            mu = declared.sensitivity / multiplier * math.sqrt(self.study.privacy.attempts)
        assumptions = (_WHO_IS_THERE,) if self.study.leaves_out_parties else ()
        made = make_plan(self.study, self.name, [declared], (), mu, assumptions)
        levels = {"record": self._epsilon(made, 1), "party": self._epsilon(made, None)}
        facts: dict[str, Any] = {"queries": self.queries, "epsilon_by_unit": levels}
        if self.study.leaves_out_parties:
            facts["epsilon_if_replaced"] = self._epsilon(made, None, "replace")
        plan = replace(made, facts=facts)
        return replace(plan, notes=(*plan.notes, *self._notes(plan)))

    def _notes(self, plan: Plan) -> Iterable[str]:
        yield f"{self.queries:,} of {len(self._public):,} public records are asked about" + (
            "" if self._affordable is None else f"; epsilon would pay for {self._affordable:,} with this noise"
        )
        noise, given = plan.sum_named("ballots").largest_total_std, self.study.privacy.noise_multiplier is not None
        yield note_on_leads(plan.trust.parties, self._classes, noise, given)
        if not self._opens_winners_only:
            yield "the noisy totals of the ballots become known, not only the winners"
        yield self._file.note
        yield from notes_on_units(plan)

    def _epsilon(self, plan: Plan, group: int | None, adjacency: Adjacency | None = None) -> float | None:
        """The ε that the noise promises for `group` records (None: all of a party's); None if it is too large."""
        planned = plan.sum_named("ballots")
        # Rounding adds the same for every unit, or less.
        rounding = planned.sensitivity - self.sensitivity(self.study.group)
        return promised_for(plan, planned, self.sensitivity(group, None, adjacency) + rounding, group)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        queries = self._asked(request)
        rows = [self._ballots(queries, block, party).ravel() for party in range(len(block))]
        return Contribution(np.stack(rows))

    def _ballots(self, queries: Floats, block: Block, party: int) -> Floats:
        """One party's ballots: (Q, K)."""
        count = int(block.counts[party])
        if count == 0:
            return np.zeros((len(queries), self._classes))
        features, labels = block.features[party, :count], np.asarray(block.labels[party, :count], dtype=np.int64)
        if self.options.adaptation == "coral":
            features = aligned(features, self._clipped)
        if self.options.ballots == "neighbours":
            # Only where whole parties are protected may there be fewer records than neighbours.
            nearest = min(self.options.neighbours, count)
            return neighbour_shares(queries, features, labels, self._classes, nearest)
        return votes_of(self._local, features, labels, queries, self._classes, self._clipped)

    def coordinate(self, plan: Plan) -> Conversation:
        total: Total = yield self.request
        if self._opens_winners_only:
            told = np.asarray(total.exact[:, None] == np.arange(self._classes), dtype=np.float64)
        else:
            told = total.noisy.reshape(-1, self._classes)
        details = {"queries": len(told), "noise_std_per_total": total.noise_std, "voters": total.survivors}
        return self._release(told, details)

    def _release(self, told: Floats, details: dict[str, Any]) -> Release:
        """The release of a student that learns from the votes `told`: (Q, K), winners' indicators or noisy totals."""
        records, labels = self._public[self.order[: len(told)]], told.argmax(axis=1)
        if self.options.spreading and can_spread(len(self._public)):
            records = self._public[self.order[: max(len(told), MOST)]]
            labels = spread_labels(clip_rows(records, self.study.data), told)
        try:
            return self._student.taught(self.study, records, labels, details, self._public)
        except ClassifierError as error:
            raise self._unfit("student", error) from None

    def check_analysis(self) -> None:
        """An analysis is refused unless the winners are all that becomes known."""
        if not self._opens_winners_only:
            raise self.study.error(
                "summation.protocol",
                f'is "{self.study.summation.protocol}", by which the noisy totals become known, and what these cost '
                'does not depend on the data; use "tally" for an analysis of the winners alone',
            )
        dimension, ensemble = self.study.data.dimension, self.options.ballots == "ensemble"
        if ensemble and not votes_again(self._local, dimension, self._classes):
            raise self.study.error(
                "method.model",
                f'is "{self.options.model}", which learns something else each time from the same records, so that the '
                "votes that were counted are not known afterwards; give it a parameter random_state, or fix its seed",
            )

    def analysis(
        self,
        plan: Plan,
        blocks: Iterable[tuple[Integers, Block]],
        counted: Mapping[str, Flags],
        failed: Mapping[str, int] = NONE_FAILED,
    ) -> dict[str, float | str]:
        """The ε of the winners on these very records. It is as secret as the records themselves.

        `epsilon` is against someone who knows nobody's noise, `epsilon_colluding` against as many colluders as the
        study allows (a single curious party, if it allows none), who draw their noise as agreed.

        Parties that dropped out bring neither votes nor noise. That only the winners become known rests on talliers
        that compute as agreed. Of a vote that failed nobody knows who was in it: it costs what it may cost at most.
        """
        self.check_analysis()
        voters, planned = counted["ballots"], plan.sum_named("ballots")
        totals = np.zeros((self.queries, self._classes))
        for parties, block in blocks:
            ballots = self.contribute(self.request, block).noisy[voters[parties]]
            totals += planned.encoding.decode(planned.encoding.encode(ballots)).sum(axis=0).reshape(totals.shape)
        first, second = np.partition(totals, -2, axis=1)[:, :-3:-1].T
        count, scale = int(voters.sum()), planned.encoding.scale
        drawn, hidden = planned.total_std(count), planned.adversary_std(Participation(count, count))
        # The honest parties' noise itself, a little more than the continuous noise that it is worth.
        honest = math.sqrt(hidden**2 + LOST_VARIANCE / scale**2)

        def epsilon(worth: float, unknown: float, known: float = 0.0) -> float:
            # One query's part of the sensitivity, with what rounding adds.
            move, left = planned.sensitivity / math.sqrt(self.queries), self.study.privacy.delta - plan.slack
            others = failed.get("ballots", 0) * planned.mu**2
            return data_dependent_epsilon(totals, worth, move, left, unknown, others, known)

        return {
            "warning": "private: it depends on the records, and no noise protects it; never publish it",
            "epsilon": epsilon(continuous_deviation(drawn * scale) / scale, drawn),
            "epsilon_colluding": epsilon(hidden, honest, math.sqrt(max(drawn**2 - honest**2, 0.0))),
            "median_lead": float(np.median(first - second)),
        }


_QUERIES = 100
"""The number of queries if the study does not say"""
_WHO_IS_THERE = "it is no secret which parties take part: one whose records are left out sends empty ballots"
