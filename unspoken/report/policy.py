"""Applies a site's policy to a study: it allows the study, or names the rule that refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from unspoken.methods.planning import Plan
from unspoken.privacy.ledger import Ledger, Limit, total_of
from unspoken.privacy.ledger_totals import covers
from unspoken.study.explaining import shown, where
from unspoken.study.policy import Policy
from unspoken.study.sections import RosterSection

_NAMED = 3
"""The most participants that are named in a sentence"""


class _Rule(NamedTuple):
    """A rule as it applies to a study."""

    place: tuple[str, ...]
    value: object
    """The rule's value in the policy; None: it has none"""
    is_kept: bool
    problem: str
    """What the study does, and what the rule asks for"""


def total_limit(policy: Policy) -> Limit | None:
    """The most that all studies on a data set may cost together, which every charge keeps."""
    limits = policy.limits
    if limits.total_epsilon is None:
        return None
    return Limit(limits.total_epsilon, limits.total_delta, limits.group)


def refusal(policy: Policy, plan: Plan, ledger: Ledger, party: int | None = None, run: str = "") -> str | None:
    """The first rule that refuses a study to this party (None: to any), in a sentence; None if all allow it.

    `run` is the name of the party's run in its ledger.
    """
    for rule in _rules(policy, plan, ledger, party, run):
        place = where(policy.source, rule.place)
        if rule.value is None and policy.refuse_uncovered:
            return f"{place} is missing: the policy says nothing about it, and so refuses what it does not cover."
        if rule.value is not None and not rule.is_kept:
            return f"{place} is {shown(rule.value)}, but {rule.problem}."
    return None


def _rules(policy: Policy, plan: Plan, ledger: Ledger, party: int | None, run: str) -> Iterator[_Rule]:
    yield from _people(policy, plan)
    yield from _studies(policy, plan)
    yield _data(policy, plan)
    yield from _limits(policy, plan, party)
    yield _total(policy, plan, ledger, party, run)


def _people(policy: Policy, plan: Plan) -> Iterator[_Rule]:
    """Whose studies, who else takes part, and who helps.

    The promise rests on parties that do not collude, and a coordinator could invent any number of parties. So it
    matters who they are, not only how many.
    """
    roster, coordinators = plan.study.roster, policy.coordinators
    key = roster.coordinator if roster else ""
    told = f'the study is coordinated by "{roster.name_of(key) if roster else "nobody"}", whose key is {key}'
    yield _Rule(("coordinators",), coordinators, key in (coordinators or {}).values(), told)
    for kind in ("parties", "helpers") if roster else ():
        allowed, keys = getattr(policy, kind), getattr(roster, kind)
        others = [key for key in keys if key not in (allowed or {}).values()]
        told = f"the study has the {kind} {_named(roster, others)} too"
        if keys:
            yield _Rule((kind,), allowed, not others, told)


def _named(roster: RosterSection | None, keys: list[str]) -> str:
    """The first of some participants, as people compare them."""
    names = [roster.shown(key) for key in keys[:_NAMED]] if roster else []
    return ", ".join(names) + (f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else "")


def _studies(policy: Policy, plan: Plan) -> Iterator[_Rule]:
    """What is computed and added up how, and what the promise rests on."""
    study, rules = plan.study, policy.studies
    method, protocol = study.method.name, study.summation.protocol
    kept = method in (rules.methods or ())
    yield _Rule(("studies", "methods"), rules.methods, kept, f'the study\'s method is "{method}"')
    if plan.is_summed:
        kept = protocol in (rules.protocols or ())
        yield _Rule(("studies", "protocols"), rules.protocols, kept, f'the study\'s protocol is "{protocol}"')
        kept = plan.guarantee.trust.lying or rules.coordinator == "curious"
        told = "the study's promise does not hold against a coordinator that lies"
        yield _Rule(("studies", "coordinator"), rules.coordinator, kept, told)
    kept = rules.enclaves or not study.privacy.enclaves
    yield _Rule(("studies", "enclaves"), rules.enclaves, kept, "the study's promise rests on enclaves")


def _limits(policy: Policy, plan: Plan, party: int | None) -> Iterator[_Rule]:
    """What the study costs this party, and whom it protects from whom."""
    limits, guarantee = policy.limits, plan.guarantee_for(party)
    epsilon, delta, fewest, most = limits.epsilon, limits.delta, limits.parties, guarantee.trust.colluding
    told = f"the study costs up to epsilon = {guarantee.epsilon:.4g}"
    kept = guarantee.epsilon <= (epsilon or 0.0) * (1.0 + 1e-9)  # as ledgers round
    yield _Rule(("limits", "epsilon"), epsilon, kept, told)
    yield _Rule(("limits", "delta"), delta, guarantee.delta <= (delta or 0.0), f"the study's is {guarantee.delta:g}")
    kept = covers(guarantee.group, limits.group, guarantee.adjacency)
    yield _Rule(("limits", "unit"), limits.unit, kept, f"the study protects {shown(guarantee.unit)} only")
    kept = limits.adjacency in (guarantee.adjacency, "add-remove")
    told = 'the study\'s promise is about units that are left out ("add-remove"), so epsilon is more for replaced ones'
    yield _Rule(("limits", "adjacency"), limits.adjacency, kept, told)
    yield _Rule(
        ("limits", "parties"),
        fewest,
        plan.parties_asked >= (fewest or 0),
        f"the study has {plan.parties_asked} parties",
    )
    yield _Rule(("limits", "colluding"), limits.colluding, most >= limits.colluding, f"the study allows {most}")


def _data(policy: Policy, plan: Plan) -> _Rule:
    data = plan.study.data
    if data.columns is None:
        most, features = policy.data.features, data.raw_dimension
        return _Rule(("data", "features"), most, features <= (most or 0), f"the study uses {features:,}")
    allowed, used = policy.data.columns, [*data.columns, *([data.label] if data.label else [])]
    others = [name for name in used if name not in (allowed or ())]
    return _Rule(("data", "columns"), allowed, not others, f"the study uses {', '.join(map(shown, others))} too")


def _total(policy: Policy, plan: Plan, ledger: Ledger, party: int | None, run: str) -> _Rule:
    """All studies together, with this one. Its cost is not added if this very run was begun: the rest of it must keep
    the limit vector by vector. Other runs of the same study, such as simulations, are no beginning of it."""
    account, limit = ledger.account(), total_limit(policy)
    more = () if run in account.runs else ((plan.ledger_run("policy"), plan.costs_of(party)),)
    place = ("limits", "total_epsilon")
    if limit is None:
        return _Rule(place, None, True, "")
    found = total_of(account, *more).excess(limit)
    told = f'all studies on "{ledger.dataset}" together would come to '
    told += "" if found is None else f"{found:.4g} at delta = {limit.delta:g}"
    return _Rule(place, limit.epsilon, found is None, told)
