"""What a method will do, derived from the study alone: its sums, their noise, and the guarantee that follows.

A method declares its sums (dimension, bound, sensitivity); the noise and the guarantee are computed here, in one
place, from what privacy/ proves. No method states an ε of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from unspoken.arithmetic import MOST_POOLED, ROWS, inexactness
from unspoken.methods.mechanisms import Correlated, Curator, Independent, Inside, Mechanism, Shares, Turnout
from unspoken.noise.encoding import Encoding
from unspoken.noise.schedule import COMPONENTS, NoiseSchedule
from unspoken.privacy import integer
from unspoken.privacy.gaussian import compose, epsilon_of, mu_for
from unspoken.privacy.guarantee import Guarantee, Trust
from unspoken.study import Study
from unspoken.summation.base import Protocol, Roster, Session, VoteShape
from unspoken.summation.collection import Collection
from unspoken.summation.collection import Options as CollectionOptions
from unspoken.summation.registry import open_session, protocol_of

_FINENESS = 1024.0
"""The sensitivity is at least this many times the error that rounding may add to it …"""
_COARSEST = 128.0
"""… or this many times, if a 32-bit word then suffices: half the upload for less than 1 % more noise."""
_TAIL = 14.0
"""A sum of noise beyond this many standard deviations has probability below 2⁻¹⁴⁰."""


@dataclass(frozen=True)
class DeclaredSum:
    """A total that a method will ask for."""

    name: str
    dimension: int
    """How many coordinates carry noise."""
    bound: float
    """No party's contribution has a larger L2 norm."""
    sensitivity: float
    """How far the protected unit moves the total, in L2 norm."""
    exact: tuple[str, ...] = ()
    """Further coordinates, whole numbers that are the same for all neighbours, so that they need no noise."""
    count: int = 1
    """How often it is asked for."""
    share: float = 1.0
    """Of the budget μ², each time, in proportion to the shares of all."""
    noise: Literal["shares", "correlated", "independent", "curator", "inside"] = "shares"
    """How the noise gets in: see `mechanisms`."""
    ratio: float = 1.0
    """Of correlated noise: the variance of what is taken away over that of what stays."""
    most: float | None = None
    """What no total of contributions exceeds in norm, but for a negligible chance; None: all parties' bounds."""
    rows: int = ROWS
    """How many records are added up before their sum joins others: see `arithmetic`."""
    classes: int | None = None
    """For a sum of ballots: how many classes there are a query."""

    @property
    def sessions(self) -> int:
        """How many secure sums it takes: noise that parties have in common is made once for all turns."""
        return {"shares": self.count, "correlated": 1}.get(self.noise, 0)


@dataclass(frozen=True)
class PlannedSum:
    """A declared sum with its encoding and noise."""

    name: str
    dimension: int
    exact: tuple[str, ...]
    encoding: Encoding
    noise: Mechanism
    """In units of the encoding."""
    sensitivity: float
    """With what rounding adds to it."""
    noise_std: float
    """What is left of the noise without the shares of colluders and dropped parties."""
    count: int = 1
    sessions: int = 0
    """How many secure sums it takes."""
    classes: int | None = None
    """For a sum of ballots: how many classes there are a query."""

    @property
    def length(self) -> int:
        return self.dimension + len(self.exact)

    @property
    def schedule(self) -> NoiseSchedule:
        """The schedule of the parties' shares."""
        if not isinstance(self.noise, Shares):
            raise ValueError(f"Expected noise in shares, got {self.noise}.")
        return self.noise.schedule

    @property
    def mu(self) -> float:
        """Of each time that it is asked for."""
        return self.sensitivity / self.noise_std

    def total_std(self, sent: int, prepared: int | None = None) -> float:
        """The standard deviation of all the noise in the released total, unneeded components taken away."""
        return math.sqrt(self.noise.total(Turnout(prepared or sent, sent))) / self.encoding.scale

    def released_mu(self, turnout: Turnout) -> float:
        """μ of what was really released: the honest survivors' noise as it was kept."""
        return self.sensitivity / (math.sqrt(self.noise.hidden(turnout)) / self.encoding.scale)


@dataclass(frozen=True)
class OtherRelease:
    """A release that is no total under Gaussian noise, for people to see: what baselines publish."""

    name: str
    dimension: int
    noise: str
    sensitivity: float
    noise_std: float


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
    others: tuple[OtherRelease, ...] = ()
    senders: int | None = None
    """How many parties are asked, if not all"""

    @property
    def asked(self) -> int:
        """How many parties are to take part."""
        return self.senders or self.trust.parties

    @property
    def rounds(self) -> int:
        """How often parties are asked for something."""
        preparations = sum(isinstance(planned.noise, Correlated) for planned in self.sums)
        return preparations + sum(planned.count for planned in self.sums) + len(self.others)

    @property
    def trust(self) -> Trust:
        return self.guarantee.trust

    @property
    def is_summed(self) -> bool:
        """Is there a secure sum?"""
        return any(isinstance(planned.noise, Shares | Correlated) for planned in self.sums)

    @property
    def is_pooled(self) -> bool:
        """Does someone see all records? Then it is a baseline, and its summation does not matter."""
        curated = any(isinstance(planned.noise, Curator) for planned in self.sums)
        return curated or bool(self.others and not self.sums)

    @cached_property
    def upload_bytes(self) -> int:
        """What one party sends in all."""
        if self.is_pooled:
            return self.study.parties.records * (self.study.data.dimension + 1) * 8
        return sum(self._upload(planned) for planned in self.sums)

    def _upload(self, planned: PlannedSum) -> int:
        if isinstance(planned.noise, Shares):
            return planned.count * self.protocol(planned).upload_bytes()
        prepared = self.preparation(planned).upload_bytes() if isinstance(planned.noise, Correlated) else 0
        return prepared + planned.count * self.collection(planned).upload_bytes()

    @cached_property
    def summation_parameters(self) -> dict[str, int]:
        """What the protocol chose: word size, neighbours, thresholds, nodes."""
        if self.is_pooled:
            return {}
        planned = self.sums[0]
        protocol: Protocol
        match planned.noise:
            case Shares():
                protocol = self.protocol(planned)
            case Correlated():
                protocol = self.preparation(planned)
            case _:
                protocol = self.collection(planned)
        return {"bits": planned.encoding.bits, **protocol.parameters}

    def planned(self, name: str) -> PlannedSum:
        return next(planned for planned in self.sums if planned.name == name)

    def protocol(self, planned: PlannedSum, turn: int = 0, roster: Roster | None = None) -> Protocol:
        """The summation protocol of the study, for one of the plan's sums: the turn-th time that it is asked for."""
        name = f"{planned.name}/{turn}" if turn else planned.name
        session = _session(self.study, self.trust, name, planned.length, planned.encoding.bits)
        session = replace(session, schedule=planned.schedule, vote=_vote(planned.length, planned.classes))
        return open_session(self.study, session, roster)

    def preparation(self, planned: PlannedSum, roster: Roster | None = None) -> Protocol:
        """The same protocol for the sum of the parties' common noise, for all turns at once."""
        name, length = f"{planned.name}/common-noise", planned.dimension * planned.count
        session = _session(self.study, self.trust, name, length, planned.encoding.bits)
        return open_session(self.study, session, roster)

    def collection(
        self, planned: PlannedSum, turn: int = 0, only: int | None = None, roster: Roster | None = None
    ) -> Protocol:
        """Messages in the open, private on their own: all parties', or that of one."""
        name = f"{planned.name}/message/{turn}"
        session = _session(self.study, self.trust, name, planned.length, planned.encoding.bits)
        session = session if only is None else replace(session, least_survivors=1)
        return Collection(session, CollectionOptions(), roster)

    def released(self, turnouts: dict[str, list[Turnout]]) -> Guarantee:
        """The guarantee of what was really released, by the parties that were there each time."""
        if self.is_pooled or self.others or not self.guarantee.is_promise:
            return self.guarantee
        mu = compose(planned.released_mu(turnout) for planned in self.sums for turnout in turnouts[planned.name])
        spent = epsilon_of(mu, self.study.privacy.delta - self.slack)
        check_kept(spent, self.guarantee.epsilon)
        return replace(self.guarantee, epsilon=min(self.guarantee.epsilon, spent), mu=mu)

    def weakening(self) -> list[dict[str, float]]:
        """ε if more parties collude than the study allows, and as many vanish as it does.

        From some number on, colluders get around the protocol with a chance above δ (`alone`): then every honest party
        stands alone, with its own share of the noise. Empty where it does not matter how many collude.
        """
        if not self.is_summed:
            return []
        fewest = self.trust.least_survivors - self.trust.withheld
        counts = np.unique(np.linspace(self.trust.colluding, fewest - 1, 9).astype(int)).tolist()
        protocol = _agreed_protocol(self.study, self.trust, self.sums)
        return [self._weakened(protocol, count) for count in counts]

    def _weakened(self, protocol: Protocol, colluding: int) -> dict[str, float]:
        delta, known = self.study.privacy.delta - self.slack, max(colluding, self.trust.known)
        opening, planned_for = protocol.openable(colluding), protocol.openable(self.trust.colluding)
        more = sum(planned.sessions for planned in self.sums) * (opening.exposure - planned_for.exposure)
        alone = opening.alone or more >= delta
        delta -= 0.0 if alone else more
        hidden = [
            planned.noise.hidden_alone() if alone else planned.noise.weakened(opening.parties, known)
            for planned in self.sums
        ]
        return {"colluding": colluding, "epsilon": self._epsilon_if(hidden, delta, known), "alone": alone}

    def _epsilon_if(self, hidden: Sequence[float], delta: float, known: int) -> float:
        """ε at δ if these variances are hidden from an adversary who knows the noise of `known` parties."""
        mus = [
            planned.sensitivity * planned.encoding.scale / math.sqrt(variance)
            for planned, variance in zip(self.sums, hidden, strict=True)
            for _ in range(planned.count)
        ]
        return epsilon_of(compose(mus), delta)

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
                    "total_noise_std": planned.total_std(self.asked),
                }
                for planned in self.sums
            ]
            + [
                {
                    "name": other.name,
                    "sensitivity": other.sensitivity,
                    "noise_std": other.noise_std,
                    "count": 1,
                    "dimension": other.dimension,
                    "noise": other.noise,
                }
                for other in self.others
            ],
            "rounds": self.rounds,
            "upload_bytes": self.upload_bytes,
            "summation": self.study.summation.protocol if self.is_summed else None,
            "summation_parameters": self.summation_parameters,
            "parties": self.trust.parties,
            "notes": list(self.notes),
        }


def trust_of(study: Study) -> Trust:
    """Whom the study's promise holds against."""
    return Trust(study.parties.count, study.colluding, study.dropouts, study.privacy.enclaves)


def make_plan(
    study: Study, method: str, declared: list[DeclaredSum], notes: tuple[str, ...] = (), mu: float | None = None
) -> Plan:
    """Size the noise of the declared sums so that together they keep the study's promise, or are worth the given μ."""
    _check_adjacency(study, method)
    setting = setting_of(study, declared)
    trust, slack, delta = setting.trust, setting.slack, study.privacy.delta
    if slack >= delta:
        raise study.error(
            "privacy.delta",
            f"is {delta:g}, but the summation and the drawing of noise already cost {slack:.1g}; choose a larger "
            'delta, or protocol = "secagg"',
        )
    if mu is None:
        epsilon = min(study.epsilon, integer.LARGEST_EPSILON)
        mu = mu_for(epsilon, delta - slack)
    else:
        epsilon = epsilon_of(mu, delta - slack)
    mu_whole = mu / math.sqrt(sum(release.share * release.count for release in declared))
    sums = tuple(
        plan_sum(study, trust, release, mu_whole * math.sqrt(release.share), setting.opens_noise)
        for release in declared
    )
    mu = compose(planned.mu for planned in sums for _ in range(planned.count))
    spent = epsilon_of(mu, delta - slack)
    check_kept(spent, epsilon)
    guarantee = Guarantee(
        epsilon=min(epsilon, spent),
        delta=delta,
        group=study.group,
        trust=trust,
        mu=mu,
        assumptions=setting.assumptions,
        seen=seen_of(declared),
        slack=slack,
    )
    plan = Plan(study, method, sums, guarantee, slack, notes)
    return replace(plan, notes=notes + setting.notes + cautions(plan))


def check_kept(spent: float, promised: float) -> None:
    """Noise that is too small for what was promised is our own mistake: it must not be hidden by the smaller number."""
    if spent > promised * (1.0 + 1e-6):
        raise RuntimeError(f"The noise keeps epsilon = {spent:g} only, where {promised:g} was promised.")


def _check_adjacency(study: Study, method: str) -> None:
    if study.privacy.adjacency != "replace":
        raise study.error(
            "privacy.adjacency", f'is "add-remove", but "{method}" promises for replaced records; use "replace"'
        )


def seen_of(declared: Sequence[DeclaredSum]) -> str:
    """What becomes public."""
    openly = any(release.noise in ("correlated", "independent", "inside") for release in declared)
    return "the result and every message" if openly else "the result"


CURATOR = ("one curator, whom everyone trusts, sees all records and forgets them",)
ENCLAVES = ("the noise is drawn in trusted execution environments that nobody breaks into",)


@dataclass(frozen=True)
class Setting:
    """What sums rest on: whom they hold against, what that assumes, and what it costs in δ."""

    trust: Trust
    """With as few parties in a total as the protocol can be brought to open"""
    assumptions: tuple[str, ...]
    slack: float
    """What the protocol's dice and the drawing of noise cost in δ"""
    opens_noise: bool = False
    notes: tuple[str, ...] = ()


def setting_of(study: Study, declared: Sequence[DeclaredSum]) -> Setting:
    """Ask the study's protocol for the smallest total that can open; refuse if no honest party is in it."""
    trust = trust_of(study)
    epsilon = min(study.privacy.epsilon or integer.LARGEST_EPSILON, integer.LARGEST_EPSILON)
    drawing = integer.slack(epsilon, _samples(study, declared))
    if not (sessions := sum(release.sessions for release in declared)):
        return Setting(trust, CURATOR if declared[0].noise == "curator" else (), drawing)
    protocol = _agreed_protocol(study, trust, declared)
    opening = protocol.openable(trust.colluding)
    if trust.honest_survivors < 1:
        raise study.error(
            "privacy",
            f"leaves no honest party: of {trust.parties} parties, {trust.known} may know their own noise and "
            f"{trust.dropouts} may drop out; lower colluding or dropouts, or have more parties",
        )
    if (trust := replace(trust, withheld=trust.least_survivors - opening.parties)).honest_survivors < 1:
        raise study.error(
            "summation",
            f"leaves no honest party: where {trust.dropouts} of {trust.parties} parties may drop out, a lying "
            f"coordinator may leave out {trust.withheld} more, since helpers do not see all parties; let each party "
            "use all nodes (leave per_party out), or lower dropouts",
        )
    assumptions = protocol.assumptions + (ENCLAVES if trust.enclaves else ())
    slack = sessions * opening.exposure + drawing
    return Setting(trust, assumptions, slack, protocol.opens_noise, protocol.notes)


def _agreed_protocol(study: Study, trust: Trust, sums: Sequence[DeclaredSum] | Sequence[PlannedSum]) -> Protocol:
    """The study's protocol, to be asked what it can open. It may count votes if nothing else is to be added up."""
    classes = {planned.classes for planned in sums}
    common = classes.pop() if len(classes) == 1 else None
    session = _session(study, trust, "plan", common or 1, 64)
    return open_session(study, replace(session, vote=_vote(session.length, common)))


def curator_plan(
    study: Study, method: str, release: OtherRelease, slack: float, assumptions: tuple[str, ...] = ()
) -> Plan:
    """The plan of a baseline that is ε-private by noise of its own, in the hands of a trusted curator."""
    _check_adjacency(study, method)
    trust = trust_of(study)
    guarantee = Guarantee(study.epsilon, slack, study.group, trust, None, CURATOR + assumptions)
    plan = Plan(study, method, (), guarantee, slack, (), (release,))
    return replace(plan, notes=cautions(plan))


def plan_sum(study: Study, trust: Trust, release: DeclaredSum, mu: float, opens_noise: bool) -> PlannedSum:
    """Encoding and noise of one sum: 32-bit words if they are fine enough, else 64-bit ones."""
    counts = float(trust.parties * study.parties.max_records) if release.exact else 0.0
    # Each of the parties that a neighbour differs at rounds for itself; a curator adds up all records, and rounds once.
    rounded, summed = min(study.group or 1, trust.parties), study.parties.max_records
    if release.noise == "curator":
        rounded, summed = 1, min(trust.parties * study.parties.max_records, MOST_POOLED)
    norm_bound = release.bound * summed / study.parties.max_records
    inexact = rounded * inexactness(summed, release.rows) * norm_bound
    release = replace(release, sensitivity=release.sensitivity + inexact)
    for bits, coarsest in ((32, _COARSEST), (64, _FINENESS)):
        fineness = _FINENESS
        while fineness >= coarsest:
            planned = _with_fineness(trust, release, mu, opens_noise, fineness, bits, rounded=rounded)
            if max(_largest_total(trust, planned, release.most), counts) < 2.0 ** (bits - 1):
                return planned
            fineness /= 2.0
    raise study.error("parties.max_records", f"is {study.parties.max_records}, too many for 64-bit totals; lower it")


def _with_fineness(
    trust: Trust, release: DeclaredSum, mu: float, opens_noise: bool, fineness: float, bits: int, *, rounded: int
) -> PlannedSum:
    """The noise of a sum whose sensitivity is at least `fineness` times what rounding at `rounded` parties adds."""
    rounding = rounded * Encoding.rounding(release.dimension)
    honest = math.sqrt(max(trust.honest_survivors, 1))
    units_per_one = max(fineness * rounding, integer.LEAST_SHARE * honest * mu) / release.sensitivity
    scale = 2.0 ** math.ceil(math.log2(units_per_one))
    units = release.sensitivity * scale + rounding
    hidden = (units / mu) ** 2
    noise: Mechanism
    match release.noise:
        case "shares":
            noise = Shares.plan(trust, hidden, integer.LEAST_SHARE**2 if opens_noise else math.inf)
        case "correlated":
            noise = Correlated.plan(trust, hidden, release.ratio)
        case "independent":
            noise = Independent.plan(trust, hidden)
        case "curator":
            noise = Curator.plan(hidden)
        case "inside":
            noise = Inside.plan(hidden)
    return PlannedSum(
        name=release.name,
        dimension=release.dimension,
        exact=release.exact,
        encoding=Encoding(scale, bits, release.bound),
        noise=noise,
        sensitivity=units / scale,
        noise_std=math.sqrt(hidden) / scale,
        count=release.count,
        sessions=release.sessions,
        classes=release.classes,
    )


def _largest_total(trust: Trust, planned: PlannedSum, most: float | None) -> float:
    """What no coordinate of a total exceeds, in units, except with probability 2⁻¹⁴⁰ each; or with that of `most`.

    A total that does is wrong, but as private as any.
    """
    encoding = planned.encoding
    largest = trust.parties * encoding.bound if most is None else most
    roundings = trust.parties * encoding.rounding(planned.dimension)
    return largest * encoding.scale + roundings + _TAIL * math.sqrt(planned.noise.largest)


def _session(study: Study, trust: Trust, name: str, length: int, bits: int) -> Session:
    return Session(study.digest(), name, trust.parties, trust.colluding, trust.least_survivors, length, bits)


def _vote(length: int, classes: int | None) -> VoteShape | None:
    """The vote that ballots of this length decide, if they are ballots."""
    return None if classes is None else VoteShape(length // classes, classes)


def _samples(study: Study, sums: Sequence[DeclaredSum]) -> int:
    """How many numbers all parties draw, in all components of their noise."""
    return sum(release.dimension * release.count for release in sums) * study.parties.count * (COMPONENTS + 1)


def cautions(plan: Plan) -> tuple[str, ...]:
    """What a careful reader of the promise should be told."""
    study, cautions = plan.study, []
    records = study.parties.count * study.parties.records
    if plan.guarantee.delta > 1.0 / records:
        cautions.append(
            f"delta = {plan.guarantee.delta:g} is above 1/{records:,} (one over the number of records): it would allow "
            "revealing a record outright now and then; choose it well below"
        )
    epsilon = plan.guarantee.epsilon if study.privacy.epsilon is None else study.privacy.epsilon
    if epsilon > 10.0 and plan.guarantee.is_promise:
        cautions.append(f"epsilon = {epsilon:g} promises little; values up to about 3 are called strong")
    if epsilon > integer.LARGEST_EPSILON and plan.sums and study.privacy.epsilon is None:
        cautions.append(
            f"above epsilon = {integer.LARGEST_EPSILON:g} it is not proven what drawing whole numbers costs: this one "
            "is that of continuous noise"
        )
    elif epsilon > integer.LARGEST_EPSILON and plan.sums:
        cautions.append(f"epsilon is taken as {integer.LARGEST_EPSILON:g}, the largest that is planned for")
    if plan.is_pooled:
        cautions.append("this method needs all records in one place: it is a baseline for simulations")
    elif plan.is_summed and protocol_of(study).reveals_contributions:
        name = study.summation.protocol
        cautions.append(f'summation "{name}" is for simulation only: the coordinator sees every contribution')
    return tuple(cautions)
