"""What a certificate says beside the plan: when the study began, what happened, and with which versions.

These parts are only the coordinator's word. So unknown keys are refused, values that follow from the plan or from other
numbers are computed and compared, and all other values must be possible. Parties sign nothing else, and `verify`
accepts nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from unspoken.engines.outcome import FLOWER, NETWORK
from unspoken.methods.planning import Plan
from unspoken.report.agreement import ROUNDING, difference, told
from unspoken.report.certificate import LARGEST, is_number, libraries
from unspoken.roles.attempts import AHEAD, EARLIEST
from unspoken.study.explaining import shown

TOLD = ("began", "happened", "versions")
"""The keys of a certificate that the plan does not determine, beside the SHA-256 of the released file"""
_VERSION = re.compile(r"\d{1,6}(\.\d{1,8}){0,4}((a|b|rc)\d{1,4})?(\.post\d{1,4})?(\.dev\d{1,8})?(\+[a-z0-9.]{0,16})?")


def cannot_be(plan: Plan, content: Mapping[str, Any]) -> str | None:
    """The first impossible statement of a certificate besides its plan, in words; None if there is none.

    >>> from unspoken.report.happened import _began
    >>> list(_began("2026-11-17T08:00:00+00:00")), list(_began("long ago"))
    ([], ['"began" is "long ago", but should be a time such as "2026-01-31T12:00:00+00:00", in UTC'])
    """
    return next(_problems(plan, content), None)


def _problems(plan: Plan, content: Mapping[str, Any]) -> Iterator[str]:
    yield from _began(content.get("began"))
    yield from _versions(plan, content.get("versions"))
    happened = content.get("happened")
    if not isinstance(happened, dict):
        yield f'"happened" is {told(happened)}, but should be a list of what happened'
        return
    yield from _numbers(plan, happened)
    yield from _computed(plan, happened, simulated=content.get("simulation") is True)
    yield from _noise(plan, happened)
    yield from _details(plan, happened)


def _began(said: Any) -> Iterator[str]:
    try:
        began = datetime.fromisoformat(said)
        is_one = began.utcoffset() == timedelta(0) and began.isoformat(timespec="seconds") == said
    except (ValueError, TypeError):
        is_one = False
    if not is_one:
        yield f'"began" is {told(said)}, but should be a time such as "2026-01-31T12:00:00+00:00", in UTC'
    elif not EARLIEST <= began <= datetime.now(UTC) + AHEAD:
        yield f'"began" is {shown(said)}, which is {"too long ago" if began < EARLIEST else "in the future"}'


def _versions(plan: Plan, said: Any) -> Iterator[str]:
    if not isinstance(said, dict) or "unspoken" not in said:
        yield f'"versions" is {told(said)}, but should have at least that of unspoken'
        return
    known = libraries(plan)
    for name, version in said.items():
        if name not in known:
            yield f'"versions" has {shown(name)}, which this study does not rest on'
        if not isinstance(version, str) or not _VERSION.fullmatch(version):
            yield f'"versions.{name}" is {told(version)}, but should be a version, such as "1.2.0"'


def _numbers(plan: Plan, happened: Mapping[str, Any]) -> Iterator[str]:
    """Check that numbers which only the coordinator knows are within their bounds."""
    least = 1 if plan.is_pooled else min(plan.trust.least_survivors, plan.parties_asked)
    bounds = {"survivors": (least, plan.parties_asked)}
    if not plan.is_pooled:
        bounds |= {"attempts": (1, plan.attempts_in_all)}
        bounds |= dict.fromkeys(("bytes", "largest_upload_of_a_party"), (0, LARGEST))
    for name, (low, high) in bounds.items():
        if not is_number(value := happened.get(name)) or not isinstance(value, int) or not low <= value <= high:
            yield f'"happened.{name}" is {told(value)}, but the study has {low} to {high}'
    epsilon, most = happened.get("epsilon"), plan.guarantee.epsilon
    spent = math.inf if epsilon is None else epsilon
    if not (is_number(spent) or spent == math.inf) or not 0.0 <= spent <= most * (1.0 + ROUNDING):
        yield f'"happened.epsilon" is {told(epsilon)}, but the study promises at most {most:.6g}'
    elif plan.may_end_early and spent < most * (1.0 - ROUNDING):
        yield f'"happened.epsilon" is {told(epsilon)}, but a run that may end early costs all of its {most:.6g}'
    elif spent < (least_spent := _least_spent(plan, happened)) * (1.0 - ROUNDING):
        yield f'"happened.epsilon" is {told(epsilon)}, but so many attempts cost at least {least_spent:.6g}'


def _least_spent(plan: Plan, happened: Mapping[str, Any]) -> float:
    """The least ε of so many attempts, where it follows at which sums they were: there is one, or all were planned."""
    made, planned = happened.get("attempts"), {each.name: each.releases for each in plan.sums}
    if plan.is_pooled or not isinstance(made, int):
        return 0.0
    if len(planned) == 1:
        return plan.least_epsilon(dict.fromkeys(planned, made))
    return plan.least_epsilon(planned) if made == plan.attempts_in_all else 0.0


def _computed(plan: Plan, happened: Mapping[str, Any], simulated: bool) -> Iterator[str]:
    """Check the values that follow from the plan or from the number of survivors."""
    wanted = {
        "secure_sum": plan.is_summed and not plan.adds_in_the_clear,
        "parties": plan.trust.parties,
        "dropped": plan.parties_asked - happened["survivors"],
    }
    wanted |= {} if plan.is_pooled else {"attempts_planned": plan.attempts_in_all}
    # Simulations have engines of their own, and nobody signs what they say.
    wanted |= {} if simulated or happened.get("engine") == FLOWER else {"engine": NETWORK}
    for name, value in wanted.items():
        if (problem := difference(f"happened.{name}", happened.get(name), value)) is not None:
            yield problem


def _noise(plan: Plan, happened: Mapping[str, Any]) -> Iterator[str]:
    """Check that the noise of each total is at least the noise that the guarantee counts on."""
    if plan.is_pooled:
        return
    place, sums = "happened.noise_std_of_totals", {each.name: each for each in plan.sums if each.largest_total_std}
    said = happened.get("noise_std_of_totals")
    if not isinstance(said, dict) or said.keys() != sums.keys():
        yield f'"{place}" is {told(said)}, but should have the noise of {", ".join(sums) or "nothing"}'
        return
    for name, found in said.items():
        least = sums[name].noise_std
        if not is_number(found) or found < least * (1.0 - ROUNDING):
            yield f'"{place}.{name}" is {told(found)}, but the plan has at least {least:.6g}'


def _details(plan: Plan, happened: Mapping[str, Any]) -> Iterator[str]:
    """Check that all further entries are numbers that the method has declared."""
    known = {"engine", "secure_sum", "parties", "survivors", "epsilon", "dropped"}
    sent = {"noise_std_of_totals", "bytes", "largest_upload_of_a_party", "attempts_planned", "attempts"}
    known |= set() if plan.is_pooled else sent
    for name in happened.keys() - known:
        if name not in plan.study.described.details:
            yield f'"happened" has {shown(name)}, which no certificate of this study has'
        if not is_number(value := happened[name]):
            yield f'"happened.{name}" is {told(value)}, but should be a number'
