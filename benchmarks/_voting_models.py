"""What votes are made of and what is made of them: parties that abstain, and students that use unlabelled records.

Both see the public records, which `use` tells them. A party's ballot without a vote is all zeros: it is as far from any
other ballot as these are from each other at most, so the guarantee is the same. What a student does with the winners
(or the noisy totals) and the public records costs no privacy.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import kneighbors_graph
from sklearn.svm import SVC

from tacit.methods.base import Conversation, Release, Total
from tacit.methods.plan import Plan
from tacit.methods.voting import Voting
from tacit.types import Floats, Integers

KNOWN = 0.2
"""A party votes if at least this much speaks for its knowing the class: 0.5 where it has all classes, 0 far away."""
BACKGROUND = 300
"""So many public records are compared with."""
WIDTH = 2.0
"""Of the kernel that it is told by: exp(−2‖x − y‖²)."""
SPREADING = 0.9
"""How much of its label a public record has from its neighbours, in each step."""
GRAPH = 10
"""How many neighbours."""

_public: Floats = np.empty((0, 0))
_places: dict[bytes, int] = {}
_answers: dict[bytes, Integers] = {}
_orders: dict[int, Integers] = {}


def use(public: Floats) -> None:
    """Set the public records for all parties and students from now on."""
    global _public
    _public = public
    _places.clear()
    _places.update((row.tobytes(), place) for place, row in enumerate(public))
    _answers.clear()
    _orders.clear()


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
        return self._votes[[_places[row.tobytes()] for row in queries]]

    def votes(self, features: Floats, labels: Integers) -> Integers:
        """On the public records, by a model of these records."""
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


class Voted(Voting):
    """The method itself, which also keeps what became public: the winners, and the noisy totals unless talliers keep
    them to themselves."""

    winners: Integers
    totals: Floats | None = None

    def coordinate(self, plan: Plan) -> Conversation:
        inner = super().coordinate(plan)
        total: Total = yield next(inner)
        if self.study.summation.protocol == "tally":
            self.winners = total.exact
        else:
            self.totals = total.noisy.reshape(len(self.queries), -1)
            self.winners = self.totals.argmax(axis=1)
        try:
            inner.send(total)
        except StopIteration as finished:
            release: Release = finished.value
            return release
        raise RuntimeError("voting asked for something else")


def representatives(count: int) -> Integers:
    """The order in which public records are asked about: first those in the middle of so many clusters, then others."""
    if count not in _orders:
        centres = KMeans(min(count, len(_public)), n_init=1, random_state=0).fit(_public).cluster_centers_
        lengths = np.einsum("ij,ij->i", _public, _public)
        chosen = np.unique((lengths - 2.0 * centres @ _public.T).argmin(axis=1))
        order = np.random.default_rng(0).permutation(len(_public))
        _orders[count] = np.concatenate([chosen, order[~np.isin(order, chosen)]])
    return _orders[count]


def spread(public: Floats, asked: int, votes: Floats) -> Integers:
    """A label for every public record, the first `asked` of which have votes (asked, K): label spreading (Zhou et al.
    2003), by which a record's score is mostly that of its nearest neighbours."""
    nearest = kneighbors_graph(public, min(GRAPH, len(public) - 1))
    graph = nearest.maximum(nearest.T)
    half = scipy.sparse.diags_array(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    step = SPREADING * (half @ scipy.sparse.csr_array(graph) @ half)
    given = np.zeros((len(public), votes.shape[1]))
    given[:asked] = votes - votes.mean(axis=1, keepdims=True)
    scores = given
    for _ in range(100):
        scores = step @ scores + given
    return np.asarray(scores.argmax(axis=1))


def student(public: Floats, voted: Voted, classes: int, source: str) -> Any:
    """A support vector classifier of all public records, labelled by spreading the "winners" or the noisy "totals"."""
    votes = np.eye(classes)[voted.winners] if source == "winners" or voted.totals is None else voted.totals
    labels = spread(public, len(voted.winners), votes)
    return SVC().fit(public, labels) if len(np.unique(labels)) > 1 else _Constant(labels[0])


class _Constant:
    def __init__(self, label: int) -> None:
        self._label = label

    def predict(self, rows: Floats) -> Integers:
        return np.full(len(rows), self._label)
