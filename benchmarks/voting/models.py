"""Parties' models for the voting tables: a support vector classifier, and one that abstains from what it does not know.

They see the public records, which `use` tells them. A party's ballot without a vote is all zeros: it is as far from any
other ballot as these are from each other at most, so the guarantee is the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import scipy.linalg
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

from benchmarks.studies import Floats, Integers, Release
from unspoken.methods.base import Conversation, Total
from unspoken.methods.planning import Plan
from unspoken.methods.voting import Voting

KNOWN = 0.2
"""A party votes if at least this much speaks for its knowing the class: 0.5 where it has all classes, 0 far away."""
BACKGROUND = 300
"""So many public records are compared with."""
WIDTH = 2.0
"""Of the kernel that it is told by: exp(−2‖x − y‖²)."""

_public: Floats = np.empty((0, 0))
_places: dict[bytes, int] = {}
_answers: dict[bytes, Integers] = {}


def use(public: Floats) -> None:
    """Set the public records for all parties and students from now on."""
    global _public
    _public = public
    _places.clear()
    _places.update((row.tobytes(), place) for place, row in enumerate(public))
    _answers.clear()


class Remembering:
    """A party's classifier, which votes on all public records at once and remembers: neither ε nor the number of
    queries changes its votes, so that they are found once for each party and not in each run."""

    def fit(self, features: Floats, labels: Integers) -> Remembering:
        name = type(self).__name__.encode()
        key = hashlib.sha256(name + features.tobytes() + labels.tobytes()).digest()
        if key not in _answers:
            _answers[key] = np.asarray(self.votes(features, labels))
        self._votes = _answers[key]
        return self

    def predict(self, queries: Floats) -> Integers:
        places = np.array([_places.get(row.tobytes(), -1) for row in queries])
        if not len(self._votes):
            return np.full(len(places), -1)
        # Of what is not public it has no opinion.
        return np.where(places < 0, -1, self._votes[places])

    def votes(self, features: Floats, labels: Integers) -> Integers:
        """On the public records, by a model of these records."""
        if not len(_public):
            return np.empty(0, dtype=np.int64)
        return np.asarray(SVC().fit(features, labels).predict(_public))


class Selective(Remembering):
    """A support vector classifier that abstains (−1) from records unlike its own.

    Which these are is told by regularised least squares between its records (1) and public ones (0): where the party
    has all classes both are equally dense, and where it has none there are public ones only.
    """

    def votes(self, features: Floats, labels: Integers) -> Integers:
        background = _public[:: max(1, len(_public) // BACKGROUND)]
        rows = np.concatenate([features, background])
        weights = np.concatenate([np.ones(len(features)), np.full(len(background), len(features) / len(background))])
        kernel = rbf_kernel(rows, gamma=WIDTH)
        kernel[np.diag_indices_from(kernel)] += 1.0 / weights
        own = (np.arange(len(rows)) < len(features)).astype(np.float64)
        coefficients = scipy.linalg.solve(kernel, own, assume_a="pos")
        known = rbf_kernel(_public, rows, gamma=WIDTH) @ coefficients > KNOWN
        return np.where(known, super().votes(features, labels), -1)


class Kept(Voting):
    """The method itself, which also keeps what becomes known of the queries."""

    known: Total

    @property
    def winners(self) -> Integers:
        if self.known.exact.size:
            return self.known.exact
        return np.asarray(self.known.noisy.reshape(self.queries, -1).argmax(axis=1))

    def coordinate(self, plan: Plan) -> Conversation:
        conversation = super().coordinate(plan)
        self.known = yield next(conversation)
        return _end_of(conversation, self.known)

    def student_of(self, vote: Kept, plan: Plan, totals: bool) -> Release:
        """What this study's student would be after another's vote, if its noisy totals, or its winners only, became
        known."""
        known = vote.known
        if not totals and known.noisy.size:
            known = replace(known, noisy=np.eye(known.noisy.size // self.queries)[vote.winners].ravel())
        conversation = super().coordinate(plan)
        next(conversation)
        return _end_of(conversation, known)


def _end_of(conversation: Conversation, last: Total) -> Release:
    """What a coordinator releases after the last answer."""
    try:
        conversation.send(last)
    except StopIteration as end:
        release: Release = end.value
        return release
    raise RuntimeError("Expected the conversation to end with the vote.")
