"""A ledger of studies of every kind against an accountant of another make: the total is never below the truth, and
within one per cent of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from small_studies import public_file
from unspoken.methods.planning import Plan
from unspoken.methods.registry import plan_for
from unspoken.privacy.events import Event, Gaussian, SubsampledGaussian
from unspoken.privacy.ledger import Ledger
from unspoken.study import make_study
from unspoken.types import Floats

STEP, SIZE = 5e-5, 1 << 19
"""Losses are rounded down to a grid, so that all that follows is below the truth"""
DELTA = 1e-5
PARTY = {"epsilon": 1.0, "unit": "party"}
METHODS: dict[str, dict[str, Any]] = {
    "gaussian": {"name": "helmet"},
    "turns": {"name": "moments", "function": "network", "steps": 3, "hidden": 2},
    "poisson": {"name": "cross-silo", "rounds": 12, "rate": 0.2},
    "tokens": {"name": "cross-silo", "rounds": 6, "rate": 0.3, "sampling": "without-replacement"},
    "votes": {"name": "voting", "queries": 5},
    "cape": {"name": "cape", "epsilons": [1.0, 0.4, 1.0, 1.0]},
}


def cells(mean: float, sigma: float) -> Floats:
    """Places that are so close that each has next to none of a normal distribution around 0 and `mean`."""
    return np.linspace(-12.0 * sigma - abs(mean), 12.0 * sigma + abs(mean), 1 << 18)


def placed(masses: Floats, losses: Floats) -> Floats:
    """The masses on the grid, in a circle."""
    return np.bincount(np.floor(losses / STEP).astype(np.int64) % SIZE, masses, SIZE)


def losses_of(event: Event) -> tuple[Floats, int]:
    """The privacy loss of one release for replaced records, on the grid, and how often it is made."""
    match event:
        case Gaussian(mu, count):
            x = cells(mu, 1.0)
            return placed(np.diff(ndtr(x - mu)), mu * x[:-1] - mu**2 / 2.0), count
        case SubsampledGaussian(noise, rate, "poisson", count):
            x = cells(1.0, noise)
            one, zero, other = (np.exp(-((x - mean) ** 2) / (2.0 * noise**2)) for mean in (1.0, 0.0, -1.0))
            loss = np.log(((1.0 - rate) * zero + rate * one) / ((1.0 - rate) * zero + rate * other))
            masses = np.diff((1.0 - rate) * ndtr(x / noise) + rate * ndtr((x - 1.0) / noise))
            return placed(masses, loss[:-1]), count
        case SubsampledGaussian(noise, rate, "without-replacement", count):
            # The smallest pair for both directions: what is above 0, its mirror image, and the rest at 0.
            x = cells(2.0, noise)
            loss = np.log1p(rate * np.expm1((4.0 * x[:-1] - 4.0) / (2.0 * noise**2)))
            masses = np.diff((1.0 - rate) * ndtr(x / noise) + rate * ndtr((x - 2.0) / noise))
            above = loss > 0.0
            up, down = masses[above], masses[above] * np.exp(-loss[above])
            found = placed(up, loss[above]) + placed(down, -loss[above])
            found[0] += 1.0 - up.sum() - down.sum()
            return found, count
    raise AssertionError(event)


def true_epsilon(events: list[Event], delta: float) -> float:
    """ε of all events together, by one product of Fourier transforms."""
    product = np.ones(SIZE // 2 + 1, dtype=np.complex128)
    for event in events:
        masses, count = losses_of(event)
        product *= np.fft.rfft(masses) ** count
    masses = np.fft.irfft(product, SIZE)
    losses = STEP * np.arange(SIZE)
    losses[SIZE // 2 :] -= STEP * SIZE

    def excess(epsilon: float) -> float:
        above = losses > epsilon
        return float((masses[above] * -np.expm1(epsilon - losses[above])).sum()) - delta

    return float(brentq(excess, 0.0, 20.0))


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


@cache
def plan_of(kind: str, public: Path) -> Plan:
    method = dict(METHODS[kind])
    protocol = "tally" if kind == "votes" else "compute-nodes" if kind == "cape" else "secagg+"
    privacy = PARTY if kind == "votes" else {"epsilon": 1.0, "attempts": 2 if kind == "gaussian" else 1}
    if kind == "votes":
        method["public"] = str(public)
    return plan_for(
        make_study(
            {
                "study": {"name": kind, "task": "classification"},
                "data": {"features": 4, "classes": 2},
                "parties": {"count": 4, "records": 20, "max_records": 20},
                "privacy": {"delta": DELTA, **privacy},
                "method": method,
                "summation": {"protocol": protocol},
            }
        )
    )


def charged(kinds: list[str], public: Path) -> Ledger:
    """The ledger of the second party, which CAPE promises more."""
    ledger = Ledger()
    for kind in kinds:
        plan = plan_of(kind, public)
        for planned in plan.sums:
            for number in range(planned.releases):
                ledger.charge(
                    plan.ledger_run(kind), f"{planned.name} {number}", plan.costs_of_a_vector(planned.name, 1)
                )
    return ledger


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["gaussian", "cape", "votes"], id="Gaussian"),
        pytest.param(["poisson", "gaussian"], id="Poisson", marks=pytest.mark.long),
        pytest.param(["tokens", "cape"], id="tokens", marks=pytest.mark.long),
        pytest.param(list(METHODS), id="all"),
    ],
)
def test_the_total_is_the_true_one_or_a_little_more(kinds: list[str], public: Path) -> None:
    ledger = charged(kinds, public)
    charges = [event for charge in ledger.account().charges.values() for event in charge.events]
    truth, total = true_epsilon(charges, DELTA), ledger.guarantee(DELTA).epsilon
    assert truth <= total <= 1.01 * truth, (truth, total)
    assert total < sum(charged([kind], public).guarantee(DELTA).epsilon for kind in kinds)


def test_the_other_accountant_knows_what_two_gaussians_cost() -> None:
    assert true_epsilon([Gaussian(0.6), Gaussian(0.8)], DELTA) == pytest.approx(4.3772, rel=1e-4)
