"""The certificate: the plan, the guarantee, and what really happened, as a JSON file to keep and to check.

It may be published with the model: nothing in it depends on records beyond what the guarantee covers. So it has no
accuracy, which is measured on data, and neither duration nor end of the run, as solvers take more steps for some
records than for others. It states the bytes sent if the plan alone determines them, that is unless records were pooled.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from unspoken import plugins
from unspoken.engines.outcome import Outcome
from unspoken.methods.plan import Plan
from unspoken.summation.registry import protocol_of

_LIBRARIES = ("unspoken", "numpy", "scipy", "numba", "scikit-learn", "cryptography", "dp-accounting", "torch")


def certificate(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """Everything that a data officer may need to check later."""
    return {
        "certificate": "unspoken/1",
        "began": outcome.began.isoformat(timespec="seconds"),
        "statement": plan.guarantee.sentence(),
        **plan.to_json(),
        "happened": {
            "engine": "local: all parties in one process",
            "secure_sum": plan.is_summed and not protocol_of(plan.study).reveals_contributions,
            "parties": plan.trust.parties,
            "survivors": outcome.survivors,
            "epsilon": plan.released(outcome.participation).to_json()["epsilon"],
            "dropped": plan.asked - outcome.survivors,
            **({} if plan.is_pooled else _sent(outcome)),
            **outcome.release.details,
        },
        "versions": {**dict(_versions()), **_brought(plan)},
        "agreement": plan.study.model_dump(mode="json", exclude_none=True),
    }


def _sent(outcome: Outcome) -> dict[str, int]:
    return {"bytes": outcome.bytes, "largest_upload_of_a_party": outcome.party_bytes}


def _brought(plan: Plan) -> dict[str, str]:
    """The packages that the method and the protocol come from."""
    method, protocol = plan.study.method.name, plan.study.summation.protocol
    found = (plugins.package_of(plugins.METHODS, method), plugins.package_of(plugins.PROTOCOLS, protocol))
    return dict(package for package in found if package is not None)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """The versions of Python and libraries; cached, because looking them up takes longer than a small fit."""
    found = [("python", platform.python_version())]
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found.append((name, version(name)))
    return tuple(found)
