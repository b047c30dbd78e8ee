"""The cost of several studies on one data set together: the composition of their events, not a sum of ε.

This holds even if one study's requests depend on another's results, and if they run at the same time: interactive
mechanisms compose concurrently as they do one after the other (Vadhan & Zhang 2023).

Unit. The total is about the largest unit that all studies protect. Neighbours that differ in one record also differ in
(at most) k records, and in one party's records; so a study that protects more than a record protects a record, too.
Neighbours that differ in k records at several parties differ at several parties, so a study that protects parties is
not taken to protect groups of records.

Neighbours. If studies differ, the total is about replaced records: to replace one is to leave one out and put another
in. That is two steps, hence 2μ and 2ε. Sampled rounds have their own cost for replaced records (`privacy.subsampled`).
The same conversion is used where a study hides whether all of a party's records were left out, and the total or a limit
is about single records: to replace one record of a party is to leave out all its records and put others in.

δ. It includes every study's slack. Noise that is drawn with a statistical distance of η costs (1 + e^ε)·η, where ε is
that of the total, not of the single study. If this exceeds δ, nothing can be promised, and ε is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from unspoken.privacy import integer
from unspoken.privacy.accounting import Terms, epsilon_of, guarantee_of, mu_of
from unspoken.privacy.events import Adjacency, Event, Gaussian, PureLoss, Spend, SubsampledGaussian, Unprotected
from unspoken.privacy.gaussian import epsilon_of as epsilon_at
from unspoken.privacy.gaussian import mu_for
from unspoken.privacy.guarantee import Guarantee, Trust
from unspoken.privacy.ledger_pages import Account, Limit, Run

_ROOM = 0.5
"""The sampler's cost in δ is computed at an ε that exceeds the total's by this much, which is more than this cost
adds"""

_LARGEST_EXPONENT = 700.0
"""The largest x for which e^x is computed; above it, floating point overflows"""

_HALVINGS = 10
"""The precision of `left`: 2⁻¹⁰ of the limit"""


@dataclass(frozen=True)
class LedgerTotal:
    """The cost of several runs together."""

    runs: tuple[Run, ...]
    spend: Spend
    distance: float

    def epsilon(self, delta: float, fine: bool = True) -> float:
        """The smallest ε for which (ε, δ) holds for all of it."""
        return self._settled(delta, fine)[1] if self.runs else 0.0

    def guarantee(self, delta: float) -> Guarantee:
        """The guarantee of everything together, against the adversaries that every study holds against."""
        if not self.runs:
            return guarantee_of(self.spend, Terms(delta, Trust(1, 0, 0)))
        spend, epsilon = self._settled(delta)
        count = len(self.runs)
        seen = "everything that " + ("one run" if count == 1 else f"{count:,} runs") + " revealed"
        terms = Terms(delta, weakest(self.runs), assumptions_of(self.runs), seen)
        found = guarantee_of(spend, terms)
        if math.isinf(epsilon):
            certain = None if found.mu is not None or Unprotected() in spend.events else 1.0
            return replace(found, epsilon=epsilon, delta=0.0, advantage=certain)
        return replace(found, epsilon=epsilon, delta=delta)

    @property
    def usual_delta(self) -> float:
        """The default δ at which ε is stated: the largest of the studies' δ."""
        return max([run.delta for run in self.runs] + [self.spend.slack]) or 1e-6

    def _settled(self, delta: float, fine: bool = True) -> tuple[Spend, float]:
        """ε, and the spend with the sampler's cost added to its slack."""
        spend, epsilon = self.spend, self._epsilon(self.spend, delta, fine)
        assumed = 0.0
        while self.distance and assumed < epsilon < math.inf:
            assumed = epsilon + _ROOM
            drawing = integer.cost(assumed, self.distance) if assumed < _LARGEST_EXPONENT else math.inf
            spend = replace(self.spend, slack=self.spend.slack + drawing)
            epsilon = self._epsilon(spend, delta, fine)
        return spend, epsilon

    def _epsilon(self, spend: Spend, delta: float, fine: bool) -> float:
        return math.inf if delta < spend.slack else epsilon_of(spend, delta, fine)

    def excess(self, limit: Limit) -> float | None:
        """ε of this total at the limit's δ if that is above it (∞ if the limit's unit is not protected); else None."""
        if not all(covers(run.group, limit.group) for run in self.runs):
            return math.inf
        most, told = limit.epsilon * (1.0 + 1e-9), self._told(limit)
        # Try the coarse accounting first: it is an upper bound too, and takes a tenth of the time.
        if told.epsilon(limit.delta, fine=False) <= most:
            return None
        found = told.epsilon(limit.delta)
        return None if found <= most else found

    def left(self, limit: Limit) -> float:
        """ε, at the limit's δ, of the largest further release under Gaussian noise that the limit allows; 0 if none."""
        if self.excess(limit) is not None:
            return 0.0
        told = self._told(limit)
        if (spent := mu_of(told.spend)) is not None:
            most = mu_for(limit.epsilon, limit.delta - told.spend.slack)
            return epsilon_at(math.sqrt(max(0.0, most**2 - spent**2)), limit.delta)
        low, high = 0.0, mu_for(limit.epsilon, limit.delta)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            with_it = replace(told, spend=replace(told.spend, events=(*told.spend.events, Gaussian(middle))))
            fits = with_it.epsilon(limit.delta, fine=False) <= limit.epsilon
            low, high = (middle, high) if fits else (low, middle)
        return epsilon_at(low, limit.delta)

    def _told(self, limit: Limit) -> LedgerTotal:
        """The total for the limit's neighbour relation: if the total is about left-out parties, converted to replaced
        records."""
        spend = self.spend
        if limit.group is None or spend.group is not None or spend.adjacency == "replace":
            return self
        events = tuple(in_sense(event, spend.adjacency, "replace") for event in spend.events)
        return replace(self, spend=replace(spend, events=events, adjacency="replace"))


def total_of(account: Account, *further: tuple[Run, Sequence[Event]]) -> LedgerTotal:
    """The cost of all charges to an account, and of further events."""
    charged = [(account.runs[charge.run], charge.events) for charge in account.charges.values()]
    by_run: dict[str, tuple[Run, list[Event]]] = {}
    for run, events in [*charged, *further]:
        by_run.setdefault(run.identifier, (run, list(run.once)))[1].extend(events)
    runs = tuple(run for run, _ in by_run.values())
    sense: Adjacency = "replace"
    if all(run.adjacency == "add-remove" for run in runs) and len({run.group is None for run in runs}) == 1:
        sense = "add-remove"
    found = [in_sense(event, run.adjacency, sense) for run, events in by_run.values() for event in events]
    slack, distance = sum(run.slack for run in runs), sum(run.distance for run in runs)
    spend = Spend(tuple(merged(found)) or (Gaussian(0.0),), common_unit([run.group for run in runs]), sense, slack)
    return LedgerTotal(runs, spend, distance)


def covers(protected: int | None, wanted: int | None, adjacency: Adjacency = "replace") -> bool:
    """Whether a study that protects the unit `protected` also protects the unit `wanted`, equally well. None: all
    records of a party.

    Under add/remove, protecting parties does not include single records: leaving out one record is not a special case
    of leaving out a party.

    >>> covers(None, 1), covers(5, 3), covers(1, None), covers(None, 3)
    (True, True, False, False)
    """
    if protected is None or wanted is None:
        return protected == wanted or (wanted == 1 and adjacency == "replace")
    return protected >= wanted


def common_unit(groups: Sequence[int | None]) -> int | None:
    """The largest unit that all of these protect.

    >>> common_unit([None, None]), common_unit([5, 3]), common_unit([None, 5])
    (None, 3, 1)
    """
    if groups and all(group is None for group in groups):
        return None
    return 1 if None in groups else min((group or 1 for group in groups), default=1)


def in_sense(event: Event, sense: Adjacency, wanted: Adjacency) -> Event:
    """A study's event, converted from leaving a record out to replacing it, where the wanted neighbour relation is
    that."""
    if sense == wanted:
        return event
    match event:
        case Gaussian(mu, count):
            return Gaussian(2.0 * mu, count)
        case PureLoss(epsilon):
            return PureLoss(2.0 * epsilon)
        case _:
            return event


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events, with equal ones merged into one that counts them.

    >>> merged([Gaussian(0.5), PureLoss(0.1), Gaussian(0.5, 2)])
    [Gaussian(mu=0.5, count=3), PureLoss(epsilon=0.1)]
    """
    found: dict[object, Event] = {}
    for number, event in enumerate(events):
        match event:
            case Gaussian(mu, count):
                known = found.get(mu)
                found[mu] = Gaussian(mu, count + (known.count if isinstance(known, Gaussian) else 0))
            case SubsampledGaussian(noise, rate, sampling, count):
                key = noise, rate, sampling
                known = found.get(key)
                more = known.count if isinstance(known, SubsampledGaussian) else 0
                found[key] = SubsampledGaussian(noise, rate, sampling, count + more)
            case Unprotected():
                found[Unprotected] = event
            case _:
                found["event", number] = event
    return list(found.values())


def weakest(runs: Sequence[Run]) -> Trust:
    """The adversary that all runs hold against: the fewest colluders and dropouts, and a liar if all withstand lies."""
    fewest = min((run.trust for run in runs), key=lambda trust: trust.colluding)
    return replace(
        fewest,
        dropouts=min(run.trust.dropouts for run in runs),
        withheld=0,
        lying=all(run.trust.lying for run in runs),
    )


def assumptions_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """The assumptions of all runs, each once."""
    return tuple(dict.fromkeys(assumption for run in runs for assumption in run.assumptions))
