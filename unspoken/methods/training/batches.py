"""The records that are in a round's batch: each party finds out about its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from unspoken.methods.base import PartyContext, TokenPositions
from unspoken.methods.plan import RecordSampling
from unspoken.methods.planning import trust_of
from unspoken.methods.training.options import GradientOptions
from unspoken.noise.stream import SecretStream
from unspoken.privacy.subsampled import effective_rate, largest_rate
from unspoken.study import Study
from unspoken.summation.mixnet import onion_bytes
from unspoken.types import Flags, Integers

SLACK = 0.01
"""The part of δ that pays for batches without replacement, and the part that pays for Gaussian projections"""


def poisson_sample(count: int, rate: float, secrets: SecretStream) -> Flags:
    """Takes each record independently with probability `rate`, up to 2⁻⁶³."""
    if rate >= 1.0:
        return np.ones(count, dtype=np.bool_)
    return np.asarray(secrets.words(count) >> np.uint64(1) < np.uint64(int(rate * 2.0**63)))


class Batches(ABC):
    """A way to sample the records of each round."""

    by_tokens: ClassVar[bool]
    """Does a shuffled list of tokens decide which records are in a batch? It is made anew in each round."""

    def __init__(self, study: Study, options: GradientOptions) -> None:
        self._study, self._parties = study, study.parties
        self._rate, self._rounds = options.rate, options.rounds

    @property
    def _everyone(self) -> int:
        """The largest number of records of all parties."""
        return self._parties.count * self._parties.max_records

    @property
    @abstractmethod
    def most(self) -> float:
        """The largest number of records in a batch, exceeded with probability at most 2⁻⁶⁰."""

    @abstractmethod
    def sampling(self, slack: float) -> RecordSampling:
        """The sampling as the plan counts it, with a slack in δ that something else costs."""

    @abstractmethod
    def is_taken(self, count: int, context: PartyContext) -> Flags:
        """Flags of those of a party's records that are in the round's batch."""


class PoissonBatches(Batches):
    """Every record is taken independently of the others."""

    by_tokens = False

    @property
    def most(self) -> float:
        return self._everyone * largest_rate(self._rate, self._everyone, 2.0**-60)

    def sampling(self, slack: float) -> RecordSampling:
        return RecordSampling(self._rate, slack=slack)

    def is_taken(self, count: int, context: PartyContext) -> Flags:
        return poisson_sample(count, self._rate, context.secrets)


class FixedBatches(Batches):
    """Batches without replacement, all of the same size, from a list of tokens (`summation.record_shuffle`)."""

    by_tokens = True

    @property
    def most(self) -> float:
        return self.size(self._everyone)

    def size(self, records: int) -> int:
        """The size of a batch of so many records."""
        return max(1, math.floor(self._rate * records))

    def sampling(self, slack: float) -> RecordSampling:
        parties = self._parties.count
        everyone = parties * self._parties.records
        lists = onion_bytes(parties) * self._parties.records + onion_bytes(parties - 1) * everyone
        slack += self._rounds * self._allowed
        rate = self._honest_rate(trust_of(self._study).known)
        return RecordSampling(rate, "without-replacement", slack, upload=lists, rate_if=self._honest_rate)

    @property
    def _allowed(self) -> float:
        """The allowed probability that a batch has more of the honest records than `_honest_rate` says."""
        return SLACK * self._study.privacy.delta / self._rounds

    def _honest_rate(self, known: int) -> float:
        """The rate at which honest records are in a batch, for someone who knows the records of `known` parties."""
        parties = self._parties
        honest, theirs = (parties.count - known) * parties.records, known * parties.max_records
        if parties.records == parties.max_records:
            return effective_rate(self.size(honest + theirs), honest + theirs, theirs, self._allowed)
        return largest_rate(max(self._rate, 1.0 / honest), honest, self._allowed if known else 1.0)

    def is_taken(self, count: int, context: PartyContext) -> Flags:
        if context.positions is None:
            raise ValueError("Expected a list of tokens before a batch of them.")
        return np.isin(context.positions.places, self.batch(context.positions))

    def batch(self, positions: TokenPositions) -> Integers:
        """The batch as places of the list, by the seed that came with it. Nobody knows whose records they are."""
        return np.random.default_rng(positions.seed).permutation(positions.count)[: self.size(positions.count)]
