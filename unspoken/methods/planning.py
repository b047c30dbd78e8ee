"""Makes plans of what methods declare: sizes the noise, chooses the encoding, and states the guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unspoken.arithmetic import MOST_POOLED, floating_point_slack
from unspoken.methods.mechanisms import CURATOR
from unspoken.methods.plan import DeclaredSum, OtherRelease, Plan, PlannedSum, agreed_protocol
from unspoken.noise.encoding import Encoding
from unspoken.noise.schedule import COMPONENTS
from unspoken.privacy import integer
from unspoken.privacy.accounting import Terms, guarantee_of
from unspoken.privacy.events import Spend, Unprotected
from unspoken.privacy.gaussian import mu_for
from unspoken.privacy.guarantee import Trust
from unspoken.privacy.subsampled import noise_multiplier_for
from unspoken.study import Study
from unspoken.summation.registry import protocol_of

_FINENESS = 1024.0
"""The sensitivity is at least this many times the error that rounding may add to it …"""
_COARSEST = 128.0
"""… or this many times, if a 32-bit word then suffices: half the upload for less than 1 % more noise."""
_TAIL = 14.0
"""A sum of noise beyond this many standard deviations has probability below 2⁻¹⁴⁰."""

ENCLAVES = ("the noise is drawn in trusted execution environments that nobody breaks into",)
_ENCLAVED_BATCHES = ("a party does not know either which of its own records are in a batch",)


def trust_of(study: Study) -> Trust:
    """The adversaries that the study's promise holds against."""
    return Trust(study.parties.count, study.colluding, study.dropouts, study.privacy.enclaves)


def make_plan(
    study: Study,
    method: str,
    declared: Sequence[DeclaredSum],
    notes: tuple[str, ...] = (),
    mu: float | None = None,
    assumptions: tuple[str, ...] = (),
) -> Plan:
    """Size the noise of the declared sums so that together they keep the study's promise, or are worth the given μ.

    A sum over sampled records is the only one of its plan.
    """
    if declared[0].sampling is not None:
        (release,) = declared
        return _make_sampled_plan(study, method, release, notes, assumptions)
    _check_adjacency(study, method)
    setting = setting_of(study, declared)
    setting = replace(setting, assumptions=setting.assumptions + assumptions)
    left = left_of_delta(study, setting.slack, 'a larger delta, or protocol = "secagg"')
    epsilon = None
    if mu is None:
        epsilon = min(study.epsilon, integer.LARGEST_EPSILON)
        mu = mu_for(epsilon, left)
    mu_whole = mu / math.sqrt(sum(release.share * release.count for release in declared))
    sums = tuple(plan_sum(study, setting, release, mu_whole * math.sqrt(release.share)) for release in declared)
    return _promised(study, method, sums, setting, epsilon, notes)


def _make_sampled_plan(
    study: Study, method: str, declared: DeclaredSum, notes: tuple[str, ...], assumptions: tuple[str, ...]
) -> Plan:
    """Noise for a wanted ε, or the ε of a wanted noise, where each round sees a random part of the records."""
    adjacency, sampling = study.privacy.adjacency, declared.sampling
    if sampling is None:
        raise ValueError("Expected a sum over sampled records.")
    if sampling.kind == "without-replacement" and adjacency != "replace":
        raise study.error("privacy.adjacency", 'is "add-remove", but batches of fixed size protect replaced records')
    setting = setting_of(study, [declared])
    hidden_batches = setting.trust.enclaves and sampling.kind == "without-replacement"
    setting = replace(
        setting,
        slack=setting.slack + sampling.slack,
        assumptions=setting.assumptions + (_ENCLAVED_BATCHES if hidden_batches else ()) + assumptions,
    )
    left = left_of_delta(study, setting.slack, "a larger delta")
    noise, rounds = study.privacy.noise_multiplier, declared.count * sampling.steps
    if noise is None:
        epsilon = min(study.epsilon, integer.LARGEST_EPSILON)
        noise = noise_multiplier_for(epsilon, left, sampling.rate, rounds, adjacency, sampling.kind)
    planned = plan_sum(study, setting, declared, 1.0 / noise)
    return _promised(study, method, (planned,), setting, study.privacy.epsilon, notes)


def _promised(
    study: Study,
    method: str,
    sums: tuple[PlannedSum, ...],
    setting: Setting,
    epsilon: float | None,
    notes: tuple[str, ...],
) -> Plan:
    """The plan of sized sums, with the guarantee that their noise keeps."""
    sampled = any(planned.sampling for planned in sums)
    spend = Spend(
        tuple(planned.event(planned.count, planned.noise_std) for planned in sums if planned.noise.counted),
        study.group,
        study.privacy.adjacency if sampled else "replace",
        setting.slack,
    )
    seen = "the result and every message" if any(planned.noise.in_the_open for planned in sums) else "the result"
    terms = Terms(study.privacy.delta, setting.trust, setting.assumptions, seen)
    plan = Plan(study, method, sums, guarantee_of(spend, terms, epsilon), setting.slack)
    return replace(plan, notes=notes + setting.notes + cautions(plan))


def curator_plan(
    study: Study, method: str, release: OtherRelease, slack: float, assumptions: tuple[str, ...] = ()
) -> Plan:
    """The plan of a baseline that is private by noise of its own, in the hands of a trusted curator."""
    _check_adjacency(study, method)
    return release_plan(study, method, (), release, Setting(trust_of(study), CURATOR + assumptions, slack))


def release_plan(
    study: Study,
    method: str,
    sums: tuple[PlannedSum, ...],
    release: OtherRelease,
    setting: Setting,
    notes: tuple[str, ...] = (),
) -> Plan:
    """The plan of a method whose one release is made, with noise of its own, by someone whom all parties trust."""
    spend = Spend((release.event,), study.group, "replace", setting.slack)
    terms = Terms(study.privacy.delta, setting.trust, setting.assumptions)
    guarantee = guarantee_of(spend, terms, study.epsilon)
    plan = Plan(study, method, sums, guarantee, setting.slack, (), (release,))
    return replace(plan, notes=notes + setting.notes + cautions(plan))


def unprotected_plan(study: Study, method: str, sums: tuple[PlannedSum, ...], others: tuple[OtherRelease, ...]) -> Plan:
    """The plan of a method that promises nothing."""
    spend = Spend((Unprotected(),), study.group)
    plan = Plan(study, method, sums, guarantee_of(spend, Terms(0.0, trust_of(study))), 0.0, (), others)
    return replace(plan, notes=cautions(plan))


def left_of_delta(study: Study, slack: float, remedy: str) -> float:
    """The part of δ that is left for the noise itself."""
    delta = study.privacy.delta
    if slack >= delta:
        raise study.error(
            "privacy.delta",
            f"is {delta:g}, but the summation, the drawing of noise and the sampling already cost {slack:.1g}; choose "
            f"{remedy}",
        )
    return delta - slack


def _check_adjacency(study: Study, method: str) -> None:
    if study.privacy.adjacency != "replace":
        raise study.error(
            "privacy.adjacency", f'is "add-remove", but "{method}" promises for replaced records; use "replace"'
        )


@dataclass(frozen=True)
class Setting:
    """The conditions of a plan's sums: the adversaries, the assumptions, and their cost in δ."""

    trust: Trust
    """The adversaries, with as few parties in a total as they can bring the protocol to open"""
    assumptions: tuple[str, ...] = ()
    slack: float = 0.0
    """The cost in δ of the protocol's dice and the drawing of noise"""
    opens_noise: bool = False
    notes: tuple[str, ...] = ()


def setting_of(study: Study, declared: Sequence[DeclaredSum]) -> Setting:
    """Ask the study's protocol for the smallest total that can open; refuse if no honest party is in it."""
    trust = trust_of(study)
    epsilon = min(study.privacy.epsilon or integer.LARGEST_EPSILON, integer.LARGEST_EPSILON)
    drawing = integer.slack(epsilon, _samples(study, declared))
    if not (sessions := sum(release.noise.secure_sums(release.count) for release in declared)):
        return Setting(trust, declared[0].noise.assumptions, drawing)
    protocol = agreed_protocol(study, trust, declared)
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


def plan_sum(study: Study, setting: Setting, release: DeclaredSum, mu: float) -> PlannedSum:
    """Encoding and noise of one sum: 32-bit words if they are fine enough, else 64-bit ones."""
    trust = setting.trust
    counts = float(trust.parties * study.parties.max_records) if release.exact else 0.0
    # Each of the parties that a neighbour differs at rounds for itself; a curator adds up all records, and rounds once.
    rounded, summed = min(study.group or 1, trust.parties), study.parties.max_records
    if release.noise.pooled:
        rounded, summed = 1, min(trust.parties * study.parties.max_records, MOST_POOLED)
    norm_bound = release.bound * summed / study.parties.max_records
    inexact = rounded * floating_point_slack(summed, release.rows) * norm_bound
    release = replace(release, sensitivity=release.sensitivity + inexact)
    for bits, coarsest in ((32, _COARSEST), (64, _FINENESS)):
        fineness = _FINENESS
        while fineness >= coarsest:
            planned = _with_fineness(setting, release, mu, fineness, bits, rounded)
            if max(_largest_total(trust, planned, release.most), counts) < 2.0 ** (bits - 1):
                return planned
            fineness /= 2.0
    raise study.error("parties.max_records", f"is {study.parties.max_records}, too many for 64-bit totals; lower it")


def _with_fineness(
    setting: Setting, release: DeclaredSum, mu: float, fineness: float, bits: int, rounded: int
) -> PlannedSum:
    """The noise of a sum whose sensitivity is at least `fineness` times what rounding at `rounded` parties adds."""
    rounding = rounded * Encoding.rounding(release.dimension)
    honest = math.sqrt(max(setting.trust.honest_survivors, 1))
    units_per_one = max(fineness * rounding, integer.LEAST_SHARE * honest * mu) / release.sensitivity
    scale = 2.0 ** math.ceil(math.log2(units_per_one))
    units = release.sensitivity * scale + rounding
    variance = (units / mu) ** 2
    noise = release.noise.sized(setting.trust, variance, setting.opens_noise)
    return PlannedSum(
        name=release.name,
        dimension=release.dimension,
        exact=release.exact,
        encoding=Encoding(scale, bits, release.bound),
        noise=noise,
        sensitivity=units / scale,
        noise_std=math.sqrt(variance) / scale,
        count=release.count,
        sampling=release.sampling,
        classes=release.classes,
    )


def _largest_total(trust: Trust, planned: PlannedSum, most: float | None) -> float:
    """A bound on every coordinate of the total, in units; exceeded with probability at most 2⁻¹⁴⁰, or that of `most`.

    A total that exceeds it is wrong, but as private as any.
    """
    encoding = planned.encoding
    largest = trust.parties * encoding.bound if most is None else most
    roundings = trust.parties * encoding.rounding(planned.dimension)
    return largest * encoding.scale + roundings + _TAIL * math.sqrt(planned.noise.largest)


def _samples(study: Study, sums: Sequence[DeclaredSum]) -> int:
    """The number of samples that all parties draw, in all components of their noise."""
    return sum(release.dimension * release.count for release in sums) * study.parties.count * (COMPONENTS + 1)


def cautions(plan: Plan) -> tuple[str, ...]:
    """Remarks for a careful reader of the promise."""
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
