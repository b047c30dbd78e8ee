"""The certificate: the plan, the guarantee, and what really happened, as a JSON file to keep and to check.

It may be published with the model: nothing in it depends on records beyond what the guarantee covers. So it has no
accuracy, which is measured on data, and neither the duration nor the end of the run, because solvers take more steps
for some records than for others. It states the bytes sent only if the plan alone determines them, which it does unless
records were pooled.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from unspoken import plugins
from unspoken.engines.outcome import CLUSTER, Outcome
from unspoken.methods.planning import Plan
from unspoken.methods.releases import Release
from unspoken.report.results import ResultFile
from unspoken.study import Study, plain

FORMAT = "unspoken/1"
LARGEST = 1 << 53
"""The largest whole number that every reader of JSON takes as it is"""
_LIBRARIES = ("unspoken", "numpy", "scipy", "numba", "scikit-learn", "cryptography", "dp-accounting", "torch")


def certificate(plan: Plan, outcome: Outcome, result: ResultFile | None = None) -> dict[str, Any]:
    """Everything that a data officer may need to check later, with the SHA-256 of the released file if there is one."""
    return {
        "certificate": FORMAT,
        "began": outcome.began.isoformat(timespec="seconds"),
        "simulation": outcome.simulated,
        "statement": statement(plan, outcome.simulated, outcome.engine),
        **plan.to_json(),
        "happened": {
            "engine": outcome.engine,
            "secure_sum": plan.is_summed and not plan.adds_in_the_clear,
            "parties": plan.trust.parties,
            "survivors": outcome.survivors,
            "epsilon": plan.guarantee_after(outcome.participation, outcome.failed).to_json()["epsilon"],
            "dropped": plan.parties_asked - outcome.survivors,
            **({} if plan.is_pooled else _sent(plan, outcome)),
            **_details(plan, outcome.release),
        },
        **({} if result is None else {f"{result.kind}_sha256": result.sha256}),
        "versions": versions() | _brought(plan),
        "agreement": agreement(plan.study),
    }


def agreement(study: Study) -> dict[str, Any]:
    """The study as a certificate has it: what was agreed to, so without the methods that somebody compares with."""
    return study.model_dump(mode="json", exclude_none=True, exclude={"compare"})


def statement(plan: Plan, simulated: bool, engine: str = "") -> str:
    """The promise in words. For a simulation it begins by saying so, and when the promise would hold."""
    return " ".join((*simulation(plan, simulated, engine), plan.guarantee.sentence()))


def simulation(plan: Plan, simulated: bool, engine: str = "") -> tuple[str, ...]:
    """The difference between a simulation and a run on a network, if it was one."""
    return (_simulation(plan, "one cluster" if engine == CLUSTER else "this machine"),) if simulated else ()


def _simulation(plan: Plan, place: str) -> str:
    told = f"SIMULATION: all parties ran on {place}, where all records were"
    if not plan.guarantee.is_promise:
        return f"{told}."
    told += "; nobody was protected from anybody here. What follows would hold if "
    if plan.is_pooled:
        return f"{told}one curator, and nobody else, had had the records."
    helpers = ", every helper" if plan.helper_addresses else ""
    return (
        f"{told}every party{helpers} and the coordinator had been on machines of their own, and every party had drawn "
        "its keys and its noise there."
    )


def _sent(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """The bytes that parties sent, the number of attempts (planned, and made), and the deviation of the noise in each
    total: the most over its turns, of those who were there."""
    return {
        "noise_std_of_totals": {name: deviation for name, deviation in outcome.noise.items() if deviation},
        "bytes": outcome.bytes,
        "largest_upload_of_a_party": outcome.party_bytes,
        "attempts_planned": plan.attempts_in_all,
        "attempts": outcome.attempts,
    }


def _details(plan: Plan, release: Release) -> dict[str, Any]:
    """What the release says of itself: numbers, under the names that its method has declared."""
    known = plan.study.described.details
    return {name: value for name, value in plain(release.details).items() if name in known and is_number(value)}


def check_details(plan: Plan, release: Release) -> None:
    """`TypeError` if the release says something of itself that no certificate has."""
    if lost := sorted(map(repr, release.details.keys() - _details(plan, release).keys())):
        raise TypeError(f'Expected details of "{plan.method}" to be numbers that it has declared, got {lost[0]}.')


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def libraries(plan: Plan) -> set[str]:
    """Whose versions a certificate of the plan may have."""
    return {"python", *_LIBRARIES, *_brought(plan)}


def _brought(plan: Plan) -> dict[str, str]:
    """The packages that the method and the protocol come from."""
    method, protocol = plan.study.method.name, plan.study.summation.protocol
    found = (plugins.package_of(plugins.METHODS, method), plugins.package_of(plugins.PROTOCOLS, protocol))
    return dict(package for package in found if package is not None)


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that a result depends on."""
    return dict(_versions())


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """The versions of Python and libraries; cached, because looking them up takes longer than a small fit."""
    found = [("python", platform.python_version())]
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append((name, version(name)))
    return tuple(found)
