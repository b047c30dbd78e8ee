"""Which records are in a round's batch. Each party decides this for its own records."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from unspoken.methods.base import PartyContext, TokenPositions
from unspoken.methods.planning import RecordSampling
from unspoken.methods.planning.budget import trust_of
from unspoken.methods.training.options import GradientOptions
from unspoken.noise.stream import SecretStream
from unspoken.privacy.subsampled import effective_rate, largest_rate
from unspoken.study import Study
from unspoken.summation.mixnet import onion_bytes, permutation
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

    by_tokens: ClassVar[bool] = False
    """Does a shuffled list of tokens decide which records are in a batch? It is made anew in each round."""
    counted: ClassVar[str] = "records"
    """What a party counts for everyone, so that a step divides by what the sum holds: its records, or those of its
    batch if their number is certain"""

    def __init__(self, study: Study, options: GradientOptions) -> None:
        self._study, self._parties = study, study.parties
        self._rate, self._rounds = options.rate, options.rounds
        self._lists = options.rounds * study.privacy.attempts

    @property
    def _everyone(self) -> int:
        """The largest number of records of all parties."""
        return self._parties.count * self._parties.max_records

    @property
    @abstractmethod
    def most(self) -> float:
        """The largest number of records in a batch, exceeded with probability at most 2⁻⁶⁰."""

    def count(self, records: int) -> int:
        """What a party with so many records counts."""
        return records

    def least_count(self, parties: int) -> int:
        """The least that so many parties count together."""
        return parties * self.count(self._parties.records)

    @property
    def largest_count(self) -> int:
        """The most that all parties count together."""
        return self._parties.count * self.count(self._parties.max_records)

    @abstractmethod
    def expected(self, counted: int) -> float:
        """The expected number of records in a batch, if the parties count so many together."""

    @abstractmethod
    def sampling(self, slack: float) -> RecordSampling:
        """The sampling as the plan counts it, with a slack in δ that something else costs."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the plan on what the sampling itself costs."""
        return ()

    @abstractmethod
    def is_taken(self, count: int, context: PartyContext) -> Flags:
        """Flags of those of a party's records that are in the round's batch."""


class PoissonBatches(Batches):
    """Every record is taken independently of the others."""

    @property
    def most(self) -> float:
        return self._everyone * largest_rate(self._rate, self._everyone, 2.0**-60)

    def expected(self, counted: int) -> float:
        return self._rate * counted

    def sampling(self, slack: float) -> RecordSampling:
        return RecordSampling(self._rate, slack=slack)

    def is_taken(self, count: int, context: PartyContext) -> Flags:
        return poisson_sample(count, self._rate, context.secrets)


def _size(rate: float, records: int) -> int:
    """The size of a batch without replacement of so many records."""
    return max(1, math.floor(rate * records))


def _megabytes(count: int) -> str:
    """So many bytes in megabytes, for people.

    >>> _megabytes(1_492_800_000), _megabytes(64_000)
    ('1,493', '0.064')
    """
    return f"{count / 1e6:,.0f}" if count >= 10**7 else f"{count / 1e6:.2g}"


class OwnBatches(Batches):
    """Batches without replacement of each party's own records: the same share of each party's, at least one record.

    Guarantee. Given everything else, including the other parties' records and batches, a total is a Gaussian release
    over a uniform choice of b among one party's n records. So a replaced record costs what `privacy.subsampled` says of
    batches without replacement at the rate b/n ≤ max(rate, 1/n), whatever others know of their own batches. No list of
    tokens is needed.
    """

    counted = "batch"

    @property
    def most(self) -> float:
        return self.largest_count

    def count(self, records: int) -> int:
        return _size(self._rate, records)

    @property
    def _fewest(self) -> int:
        """The fewest records that a batch is drawn from."""
        return self._parties.records

    def expected(self, counted: int) -> float:
        return float(counted)

    def sampling(self, slack: float) -> RecordSampling:
        return RecordSampling(max(self._rate, 1.0 / self._fewest), "without-replacement", slack)

    @property
    def notes(self) -> tuple[str, ...]:
        if self._rate * self._fewest >= 1.0:
            return ()
        return (
            f"every batch has at least one record, so where it is drawn from {self._fewest:,} the rate counts as "
            f'{1.0 / self._fewest:.3g}, not {self._rate:g}; sampling = "poisson" has no such floor',
        )

    def is_taken(self, count: int, context: PartyContext) -> Flags:
        taken = np.zeros(count, dtype=np.bool_)
        taken[permutation(count, context.secrets)[: self.count(count)]] = True
        return taken


class PooledBatches(OwnBatches):
    """A curator's batches, drawn in the same way from all records."""

    def least_count(self, parties: int) -> int:
        return self.count(parties * self._parties.records)

    @property
    def largest_count(self) -> int:
        return self.count(self._everyone)

    @property
    def _fewest(self) -> int:
        # A curator may lack the records of those who drop out.
        return max(trust_of(self._study).least_survivors, 1) * self._parties.records


class FixedBatches(Batches):
    """Batches without replacement, all of the same size, from a list of tokens (`summation.record_shuffle`).

    A list serves one vector, so another attempt at the sum needs another list. Two sums over the same batch would not
    count as two independent rounds: a record is in both or in none, so together they are one round with √2 times the μ
    at the same rate.
    """

    by_tokens = True

    @property
    def most(self) -> float:
        return self.size(self._everyone)

    def size(self, records: int) -> int:
        """The size of a batch of so many records."""
        return _size(self._rate, records)

    def expected(self, counted: int) -> float:
        return float(self.size(counted))

    def sampling(self, slack: float) -> RecordSampling:
        slack += self._lists * self._allowed
        rate = self._honest_rate(trust_of(self._study).known)
        return RecordSampling(rate, "without-replacement", slack, tokens=True, rate_if=self._honest_rate)

    @property
    def _upload(self) -> int:
        """The bytes of a list that the party sends that peels first: its own onions, and all with one layer less."""
        parties, records = self._parties.count, self._parties.records
        return onion_bytes(parties) * records + onion_bytes(parties - 1) * parties * records

    @property
    def notes(self) -> tuple[str, ...]:
        parties, everyone = self._parties.count, self._parties.count * self._parties.records
        download = sum(onion_bytes(layers) * everyone for layers in range(parties + 1))
        sent, got = (_megabytes(self._rounds * each) for each in (self._upload, download))
        return (
            f"lists of tokens take {sent} MB of what a party sends, and {got} MB that it gets, if parties "
            f'have {self._parties.records:,} records each; sampling = "within-parties" (batches of the same share of '
            'each party\'s records) and "poisson" need none, whoever colludes',
        )

    @property
    def _allowed(self) -> float:
        """The allowed probability that a batch has more of the honest records than `_honest_rate` says.

        Someone who sees the seed of a list before the others may prevent the list, and so choose among all lists of a
        round. It knows its own records and how many honest ones are in the batch; given these, all honest records are
        equally likely to be in it. So the choice costs no more than this probability for each list.
        """
        return SLACK * self._study.privacy.delta / self._lists

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
