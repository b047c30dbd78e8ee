"""The graph of parties that mask with each other, and how many neighbours and shares are safe.

There are three graphs, each with a proof of which sums an adversary can open:

- complete: everyone masks with everyone (Bonawitz et al. 2017);
- chosen: each party draws k neighbours by its own randomness (Bell et al. 2020, the malicious variant), so that not
  even a lying coordinator can choose them;
- circle: parties stand on a circle in random order, and each is linked to the next k/2 on either side (Bell et al.
  2020, Section 3). The order is a hash of the sum's label, which the coordinator can influence, so it is random only if
  the coordinator follows the protocol. It needs half as many masks as a chosen graph.

In each of them a party's neighbours are a random k-subset of the others, so the tail probabilities are exact
hypergeometric tails.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import hypergeom

from unspoken.noise.stream import SecretStream
from unspoken.types import Floats, Integers

SECURITY_BITS = 40
CORRECTNESS_BITS = 30


@dataclass(frozen=True)
class Degree:
    """The number of neighbours that hold shares of a party's secrets, and of those that can recover them together."""

    neighbours: int
    threshold: int
    unseen: int = 0
    """The number of survivors that a lying coordinator may leave out of the total unnoticed"""


def complete_degree(parties: int, corrupt: int, dropouts: int) -> Degree:
    """The complete graph. Any threshold above the number of corrupt parties and up to the least number of surviving
    others is possible.

    The middle of this range is taken, so that as many shares may be missing as there may be colluders beyond the plan.
    """
    most = max(1, parties - dropouts - 1)
    return Degree(parties - 1, min(most, (corrupt + 1 + most + 1) // 2))


@lru_cache(maxsize=256)
def choose_degree(parties: int, corrupt: int, dropouts: int) -> Degree | None:
    """The smallest degree of a chosen graph, with its threshold t, that is secure against a lying coordinator.

    Privacy fails with probability 2^−40 at most (see `exposure`), and the sum fails to complete with probability 2^−30
    at most (some party has fewer than t neighbours left). At most one in a hundred survivors can be left out unnoticed.
    None if no such degree exists, or if so many masks are needed that a complete graph has fewer.

    >>> choose_degree(1000, 200, 50), choose_degree(1000, 500, 50)
    (Degree(neighbours=56, threshold=38, unseen=5), Degree(neighbours=139, threshold=112, unseen=3))
    """
    honest = parties - corrupt
    most_unseen = (honest - dropouts - 1) // 100
    for neighbours in range(2, parties // 2) if honest - dropouts > 1 else ():
        least = _threshold(parties, honest, corrupt, neighbours)
        for threshold in (least, least + 1):
            if threshold > neighbours or _too_few_left(parties, dropouts, neighbours, threshold):
                continue
            if not _may_fit(parties, corrupt, dropouts, Degree(neighbours, threshold, most_unseen)):
                continue
            helped = _log_helped(parties, corrupt, neighbours, threshold)

            def fits(unseen: int, neighbours: int = neighbours, helped: Floats = helped) -> bool:
                found = _log_exposure(parties, corrupt, dropouts, neighbours, helped, unseen)
                return found <= -SECURITY_BITS * math.log(2.0)

            if fits(most_unseen):
                return Degree(neighbours, threshold, next(unseen for unseen in range(most_unseen + 1) if fits(unseen)))
    return None


def _may_fit(parties: int, corrupt: int, dropouts: int, degree: Degree) -> bool:
    """A quick necessary condition: whether the largest sum that must not open is improbable enough. Most unsafe degrees
    fail here."""
    honest, missing = parties - corrupt, degree.unseen + 1
    size = np.array([float(honest - dropouts - missing)])
    if size[0] < 1:
        return True
    helped = size * _log_tail(parties - 1, corrupt + size - 1, degree.neighbours, degree.threshold)
    avoided = _log_choose(parties - 1 - missing, degree.neighbours) - _log_choose(parties - 1, degree.neighbours)
    closed = _log_choose(honest - size, missing) + size * avoided
    term = np.log(size) + _log_choose(honest, size) + np.minimum(helped, closed)
    return bool(term[0] <= -SECURITY_BITS * math.log(2.0))


def exposure(parties: int, corrupt: int, dropouts: int, degree: Degree) -> float:
    """A bound on the probability that a sum of too few honest parties can open, for each attempt of a party.

    Of n parties h are honest. Each chooses k neighbours. A quorum has fixed one list of survivors, of which v ≥ h − D
    are honest. A party masks with every survivor that it chose, and masks between honest parties are secret. So a
    combination of vectors in which the masks cancel must contain, with each honest party, all honest survivors that
    this party chose: such a set S is *closed*. Two conditions must hold for the sum of a closed set S to open. Every
    member of S has t neighbours that help to open it, which are corrupt or are honest survivors in S. And no member of
    S chose one of the v − |S| honest survivors outside S. S is too small if there are more than `degree.unseen` of
    these, since the noise is sized for v − `unseen` parties. So for |S| = a, at least s = max(h − D − a, unseen + 1)
    honest survivors were chosen by no member. A union bound over all sets gives the smaller of

        C(h, a) · P[Hyp(n − 1, T + a − 1, k) ≥ t]^a    and    C(h, a) · C(h − a, s) · (C(n − 1 − s, k) / C(n − 1, k))^a

    since the choices are independent. A coordinator sees the choices one by one. It can ask some parties first, and
    give up the attempt if it does not like their choices, before the other parties have used up one of their attempts.
    If every party takes part in m attempts, members of S are asked in at most a · m attempts altogether, and in each of
    these all a members would have to choose badly. So the term for a counts a times in the bound for one attempt of a
    party, which is then multiplied by m. The result is the sum of these over all a < h − unseen.
    """
    if degree.neighbours >= parties - 1:
        return float(corrupt >= degree.threshold)
    helped = _log_helped(parties, corrupt, degree.neighbours, degree.threshold)
    found = _log_exposure(parties, corrupt, dropouts, degree.neighbours, helped, degree.unseen)
    return math.exp(min(0.0, found))


def _log_helped(parties: int, corrupt: int, neighbours: int, threshold: int) -> Floats:
    """log P[Hyp(n − 1, T + a − 1, k) ≥ t]^a: all of a honest parties have t helpers, for a = 1, 2, … up to h − 1."""
    sizes = np.arange(1, parties - corrupt, dtype=np.float64)
    return sizes * _log_tail(parties - 1, corrupt + sizes - 1, neighbours, threshold)


def _log_exposure(parties: int, corrupt: int, dropouts: int, neighbours: int, helped: Floats, unseen: int) -> float:
    """The logarithm of the sum of `exposure`."""
    honest = parties - corrupt
    sizes = np.arange(1, honest - unseen, dtype=np.float64)
    if not sizes.size:
        return -math.inf
    missing = np.maximum(honest - dropouts - sizes, unseen + 1.0)
    avoided = _log_choose(parties - 1 - missing, neighbours) - _log_choose(parties - 1, neighbours)
    closed = _log_choose(honest - sizes, missing) + sizes * avoided
    terms = np.log(sizes) + _log_choose(honest, sizes) + np.minimum(helped[: sizes.size], closed)
    return float(logsumexp(terms))


def _log_choose(among: Floats | float, chosen: Floats | float) -> Floats:
    """log C(n, k), −∞ where k > n."""
    among, chosen = np.broadcast_arrays(np.asarray(among, dtype=np.float64), np.asarray(chosen, dtype=np.float64))
    possible = chosen <= among
    rest = np.where(possible, among - chosen, 0.0)
    return np.where(possible, gammaln(among + 1) - gammaln(chosen + 1) - gammaln(rest + 1), -np.inf)


def _log_tail(others: int, marked: Floats, drawn: int, least: int) -> Floats:
    """log P[Hyp(others, marked, drawn) ≥ least] for many numbers of marked ones."""
    counts = np.arange(least, drawn + 1, dtype=np.float64)
    marked = marked[:, None]
    terms = _log_choose(marked, counts) + _log_choose(others - marked, drawn - counts) - _log_choose(others, drawn)
    return np.minimum(logsumexp(terms, axis=1), 0.0)


def _log_tails(others: int, marked: int, drawn: int) -> Floats:
    """log P[Hyp(others, marked, drawn) ≥ c] for c = 0, 1, … up to `drawn`, many times as fast as scipy's."""
    counts = np.arange(drawn + 1, dtype=np.float64)
    terms = _log_choose(marked, counts) + _log_choose(others - marked, drawn - counts) - _log_choose(others, drawn)
    return np.logaddexp.accumulate(terms[::-1])[::-1]


def circle_degree(parties: int, corrupt: int, dropouts: int) -> Degree | None:
    """The smallest degree of a circle, with its threshold t, such that for all parties at once (union bound)

    - security: fewer than t neighbours are corrupt, except with probability 2^−40;
    - security: the honest survivors stay connected (no k/2 in a row are corrupt or gone), likewise;
    - correctness: at least t neighbours survive, except with probability 2^−30.

    None if no such degree exists; then a complete graph is used.

    >>> circle_degree(1000, 200, 50), circle_degree(1000, 500, 50)
    (Degree(neighbours=58, threshold=39, unseen=0), Degree(neighbours=140, threshold=113, unseen=0))
    """
    for neighbours in range(2, parties - 1, 2):
        threshold = _threshold(parties, parties, corrupt, neighbours)
        if threshold > neighbours or _too_few_left(parties, dropouts, neighbours, threshold):
            continue
        if disconnected(parties, corrupt + dropouts, neighbours) <= 2.0**-SECURITY_BITS:
            return Degree(neighbours, threshold)
    return None


def _threshold(parties: int, protected: int, corrupt: int, neighbours: int) -> int:
    """The smallest t such that none of so many parties has t corrupt neighbours, except with probability 2^−40."""
    limit = -SECURITY_BITS * math.log(2.0) - math.log(max(1, protected))
    unlikely = _log_tails(parties - 1, corrupt, neighbours) <= limit
    return int(np.argmax(unlikely)) if unlikely.any() else neighbours + 1


def _too_few_left(parties: int, dropouts: int, neighbours: int, threshold: int) -> bool:
    """Whether some party is left with fewer neighbours than the threshold with probability above 2^−30."""
    lost = _log_tails(parties - 1, dropouts, neighbours)[neighbours - threshold + 1]
    return bool(math.log(parties) + lost > -CORRECTNESS_BITS * math.log(2.0))


def surrounded(parties: int, corrupt: int, degree: Degree) -> float:
    """A bound on the probability that some honest party has `threshold` corrupt neighbours, who can unmask it."""
    if degree.neighbours >= parties - 1:
        return float(corrupt >= degree.threshold)
    tail = float(hypergeom.sf(degree.threshold - 1, parties - 1, corrupt, degree.neighbours))
    return min(1.0, (parties - corrupt) * tail)


def disconnected(parties: int, missing: int, neighbours: int) -> float:
    """A bound on the probability that k/2 parties in a row are all missing: n · ∏ (missing − i) / (n − i)."""
    run = neighbours // 2
    if missing < run:
        return 0.0
    steps = np.arange(run)
    return float(parties * np.exp(np.log((missing - steps) / (parties - steps)).sum()))


@dataclass(frozen=True)
class Graph(ABC):
    """The parties that mask with each other, and the holders of each party's shares."""

    parties: int
    degree: Degree

    @abstractmethod
    def draw(self, party: int, label: str, secrets: SecretStream) -> list[int]:
        """The neighbours that a party masks with and gives shares to, sorted. In a chosen graph they are drawn from
        `secrets`."""

    @abstractmethod
    def read(self, party: int, label: str, announced: bytes) -> list[int] | None:
        """The neighbours that a party announced; None if it may not choose these."""

    @abstractmethod
    def announce(self, neighbours: list[int]) -> bytes:
        """The neighbours in the form in which they are announced; empty in a public graph."""


class PublicGraph(Graph):
    """A graph that everybody can compute. Being neighbours is mutual in it."""

    def draw(self, party: int, label: str, secrets: SecretStream) -> list[int]:
        return self.neighbours(party, label)

    def read(self, party: int, label: str, announced: bytes) -> list[int] | None:
        return None if announced else self.neighbours(party, label)

    def announce(self, neighbours: list[int]) -> bytes:
        return b""

    @abstractmethod
    def neighbours(self, party: int, label: str) -> list[int]:
        """The neighbours of a party, sorted."""


class CompleteGraph(PublicGraph):
    """Everyone masks with everyone."""

    def neighbours(self, party: int, label: str) -> list[int]:
        return [*range(party), *range(party + 1, self.parties)]


class CircleGraph(PublicGraph):
    """Everyone masks with the next on a circle, whose order is that of hashes of the label and the index."""

    def neighbours(self, party: int, label: str) -> list[int]:
        order, position = _circle(self.parties, label)
        steps = np.arange(1, self.degree.neighbours // 2 + 1)
        around = position[party] + np.concatenate([steps, -steps])
        found: list[int] = np.sort(order[around % self.parties]).tolist()
        return found


@lru_cache(maxsize=8)
def _circle(parties: int, label: str) -> tuple[Integers, Integers]:
    """The parties in the order of the circle, and each party's position."""
    seed = label.encode()
    keys = np.array([hashlib.sha256(seed + party.to_bytes(4, "big")).digest() for party in range(parties)], dtype="S32")
    order = np.argsort(keys, kind="stable").astype(np.int64)
    position = np.empty(parties, dtype=np.int64)
    position[order] = np.arange(parties)
    return order, position


class ChosenGraph(Graph):
    """Everyone draws its own neighbours, and masks with those who drew it, too."""

    def draw(self, party: int, label: str, secrets: SecretStream) -> list[int]:
        others = np.delete(np.arange(self.parties), party)
        # The others with the smallest of uniform words; of 2¹⁴ words two are equal with probability 2⁻³⁷ at most.
        order = np.argsort(secrets.words(len(others)), kind="stable")
        found: list[int] = np.sort(others[order[: self.degree.neighbours]]).tolist()
        return found

    def read(self, party: int, label: str, announced: bytes) -> list[int] | None:
        if len(announced) != 4 * self.degree.neighbours:
            return None
        chosen = np.frombuffer(announced, dtype="<u4").astype(np.int64)
        ascending = bool((np.diff(chosen) > 0).all())
        return chosen.tolist() if ascending and chosen[-1] < self.parties and party not in chosen else None

    def announce(self, neighbours: list[int]) -> bytes:
        return np.array(neighbours, dtype="<u4").tobytes()
