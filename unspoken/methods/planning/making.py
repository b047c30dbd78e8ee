"""Makes a plan from the sums that a method declares: sizes the noise, chooses the encoding, states the guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real

from unspoken.arithmetic import MOST_POOLED, floating_point_slack
from unspoken.methods.planning.budget import budget, epsilon_for, setups_for, trust_of
from unspoken.methods.planning.expectation import doubts
from unspoken.methods.planning.plan import Plan, agreed_protocol
from unspoken.methods.planning.scales import scales
from unspoken.methods.planning.sums import DeclaredSum, OtherRelease, PlannedSum, contributions_apart, drawn_by
from unspoken.noise.encoding import Encoding
from unspoken.privacy import integer
from unspoken.privacy.accounting import Terms, epsilon_of, guarantee_of
from unspoken.privacy.events import Adjacency, Spend
from unspoken.privacy.guarantee import Trust
from unspoken.privacy.subsampled import least_delta, noise_multiplier_for
from unspoken.study import Study
from unspoken.summation.remedies import one_of, remedies

_FINENESS = 1024.0
"""The sensitivity is at least this many times the error that rounding may add to it …"""
_COARSEST = 128.0
"""… or this many times, if a 32-bit word then suffices: half the upload for less than 1 % more noise."""
_TAIL = 14.0
"""A sum of noise beyond this many standard deviations has probability below 2⁻¹⁴⁰."""
_MORE_NOISE = 1.001
"""The factor on noise that does not keep the promise yet"""

_LONGER = 1.01
"""A norm may be this many times the longest record's, as people round"""

_ENCLAVED_BATCHES = ("a party does not know either which of its own records are in a batch",)


def _enclaves(trust: Trust) -> tuple[str, ...]:
    """What the promise assumes of trusted execution environments, if the study has them. Those of colluding parties are
    taken to be broken into, so that their shares of the noise are known."""
    broken = (
        f", of which none but {trust.colluding:,} are broken into" if trust.colluding else " that nobody breaks into"
    )
    return (f"the noise is drawn in trusted execution environments{broken}",) if trust.enclaves else ()


def make_plan(
    study: Study,
    method: str,
    declared: Sequence[DeclaredSum],
    notes: tuple[str, ...] = (),
    mu: float | None = None,
    assumptions: tuple[str, ...] = (),
) -> Plan:
    """The plan of the declared sums: together they keep the study's promise, or have the given μ.

    Every attempt at a sum in which vectors left may have opened a total, under noise of its own, whether the
    coordinator says so or not. So each attempt counts as a release. The records of a protected unit may lie at several
    parties, some of them in one attempt and some in another. This costs no more: with a attempts each, by Minkowski's
    inequality, the changes of all totals together have an L2 norm of at most √a times the sum of what the parties can
    change.

    A sum over sampled records is the only one of its plan.
    """
    _check_declared(method, declared)
    if declared[0].sampling is not None:
        (each,) = declared
        return _make_sampled_plan(study, method, each, notes, assumptions)
    setting = setting_of(study, declared)
    setting = replace(setting, assumptions=setting.assumptions + assumptions, adjacency=declared[0].adjacency)
    left = left_of_delta(study, setting.slack, 'a larger delta, or protocol = "secagg"')
    epsilon = None if mu is not None or study.privacy.epsilon is None else epsilon_for(study)
    of_attempt = budget(study, left, setting.attempts) if mu is None else mu / math.sqrt(setting.attempts)
    mu_whole = of_attempt / math.sqrt(sum(each.share * each.count for each in declared))
    sums = tuple(plan_sum(study, setting, each, mu_whole * math.sqrt(each.share)) for each in declared)
    return state_plan(study, method, setting, sums, epsilon=epsilon, notes=notes)


def _check_declared(method: str, declared: Sequence[DeclaredSum]) -> None:
    """Refuse sums whose noise would not be what is stated: a mistake of the method's author."""
    names = [each.name for each in declared]
    if not names or len(set(names)) < len(names):
        raise ValueError(f'Expected "{method}" to declare one or more sums of different names, got {names}.')
    if len(names) > 1 and any(each.sampling for each in declared):
        raise ValueError(f'Expected "{method}" to declare a sum over sampled records by itself, got {names}.')
    if len({each.adjacency for each in declared}) > 1:
        raise ValueError(f'Expected "{method}" to declare sums for the same neighbours.')
    for each in declared:
        for key in ("dimension", "count"):
            if not isinstance(value := getattr(each, key), Integral) or value < 1:
                raise ValueError(f'Expected {key} of the sum "{each.name}" to be a whole number from 1, got {value!r}.')
        for key in ("bound", "sensitivity", "share"):
            if not isinstance(value := getattr(each, key), Real) or not 0.0 < float(value) < math.inf:
                raise ValueError(f'Expected {key} of the sum "{each.name}" to be a number above 0, got {value!r}.')
        if not isinstance(each.exact, tuple):
            raise TypeError(f'Expected exact of the sum "{each.name}" to be a tuple of names, got {each.exact!r}.')


def _make_sampled_plan(
    study: Study, method: str, declared: DeclaredSum, notes: tuple[str, ...], assumptions: tuple[str, ...]
) -> Plan:
    """The plan of a sum over sampled records: the noise for the study's ε, or the ε of the study's noise."""
    adjacency, sampling = study.privacy.adjacency, declared.sampling
    if sampling is None:
        raise ValueError("Expected a sum over sampled records.")
    if sampling.kind != "poisson" and adjacency != "replace":
        raise study.error("privacy.adjacency", 'is "add-remove", but batches of fixed size protect replaced records')
    setting = setting_of(study, [declared])
    enclaved_batches = setting.trust.enclaves and sampling.tokens
    setting = replace(
        setting,
        slack=setting.slack + sampling.slack,
        assumptions=setting.assumptions + (_ENCLAVED_BATCHES if enclaved_batches else ()) + assumptions,
        adjacency=declared.adjacency,
    )
    left = left_of_delta(study, setting.slack, "a larger delta")
    noise, rounds = study.privacy.noise_multiplier, declared.count * setting.attempts * sampling.steps
    if left < (least := least_delta(rounds)):
        raise study.error(
            "privacy.delta",
            f"is {study.privacy.delta:g}, too small for {rounds:,} rounds on sampled records, whose cost is computed "
            f"numerically; choose {2.0 * (least + setting.slack):.1g} or more",
        )
    if noise is not None:
        planned = plan_sum(study, setting, declared, 1.0 / noise)
        return state_plan(study, method, setting, (planned,), notes=notes)
    epsilon = epsilon_for(study)
    noise = noise_multiplier_for(epsilon, left, sampling.rate, rounds, adjacency, sampling.kind)
    planned = plan_sum(study, setting, declared, 1.0 / noise)
    # The noise comes from the coarse accounting. For a tiny δ, cut-off tails may bring the fine one above it.
    while epsilon_of(_spend_of(study, setting, (planned,)), study.privacy.delta) > epsilon:
        noise *= _MORE_NOISE
        planned = plan_sum(study, setting, declared, 1.0 / noise)
    return state_plan(study, method, setting, (planned,), epsilon=epsilon, notes=notes)


def state_plan(
    study: Study,
    method: str,
    setting: Setting,
    sums: tuple[PlannedSum, ...] = (),
    others: tuple[OtherRelease, ...] = (),
    *,
    epsilon: float | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    """The plan of sized sums and other releases, with the guarantee that follows from their noise. All plans are made
    here.

    Methods that declare sums call `make_plan`, which calls this. A method whose noise is not in a sum (a curator's, a
    trainer's, none) calls it directly and lists its releases. With `epsilon`, the guarantee states at most that.
    """
    spend = _spend_of(study, setting, sums, others)
    seen = "the result and every message" if any(planned.noise.in_the_open for planned in sums) else "the result"
    terms = Terms(study.privacy.delta, setting.trust, setting.assumptions, seen, setting.attempts)
    guarantee = guarantee_of(spend, terms, epsilon)
    if guarantee.is_promise and guarantee.adjacency != study.privacy.adjacency:
        proven = guarantee.adjacency
        units = "replaced records" if proven == "replace" else "records that are left out or put in"
        problem = f'is "{study.privacy.adjacency}", but "{method}" promises for {units}; use "{proven}"'
        raise study.error("privacy.adjacency", problem)
    plan = Plan(study, method, sums, guarantee, setting.slack, (), others)
    return with_doubts(replace(plan, notes=notes + setting.notes + cautions(plan)), doubts(plan))


def with_doubts(plan: Plan, found: Iterable[str]) -> Plan:
    """The plan with notes that say, before anything is spent, why little or nothing may be learnt."""
    told = tuple(found)
    return replace(plan, notes=plan.notes + told, doubts=plan.doubts + told)


def _spend_of(
    study: Study, setting: Setting, sums: tuple[PlannedSum, ...], others: tuple[OtherRelease, ...] = ()
) -> Spend:
    """The cost of sized sums and other releases."""
    counted = [planned.event(planned.releases, planned.noise_std) for planned in sums if planned.noise.counted]
    return Spend(
        (*counted, *(other.event for other in others)),
        study.group,
        setting.adjacency,
        setting.slack,
    )


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


@dataclass(frozen=True)
class Setting:
    """The conditions of a plan's sums: the adversaries, the assumptions, and their cost in δ."""

    trust: Trust
    """The adversaries, with as few parties in a total as they can bring the protocol to open"""
    assumptions: tuple[str, ...] = ()
    slack: float = 0.0
    """The cost in δ of the protocol's random choices and the drawing of noise"""
    opens_noise: bool = False
    notes: tuple[str, ...] = ()
    attempts: int = 1
    """The number of times that a party may send its vector for one sum"""
    adjacency: Adjacency = "replace"
    """The neighbours that the sensitivities are for"""


def setting_of(study: Study, declared: Sequence[DeclaredSum]) -> Setting:
    """Ask the study's protocol for the smallest total that can open; refuse if no honest party is in it."""
    trust = trust_of(study)
    epsilon = min(study.privacy.epsilon or integer.LARGEST_PLANNED_EPSILON, integer.LARGEST_PLANNED_EPSILON)
    # Records that are pooled come once.
    attempts = 1 if declared[0].noise.pooled else study.privacy.attempts
    numbers = attempts * sum(each.noisy_numbers for each in declared)
    drawing = integer.slack(epsilon, drawn_by(study.parties.count, numbers))
    if not (sessions := sum(each.noise.secure_sums(each.count) for each in declared)):
        # A message that is private on its own tells a lying coordinator no more than an honest one.
        trust = replace(trust, lying=declared[0].noise.in_the_open)
        return Setting(trust, declared[0].noise.assumptions, drawing, attempts=attempts)
    protocol = agreed_protocol(study, trust, declared)
    _check_helpers(study, len(protocol.helper_addresses))
    opening = protocol.openable(trust.colluding)
    if trust.honest_survivors < 1:
        raise study.error(
            "privacy",
            f"leaves no honest party: of {trust.parties} parties, {trust.known} may know their own noise and "
            f"{trust.dropouts} may drop out; {_ways_out(trust)}",
        )
    withheld = trust.least_survivors - opening.parties
    if (trust := replace(trust, withheld=withheld, lying=protocol.withstands_lies)).honest_survivors < 1:
        raise study.error(
            "summation",
            f"leaves no honest party: where {trust.dropouts} of {trust.parties} parties may drop out, a lying "
            f"coordinator may leave out {trust.withheld} more unseen; lower colluding or dropouts, or have "
            "more parties",
        )
    assumptions = protocol.assumptions + _enclaves(trust)
    slack = setups_for(sessions, attempts) * opening.exposure + drawing
    return Setting(trust, assumptions, slack, protocol.opens_noise, protocol.notes, attempts)


def _ways_out(trust: Trust) -> str:
    """The numbers that would leave an honest party, and another to mask with."""

    def fits(parties: int, colluding: int, dropouts: int) -> bool:
        changed = replace(trust, parties=parties, colluding=colluding, dropouts=dropouts)
        return changed.honest_survivors >= 1 and changed.least_survivors >= 2

    return one_of(remedies(trust.parties, trust.colluding, trust.dropouts, fits))


def _check_helpers(study: Study, helpers: int) -> None:
    """Refuse a roster that does not have a key for each of the protocol's helpers, and no other."""
    if study.roster is None or len(study.roster.helpers) == helpers:
        return
    has = {0: "no helpers", 1: "1 helper"}.get(helpers, f"{helpers} helpers")
    listed = len(study.roster.helpers)
    keys = "1 key" if listed == 1 else f"{listed} keys"
    problem = f'has {keys}, but "{study.summation.protocol}" has {has} here; list the key of each, in their order'
    raise study.error("roster.helpers", problem if helpers else problem.partition(";")[0] + "; remove it")


def plan_sum(study: Study, setting: Setting, declared: DeclaredSum, mu: float) -> PlannedSum:
    """Encoding and noise of one sum: 32-bit words if they are fine enough, else 64-bit ones.

    `mu` is that of a total; with sampling, one over the noise multiplier.
    """
    trust = setting.trust
    counts = float(trust.parties * study.parties.max_records) if declared.exact else 0.0
    # Each of the parties that a neighbour differs at rounds for itself; a curator adds up all records, and rounds once.
    rounded, summed = min(study.group or 1, trust.parties), study.parties.max_records
    if declared.noise.pooled:
        rounded, summed = 1, min(trust.parties * study.parties.max_records, MOST_POOLED)
    norm_bound = declared.bound * summed / study.parties.max_records
    inexact = rounded * floating_point_slack(summed, declared.rows) * norm_bound
    apart = contributions_apart(declared.adjacency) if declared.sampling else 1
    declared = replace(declared, sensitivity=declared.sensitivity + apart * inexact)
    for bits, coarsest in ((32, _COARSEST), (64, _FINENESS)):
        fineness = _FINENESS
        while fineness >= coarsest:
            planned = _with_fineness(setting, declared, mu, fineness, bits, rounded, apart)
            if max(_largest_total(trust, planned, declared.most), counts) < 2.0 ** (bits - 1):
                return planned
            fineness /= 2.0
    raise study.error("parties.max_records", f"is {study.parties.max_records}, too many for 64-bit totals; lower it")


def _with_fineness(
    setting: Setting, declared: DeclaredSum, mu: float, fineness: float, bits: int, rounded: int, apart: int
) -> PlannedSum:
    """The sum in units in which a contribution is at least `fineness` times what `rounded` parties' rounding adds.

    Neighbours are `apart` contributions from each other.
    """
    contribution = declared.sensitivity / apart
    rounding = rounded * Encoding.rounding(declared.dimension)
    honest = math.sqrt(max(setting.trust.honest_survivors, 1))
    units_per_one = max(fineness * rounding, integer.LEAST_SHARE * honest * mu) / contribution
    scale = 2.0 ** math.ceil(math.log2(units_per_one))
    units = contribution * scale + rounding
    variance = (units / mu) ** 2
    noise = declared.noise.sized(setting.trust, variance, setting.opens_noise)
    return PlannedSum(
        name=declared.name,
        dimension=declared.dimension,
        exact=declared.exact,
        encoding=Encoding(scale, bits, declared.bound),
        noise=noise,
        sensitivity=apart * units / scale,
        contribution=units / scale,
        noise_std=math.sqrt(variance) / scale,
        count=declared.count,
        attempts=setting.attempts,
        sampling=declared.sampling,
        classes=declared.classes,
        longest=declared.longest,
    )


def _largest_total(trust: Trust, planned: PlannedSum, most: float | None) -> float:
    """A bound on every coordinate of the total, in units; exceeded with probability at most 2⁻¹⁴⁰, or that of `most`.

    A total that exceeds it is wrong, but as private as any.
    """
    encoding = planned.encoding
    largest = trust.parties * encoding.bound if most is None else most
    roundings = trust.parties * encoding.rounding(planned.dimension)
    return largest * encoding.scale + roundings + _TAIL * math.sqrt(planned.noise.largest)


def caution_on_delta(plan: Plan) -> list[str]:
    """A note, if delta is so large that the promise would allow to reveal somebody."""
    study = plan.study
    unit, units, number = "record", "records", study.parties.count * study.parties.records
    if study.group is None:
        unit, units, number = "party", "parties", study.parties.count
    if plan.guarantee.delta <= 1.0 / number:
        return []
    return [
        f"delta = {plan.guarantee.delta:g} is above 1/{number:,} (one over the number of {units}): it would allow "
        f"revealing a {unit} outright now and then; choose it well below"
    ]


def _caution_on_norm(plan: Plan) -> list[str]:
    """A note, if the noise is for records that are longer than a table's bounds allow.

    Where public records map the others, the map brings them to the norm, whatever it is.
    """
    study, data = plan.study, plan.study.data
    if not (data.is_table and plan.guarantee.is_promise and study.described.needs_norm(study)):
        return []
    if data.public is not None and study.described.learns_directions(study):
        return []
    if data.norm <= _LONGER * data.largest_norm:
        return []
    return [
        f"norm = {data.norm:g} is {data.norm / data.largest_norm:.2g} times {data.largest_norm:.3g}, the longest that "
        "records with these columns can be, and noise grows with the norm; leave it out, or lower it"
    ]


def cautions(plan: Plan) -> tuple[str, ...]:
    """Notes on a plan whose promise is weaker, or a run less realistic or accurate, than a reader may think."""
    study, cautions = plan.study, caution_on_delta(plan) + _caution_on_norm(plan)
    epsilon = plan.guarantee.epsilon if study.privacy.epsilon is None else study.privacy.epsilon
    if epsilon > 10.0 and plan.guarantee.is_promise:
        cautions.append(f"epsilon = {epsilon:g} promises little; values up to about 3 are called strong")
    if epsilon > integer.LARGEST_PLANNED_EPSILON and plan.sums and study.privacy.epsilon is None:
        cautions.append(
            f"above epsilon = {integer.LARGEST_PLANNED_EPSILON:g} the cost of drawing integers is not proven: the "
            "stated one is that of continuous noise"
        )
    elif epsilon > integer.LARGEST_PLANNED_EPSILON and plan.sums:
        cautions.append(f"epsilon is taken as {integer.LARGEST_PLANNED_EPSILON:g}, the largest that is planned for")
    drowned = [f'"{scale.release}"' for scale in scales(plan) if scale.drowns]
    if drowned and study.task == "statistics":
        cautions.append(
            f"if parties have no more than {study.parties.records:,} records each, as [parties] records allows, the "
            f"noise in {' and '.join(drowned)} outweighs all that they could say together; raise epsilon, or have more "
            "records or parties"
        )
    if plan.is_pooled:
        cautions.append("this method needs all records in one place: it is a baseline for simulations")
    elif plan.adds_in_the_clear:
        name = study.summation.protocol
        cautions.append(f'summation "{name}" is for simulation only: the coordinator sees every contribution')
    return tuple(cautions)
