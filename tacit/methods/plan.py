"""What a method will do, derived from the study alone: its sums, their noise, and the guarantee that follows.

A method declares its sums (dimension, bound, sensitivity); the noise and the guarantee are computed here, in one
place, from what privacy/ proves. No method states an ε of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tacit.noise.encoding import Encoding
from tacit.noise.schedule import COMPONENTS, NoiseSchedule
from tacit.noise.stream import SecretStream
from tacit.privacy import integer
from tacit.privacy.gaussian import compose, epsilon_of, mu_for
from tacit.privacy.guarantee import Guarantee, Trust
from tacit.study import Study
from tacit.summation.base import Protocol, Session
from tacit.summation.registry import open_session

_FINENESS = 1024.0
"""The sensitivity is at least this many times the error that rounding may add to it …"""
_COARSEST = 128.0
"""… or this many times, if a 32-bit word then suffices: half the upload for less than 1 % more noise."""
_TAIL = 14.0
"""A sum of noise beyond this many standard deviations has probability below 2⁻¹⁴⁰."""


@dataclass(frozen=True)
class DeclaredSum:
    """A secure sum that a method will ask for."""

    name: str
    dimension: int
    """How many coordinates carry noise."""
    bound: float
    """No party's contribution has a larger L2 norm."""
    sensitivity: float
    """How far the protected unit moves the total, in L2 norm."""
    exact: tuple[str, ...] = ()
    """Further coordinates, whole numbers that are the same for all neighbours, so that they need no noise."""


@dataclass(frozen=True)
class PlannedSum:
    """A declared sum with its encoding and noise."""

    name: str
    dimension: int
    exact: tuple[str, ...]
    encoding: Encoding
    schedule: NoiseSchedule
    """Each party's noise, in units of the encoding."""
    sensitivity: float
    """With what rounding adds to it."""
    noise_std: float
    """What is left of the noise without the shares of colluders and dropped parties."""
    count: int = 1

    @property
    def length(self) -> int:
        return self.dimension + len(self.exact)

    @property
    def mu(self) -> float:
        return self.sensitivity / self.noise_std

    def total_std(self, survivors: int) -> float:
        """The standard deviation of all the noise in the released total, unneeded components taken away."""
        return math.sqrt(self.schedule.kept(survivors) * survivors) / self.encoding.scale

    def released_mu(self, survivors: int) -> float:
        """μ of what was really released: the honest survivors' noise as it was kept."""
        honest = self.schedule.kept(survivors) * (survivors - self.schedule.known)
        return self.sensitivity / (integer.continuous_deviation(math.sqrt(honest)) / self.encoding.scale)


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed before data is touched."""

    study: Study
    method: str
    sums: tuple[PlannedSum, ...]
    guarantee: Guarantee
    slack: float
    """What the summation's dice and the drawing of noise cost in δ"""
    notes: tuple[str, ...] = ()

    @property
    def rounds(self) -> int:
        return sum(planned.count for planned in self.sums)

    @property
    def trust(self) -> Trust:
        return self.guarantee.trust

    @cached_property
    def upload_bytes(self) -> int:
        """What one party sends in all."""
        return sum(p.count * self.protocol(p, SecretStream()).upload_bytes() for p in self.sums)

    @cached_property
    def summation_parameters(self) -> dict[str, int]:
        """What the protocol chose: word size, neighbours, thresholds, nodes."""
        planned = self.sums[0]
        return {"bits": planned.encoding.bits, **self.protocol(planned, SecretStream()).parameters}

    def planned(self, name: str) -> PlannedSum:
        return next(planned for planned in self.sums if planned.name == name)

    def protocol(self, planned: PlannedSum, secrets: SecretStream) -> Protocol:
        """The summation protocol of the study, for one of the plan's sums."""
        shape = (planned.length, planned.encoding.bits, planned.schedule)
        return open_session(self.study, _session(self.study, self.trust, planned.name, *shape), secrets)

    def released(self, survivors: dict[str, int]) -> Guarantee:
        """The guarantee of what was really released, by the number of parties in each sum."""
        mu = compose(planned.released_mu(survivors[planned.name]) for planned in self.sums)
        spent = epsilon_of(mu, self.study.privacy.delta - self.slack)
        return replace(self.guarantee, epsilon=min(self.guarantee.epsilon, spent), mu=mu)

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.study.study.name,
            "study_sha256": self.study.digest(),
            "method": self.method,
            "guarantee": self.guarantee.to_json(),
            "releases": [
                {
                    "name": planned.name,
                    "sensitivity": planned.sensitivity,
                    "noise_std": planned.noise_std,
                    "count": planned.count,
                    "dimension": planned.dimension,
                    "exact": list(planned.exact),
                    "total_noise_std": planned.total_std(self.trust.parties),
                }
                for planned in self.sums
            ],
            "rounds": self.rounds,
            "upload_bytes": self.upload_bytes,
            "summation": self.study.summation.protocol,
            "summation_parameters": self.summation_parameters,
            "parties": self.trust.parties,
            "notes": list(self.notes),
        }


def make_plan(study: Study, method: str, declared: list[DeclaredSum], notes: tuple[str, ...] = ()) -> Plan:
    """Size the noise of the declared sums so that together they keep the study's promise."""
    trust = Trust(study.parties.count, study.colluding, study.dropouts)
    if trust.honest_survivors < 1:
        raise study.error(
            "privacy",
            f"leaves no honest party: of {trust.parties} parties, {max(trust.colluding, 1)} may know their own noise "
            f"and {trust.dropouts} may drop out; lower colluding or dropouts, or have more parties",
        )
    epsilon, delta = min(study.privacy.epsilon, integer.LARGEST_EPSILON), study.privacy.delta
    protocol = open_session(study, _session(study, trust, "plan", 1, 64, None), SecretStream())
    slack = protocol.exposure + integer.slack(epsilon, _samples(study, declared))
    if slack >= delta:
        raise study.error(
            "privacy.delta",
            f"is {delta:g}, but the summation and the drawing of noise already cost {slack:.1g}; choose a larger "
            'delta, or protocol = "secagg"',
        )
    mu_each = mu_for(epsilon, delta - slack) / math.sqrt(len(declared))
    sums = tuple(_plan_sum(study, trust, release, mu_each, protocol.opens_noise) for release in declared)
    mu = compose(planned.mu for planned in sums)
    guarantee = Guarantee(
        epsilon=min(epsilon, epsilon_of(mu, delta - slack)),
        delta=delta,
        group=study.group,
        trust=trust,
        mu=mu,
        assumptions=protocol.assumptions,
    )
    return Plan(study, method, sums, guarantee, slack, notes + _cautions(study))


def _plan_sum(study: Study, trust: Trust, release: DeclaredSum, mu: float, opens_noise: bool) -> PlannedSum:
    """Encoding and noise of one sum: 32-bit words if they are fine enough, else 64-bit ones."""
    counts = float(trust.parties * study.parties.max_records)
    for bits, coarsest in ((32, _COARSEST), (64, _FINENESS)):
        fineness = _FINENESS
        while fineness >= coarsest:
            planned = _with_fineness(trust, release, mu, opens_noise, fineness, bits)
            if max(_largest_total(trust, planned), counts) < 2.0 ** (bits - 1):
                return planned
            fineness /= 2.0
    raise study.error("parties.max_records", f"is {study.parties.max_records}, too many for 64-bit totals; lower it")


def _with_fineness(
    trust: Trust, release: DeclaredSum, mu: float, opens_noise: bool, fineness: float, bits: int
) -> PlannedSum:
    """The noise of a sum whose sensitivity is at least `fineness` times what rounding adds to it."""
    rounding = Encoding.rounding(release.dimension)
    honest = math.sqrt(trust.honest_survivors)
    units_per_one = max(fineness * rounding, integer.LEAST_SHARE * honest * mu) / release.sensitivity
    scale = 2.0 ** math.ceil(math.log2(units_per_one))
    units = release.sensitivity * scale + rounding
    needed = integer.discrete_deviation(units / mu)
    least = integer.LEAST_SHARE**2 if opens_noise else math.inf
    return PlannedSum(
        name=release.name,
        dimension=release.dimension,
        exact=release.exact,
        encoding=Encoding(scale, bits, release.bound),
        schedule=NoiseSchedule.plan(trust.parties, max(trust.colluding, 1), trust.dropouts, needed**2, least),
        sensitivity=units / scale,
        noise_std=integer.continuous_deviation(needed) / scale,
    )


def _largest_total(trust: Trust, planned: PlannedSum) -> float:
    """What no coordinate of a total exceeds, in units, except with probability 2⁻¹⁴⁰ each."""
    largest = planned.encoding.bound * planned.encoding.scale + planned.encoding.rounding(planned.dimension)
    return trust.parties * largest + _TAIL * math.sqrt(trust.parties * planned.schedule.whole)


def _session(study: Study, trust: Trust, name: str, length: int, bits: int, schedule: NoiseSchedule | None) -> Session:
    survivors = trust.least_survivors
    return Session(study.digest(), name, trust.parties, trust.colluding, survivors, length, bits, schedule)


def _samples(study: Study, sums: Sequence[DeclaredSum]) -> int:
    """How many numbers all parties draw, in all components of their noise."""
    return sum(release.dimension for release in sums) * study.parties.count * (COMPONENTS + 1)


def _cautions(study: Study) -> tuple[str, ...]:
    """What a careful reader of the promise should be told."""
    cautions = []
    records = study.parties.count * study.parties.records
    if study.privacy.delta > 1.0 / records:
        cautions.append(
            f"delta = {study.privacy.delta:g} is above 1/{records:,} (one over the number of records): it would allow "
            "revealing a record outright now and then; choose it well below"
        )
    if study.privacy.epsilon > 10.0:
        cautions.append(f"epsilon = {study.privacy.epsilon:g} promises little; values up to about 3 are called strong")
    if study.privacy.epsilon > integer.LARGEST_EPSILON:
        cautions.append(f"epsilon is taken as {integer.LARGEST_EPSILON:g}, the largest that is planned for")
    if study.summation.protocol == "ideal":
        cautions.append('summation "ideal" is for simulation only: the coordinator sees every contribution')
    return tuple(cautions)
