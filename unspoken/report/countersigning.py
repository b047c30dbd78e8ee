"""What a party checks before it signs a certificate: its own plan promises the same, and the model is the one named."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from unspoken.engines.signing import canonical, parsed
from unspoken.errors import printable
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.methods.releases import Release, Statistics
from unspoken.report.agreement import ROUNDING, difference
from unspoken.report.certificate import FORMAT, agreement, statement
from unspoken.report.happened import TOLD, cannot_be
from unspoken.report.results import ResultFile
from unspoken.study import Study
from unspoken.study.explaining import shown as named

_LARGEST_REST = 1 << 28
"""The bytes that a model may have on top of those for the plan's numbers"""


def received(study: Study, certificate: bytes, name: str, content: bytes) -> ResultFile:
    """The released file; `Refused` unless it is the one that the certificate names, of a kind that the study has."""
    kind = _kind(study)
    suffix = next((suffix for suffix in _suffixes(Release, kind) if name == f"{kind}.{suffix}"), None)
    if suffix is None or not content:
        raise Refused("the released file did not come with its certificate; ask the coordinator for it.")
    file = ResultFile(kind, suffix, content)
    if json.loads(certificate).get(f"{kind}_sha256") != file.sha256:
        raise Refused(f"the {kind} that came is not the one that the certificate names.")
    return file


def _kind(study: Study) -> str:
    return Statistics.kind if study.task == "statistics" else Release.kind


def _suffixes(release: Any, kind: str) -> set[str]:
    """The suffixes of all releases of a kind, among them those of the study's method if it is a plug-in."""
    own = {release.suffix} if release.kind == kind and hasattr(release, "suffix") else set()
    return own.union(*(_suffixes(one, kind) for one in release.__subclasses__()))


def largest_file(plan: Plan) -> int:
    """The largest file that a party takes as the result: the numbers that the plan has, and what else a model may hold,
    such as weights that were not trained."""
    outputs = len(plan.study.data.class_names) if plan.study.task == "classification" else 1
    numbers = plan.study.data.dimension * outputs
    numbers += sum(planned.dimension * planned.count for planned in plan.sums)
    return _LARGEST_REST + 64 * (numbers + sum(other.dimension for other in plan.others))


def largest_ending(plan: Plan) -> int:
    """The largest message of a coordinator when the study is over: file and certificate, or all signatures."""
    return largest_file(plan) + 2 * len(canonical(plan.study.model_dump(mode="json"))) + 1024 * plan.trust.parties


def check_certificate(plan: Plan, content: bytes, sent: Mapping[str, int]) -> None:
    """Refuse a certificate that promises something else than this participant's own plan, or has forgotten vectors.

    `sent` is the number of vectors that it has sent, by the name of the total.
    """
    try:
        shown = parsed(content)
        if canonical(shown) != content:
            raise ValueError
    except (ValueError, TypeError, RecursionError, AttributeError):
        raise Refused("the certificate is malformed.") from None
    own = _known(plan, shown)
    for key, value in own.items():
        if (problem := difference(key, shown.get(key), value)) is not None:
            raise Refused(f"the certificate promises something else than this study's plan: {problem}.")
    if other := sorted(shown.keys() - own.keys() - {*TOLD, f"{_kind(plan.study)}_sha256"}):
        raise Refused(f"the certificate says something that no certificate of this study says: {named(other[0])}.")
    if (problem := cannot_be(plan, shown)) is not None:
        raise Refused(f"the certificate says something that cannot be: {problem}.")
    happened = shown["happened"]
    epsilon = math.inf if happened["epsilon"] is None else happened["epsilon"]
    if happened["attempts"] < sum(sent.values()) or not epsilon >= plan.least_epsilon(sent) * (1.0 - ROUNDING):
        raise Refused("the certificate says that less was spent than this participant has spent.")


def differs(plan: Plan, content: bytes) -> str | None:
    """Where the plan that a coordinator shows differs from one's own, in words; None if they agree but for the last
    digits of fractions."""
    try:
        shown = parsed(content)
    except (ValueError, TypeError, RecursionError):
        return "it is malformed"
    return difference("plan", shown, json.loads(canonical(plan.compared())))


def _known(plan: Plan, shown: Mapping[str, Any]) -> dict[str, Any]:
    """What a participant knows of a certificate before it has seen it."""
    return plan.to_json() | {
        "certificate": FORMAT,
        "simulation": False,
        "statement": statement(plan, simulated=False),
        "agreement": agreement(plan.study) | {"data": _data(plan.study, shown)},
    }


def _data(study: Study, shown: Mapping[str, Any]) -> dict[str, Any]:
    """The study's [data], with the place of public records that the coordinator has: each has them at its own place,
    and what is in them is agreed by their SHA-256."""
    own: dict[str, Any] = agreement(study)["data"]
    match shown.get("agreement"):
        case {"data": {"public": str(place)}} if "public" in own and printable(place) == place:
            return own | {"public": place}
    return own
