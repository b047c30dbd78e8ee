"""Voting: private labels instead of private weights (AE-DPFL and kNN-DPFL, Zhu et al. 2020).

Parties answer Q public queries without labels. A ballot is the prediction of a party's own model (`ensemble`), or the
shares of the labels of its k records that are nearest to the query (`neighbours`). The ballots are added up with every
party's share of the noise, the winning label of each query is revealed, and a student that learns from the labelled
queries is released.

Formal guarantee. A ballot is a vector of shares that add up to 1. Whatever happens to a party, each of its ballots
moves by at most √2, so all Q of them by √(2Q). With `neighbours`, a single record takes the place of one of k
neighbours, so it moves a ballot by √2/k only; a model may change altogether with one record. (The paper's Theorem for
records has √(2/k) where √2/k is right.) Noise of deviation σ on each total makes all Q noisy totals one Gaussian
release of μ = √(2Q)/σ, or √(2Q)/(kσ); winners and student are made of them.

With `[summation] protocol = "tally"` talliers open the winners only. With a summation that adds, the noisy totals
become known; the guarantee covers them, too, and the plan says so.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from tacit.data.block import Block
from tacit.data.bounding import clip_rows
from tacit.data.files import read_features
from tacit.learners.linear import LinearLearner
from tacit.learners.losses import Softmax
from tacit.learners.neighbours import neighbour_shares
from tacit.methods.base import Collect, Contribution, Conversation, Method, Private, Release, Sum, Total, Vote
from tacit.methods.plan import DeclaredSum, Plan, make_plan
from tacit.privacy.gaussian import compose, epsilon_of
from tacit.study import Section, Study
from tacit.types import Floats, Integers


class Options(Section):
    """The keys of [method] for voting."""

    ballots: Literal["ensemble", "neighbours"] = Field("ensemble", description='"ensemble" or "neighbours"')
    neighbours: int = Field(5, ge=1, description="how many nearest records vote, 1 or more (of neighbours)")
    queries: int = Field(100, ge=1, le=10**6, description="how many public records are asked about, 1 or more")
    public: str = Field(description="the file with the public records: an NPZ file with X, or a table")
    model: str = Field(
        "softmax", description='a party\'s own model: "softmax", or a scikit-learn classifier as "package.module:Class"'
    )
    local_regularization: float = Field(
        0.001, ge=1e-6, description="of the parties' softmax models: a number from 1e-6 up, such as 0.001"
    )
    student: Literal["softmax"] = Field("softmax", description='"softmax"')
    regularization: float = Field(0.001, ge=1e-6, description="of the student: a number from 1e-6 up, such as 0.001")


class Voting(Method):
    """Noisy votes on public records, and a student."""

    name = "voting"

    def __init__(self, study: Study) -> None:
        super().__init__(study)
        if study.study.task != "classification":
            raise study.error("study.task", f'is "{study.study.task}", but "voting" learns classifications only')
        self.options = study.options("method", Options)
        self._classes = len(study.data.class_names)
        if self.options.ballots == "neighbours" and study.parties.records <= self.options.neighbours:
            raise study.error(
                "parties.records",
                f"is {study.parties.records}, but with neighbours = {self.options.neighbours} each party needs more "
                "records than that",
            )
        if self.options.model != "softmax":
            self._model()
        self._local = LinearLearner(Softmax(self._classes), study.data.norm, self.options.local_regularization)

    @cached_property
    def queries(self) -> Floats:
        """The public records that are asked about, bounded as the parties' are."""
        path = Path(self.options.public)
        beside = Path(self.study.source).parent / path
        features = read_features(path if path.is_file() or not beside.is_file() else beside, self.study)
        if len(features) < self.options.queries:
            raise self.study.error(
                "method.queries", f"is {self.options.queries}, but {path} has {len(features)} records only"
            )
        return clip_rows(features[: self.options.queries], self.study.data)

    @property
    def _secretly(self) -> bool:
        """Do talliers open the winners only?"""
        return self.study.summation.protocol == "tally"

    def sensitivity(self, group: int | None) -> float:
        """How far so many records (None: all of a party's) move all totals of ballots."""
        whole = math.sqrt(2.0 * self.options.queries)
        if group is None:
            return whole
        # Several records may be at several parties, or replace several neighbours of one.
        return group * whole / (self.options.neighbours if self.options.ballots == "neighbours" else 1)

    def plan(self) -> Plan:
        declared = DeclaredSum(
            name="ballots",
            dimension=len(self.queries) * self._classes,
            bound=math.sqrt(self.options.queries),
            sensitivity=self.sensitivity(self.study.group),
        )
        multiplier = self.study.privacy.noise_multiplier
        mu = None if multiplier is None else declared.sensitivity / multiplier
        known = () if self._secretly else ("the noisy totals of the ballots become known, not only the winners",)
        plan = make_plan(self.study, self.name, [declared], known, mu)
        return replace(plan, notes=(*plan.notes, self._other_level(plan)))

    def _other_level(self, plan: Plan) -> str:
        """What the same noise promises for the other unit: parties or records."""
        other = None if self.study.group is not None else 1
        mu = compose([plan.planned("ballots").mu]) * self.sensitivity(other) / self.sensitivity(self.study.group)
        epsilon = epsilon_of(mu, self.study.privacy.delta - plan.slack)
        return (
            f"for {'all records of one party' if other is None else 'one record'} the same noise promises "
            f"epsilon = {epsilon:.4g}"
        )

    def contribute(self, request: Sum | Vote | Collect, block: Block, privates: Sequence[Private] = ()) -> Contribution:
        rows = [self._ballots(block, party).ravel() for party in range(len(block))]
        return Contribution(np.stack(rows), np.empty((len(block), 0), dtype=np.int64))

    def _ballots(self, block: Block, party: int) -> Floats:
        """One party's ballots: (Q, K)."""
        count = int(block.counts[party])
        features, labels = block.features[party, :count], np.asarray(block.labels[party, :count], dtype=np.int64)
        if self.options.ballots == "neighbours":
            return neighbour_shares(self.queries, features, labels, self._classes, self.options.neighbours)
        predicted = self._predict(features, labels)
        return np.asarray(predicted[:, None] == np.arange(self._classes), dtype=np.float64)

    def _predict(self, features: Floats, labels: Integers) -> Integers:
        """The party's own model on the queries."""
        if self.options.model == "softmax":
            alone = Block(features[None], labels[None], np.array([len(labels)]))
            predicted: Integers = (self.queries @ self._local.fit(alone)[0].T).argmax(axis=1)
            return predicted
        if len(np.unique(labels)) == 1:
            return np.full(len(self.queries), labels[0])
        return np.asarray(self._model().fit(features, labels).predict(self.queries), dtype=np.int64)

    def _model(self) -> Any:
        path, _, name = self.options.model.partition(":")
        try:
            return getattr(importlib.import_module(path), name)()
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise self.study.error(
                "method.model",
                f'is "{self.options.model}", which cannot be made here ({error}); name a scikit-learn classifier as '
                '"package.module:Class", or "softmax"',
            ) from None

    def coordinate(self, plan: Plan) -> Conversation:
        total: Total = yield Vote("ballots") if self._secretly else Sum("ballots")
        winners = total.exact if self._secretly else total.noisy.reshape(-1, self._classes).argmax(axis=1)
        student = LinearLearner(Softmax(self._classes), self.study.data.norm, self.options.regularization)
        weights = student.fit(Block(self.queries[None], winners[None], np.array([len(winners)])))[0]
        details = {"queries": len(winners), "noise_std_per_total": total.noise_std, "voters": total.survivors}
        return Release(weights, "softmax", details)
