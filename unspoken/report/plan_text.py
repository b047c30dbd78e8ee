"""A plan in words: rows of a name and a text, for people who must judge it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from unspoken.methods.planning import Plan, PlannedSum
from unspoken.methods.planning.scales import scales
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.guarantee import unit_in_words
from unspoken.study import Study

Row = tuple[str, str]

_MOST_NAMES = 20
"""The number of columns that are named; of more, only how many there are"""
_SEVERAL = (2, 5)
"""The numbers of records of one person that the cost is shown for"""


def plan_rows(plan: Plan) -> Iterator[Row]:
    """The data, the protected unit, the releases and the costs of a plan."""
    yield "study", f"{plan.study.name} (sha256 {plan.study.digest()[:16]}…)"
    computed = plan.study.described.told(plan.study)
    yield "method", f"{plan.method}, which computes: {computed}" if computed else plan.method
    yield "data", data_used(plan.study, _MOST_NAMES)
    if plan.guarantee.is_promise:
        yield "protects", _protected(plan)
    yield "parties", _parties(plan)
    yield from _releases(plan)
    if plan.is_summed:
        chosen = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in plan.summation_parameters.items())
        yield "summation", f"{way(plan)} ({chosen})"
        yield "run by", _operators(plan)
    yield "upload", _upload(plan)
    if plan.guarantee.is_promise:
        yield (
            "spent before",
            "not known here: this is the cost of one run, and other uses of the same records add to it",
        )


def _upload(plan: Plan) -> str:
    if plan.is_pooled:
        return f"at least {size(plan.upload_bytes)} per party: its records"
    rounds = "1 round" if plan.rounds == 1 else f"{plan.rounds} rounds"
    # How much more nobody knows: attempts that end before vectors leave are made again as well.
    more = "" if plan.attempts == 1 else "; more if attempts fail"
    several = plan.party_messages > plan.rounds
    sent = f", {plan.party_messages:,} messages one after the other" if several else ""
    return f"{size(plan.upload_bytes)} per party, in {rounds}{sent}{more}"


def data_used(study: Study, most: int | None = None) -> str:
    """The columns that are used, by their names unless there are more than `most`."""
    data = study.data
    if data.columns is None:
        told = f"{data.features:,} features"
    else:
        read = study.described.columns_read(study)
        told = f"{'the column' if len(read) == 1 else 'the columns'} {', '.join(read)}"
        told = told if most is None or len(read) <= most else f"{len(read):,} columns"
    if study.task == "classification":
        told += f"; the label{f' {data.label}' if data.label else ''}, one of {len(data.class_names):,} classes"
    elif study.task == "regression":
        low, high = data.label_bounds or (0.0, 0.0)
        told += f"; the label{f' {data.label}' if data.label else ''}, from {low:g} to {high:g}"
    return f"{told}; nothing else"


def _protected(plan: Plan) -> str:
    """The unit of the promise, and what it means for somebody with several of them."""
    group = plan.study.group
    one = unit_in_words(group)
    if group is None:
        return f"{one}, and so everybody all of whose records are at one party"
    counts = [group * times for times in _SEVERAL]
    if (mu := plan.guarantee.mu) is None:
        costs = "with k times as many records epsilon is up to k times as large, and delta more than that"
    else:
        left = plan.guarantee.delta - plan.guarantee.slack
        costs = ", ".join(f"epsilon = {_epsilon(mu * count / group, left)} with {count:,}" for count in counts)
    return (
        f"{one}. A person with more is protected less: {costs}. unit = {{ group = k }} promises epsilon for k records"
    )


def _epsilon(mu: float, delta: float) -> str:
    epsilon = epsilon_of(mu, delta)
    return f"{epsilon:.3g}" if math.isfinite(epsilon) else "infinite"


def _parties(plan: Plan) -> str:
    trust = plan.trust
    if plan.is_pooled:
        return f"{trust.parties:,}, whose records are all in one place"
    if trust.parties == 1:
        return "1, which adds all of the noise itself"
    if plan.parties_asked == 1:
        return f"{trust.parties:,}, of which only the first takes part"
    more = f"if {'more' if trust.dropouts else 'any'} do, nothing is released"
    if not plan.is_summed:
        return f"{trust.parties:,}, each for itself; {trust.dropouts:,} may drop out; {more}"
    lost = f"{trust.colluding:,} may collude and {trust.dropouts:,} may drop out"
    if trust.known > trust.colluding:
        lost = f"none collude, but each knows its own noise, and {trust.dropouts:,} may drop out"
    if trust.withheld:
        lost += f", and a lying coordinator could leave out {trust.withheld:,} more"
    left = trust.honest_survivors
    remain = "one that then remains" if left == 1 else f"{left:,} that then remain"
    return f"{trust.parties:,}; {lost}; the noise is sized for the {remain}; {more.replace('do,', 'drop out,')}"


def _releases(plan: Plan) -> Iterator[Row]:
    found = {scale.release: scale.sentence() for scale in scales(plan)}
    for planned in plan.sums:
        yield f"{'message' if plan.others else 'release'} “{planned.name}”", _sum(plan, planned)
        if planned.parts:
            yield "its noise", planned.noise.explained(planned.parts)
        if planned.sampling is not None:
            yield "sampling", _sampling(plan, planned)
        if planned.name in found:
            yield "in scale", found[planned.name]
    for other in plan.others:
        noise = f"{other.dimension:,} numbers; noise: {other.noise}"
        if other.noise_std:
            noise += f", of deviation {other.noise_std:.4g}, for a sensitivity of {other.sensitivity:.4g}"
        yield f"release “{other.name}”", noise
        if other.name in found:
            yield "in scale", found[other.name]


def _sum(plan: Plan, planned: PlannedSum) -> str:
    times = f", {planned.count} times" if planned.count > 1 else ""
    times += f", in up to {planned.attempts} attempts{' each' if times else ''}" if planned.attempts > 1 else ""
    noise = "no noise"
    if planned.noise_std:
        noise = (
            f"{_moves(plan, planned)}, noise {planned.noise_std:.4g} against the adversary "
            f"({_noise_of_the_total(plan, planned)})"
        )
    numbers = "1 number" if planned.dimension == 1 else f"{planned.dimension:,} numbers"
    return f"{numbers}{times}; {noise}"


def _sampling(plan: Plan, planned: PlannedSum) -> str:
    if planned.sampling is None:
        raise ValueError("Expected a sum over sampled records.")
    kind, who = planned.sampling.kind.replace("-", " "), "party" if plan.study.group is None else "record"
    return (
        f"{kind}, each {who} with a chance of {planned.sampling.rate:.4g} in a round; the noise that the "
        f"adversary faces is {planned.noise_multiplier:.4g} times the largest contribution of a {who}"
    )


def way(plan: Plan) -> str:
    """The way in which contributions are combined."""
    if plan.is_pooled:
        return "all records in one place"
    return plan.sums[0].noise.way(plan.study.summation.protocol)


def _moves(plan: Plan, planned: PlannedSum) -> str:
    """The sensitivity of the total to the protected unit; with sampling, the norm of one contribution."""
    if planned.sampling is not None:
        who = "party" if plan.study.group is None else "record"
        return f"a {who} adds at most {planned.contribution:.4g} in norm"
    return f"sensitivity {planned.sensitivity:.4g}"


def _noise_of_the_total(plan: Plan, planned: PlannedSum) -> str:
    """The noise in the released total."""
    parties = plan.parties_asked
    dropouts = 0 if plan.is_pooled or parties == 1 else plan.trust.dropouts
    return planned.noise.amount(planned.total_std(parties), planned.total_std(parties - dropouts, parties), dropouts)


def _operators(plan: Plan) -> str:
    """The names of those who run the servers."""
    helpers = len(plan.helper_addresses)
    if (roster := plan.study.roster) is not None:
        others = ", ".join(map(roster.name_of, roster.helpers))
        told = f"{roster.name_of(roster.coordinator)} (coordinator)"
        return f"{told}, {others} (helpers)" if others else f"{told}; there are no other servers"
    if not helpers:
        return "a coordinator, which the study does not name; there are no other servers"
    return (
        f"a coordinator and {helpers:,} helper{'' if helpers == 1 else 's'}, which the study does not name: agree who "
        "runs them; the promise says how many of them must keep to themselves what they receive"
    )


def size(count: int) -> str:
    """A number of bytes in readable units.

    >>> size(512), size(5_775), size(3_000_000)
    ('512 bytes', '5.8 kB', '3.0 MB')
    """
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def tried(attempts: int, plan: Plan) -> str:
    """The number of attempts in which vectors may have left, and what the promise counts."""
    totals, covered = sum(planned.count for planned in plan.sums), plan.attempts_in_all
    made = "1 attempt" if attempts == 1 else f"{attempts:,} attempts"
    return f"{made} for {totals:,} {'total' if totals == 1 else 'totals'} (epsilon counts {covered:,})"
