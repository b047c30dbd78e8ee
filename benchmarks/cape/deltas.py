"""The δ of CAPE: by the paper's Theorem 1, exactly, and for independent noise; and what its published noise costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspoken.privacy.correlated import correlated_mu
from unspoken.privacy.gaussian import delta_of, epsilon_of

DELTA_SETTINGS = (
    (10, 1_000, 1e-3, 50.0, (2.0, 100.0)),
    (30, 5_000, 0.1, 0.5, (0.05, 0.6)),
    (5, 20_000, 1.0, 1.5e-3, (4e-4, 2.5e-3)),
)
"""Sites, records, ε, τ of Figure 6, and the range of τ in Figure 5: two settings from the paper's code, and one with
the sites and records of Figure 3."""


def delta_curves(sites: int, records: int, epsilon: float, tau: float, taus: tuple[float, float]) -> dict[str, Any]:
    """δ by Theorem 1, the exact one, and that of conv with as much noise in the total, against τ and against S_C."""
    usual = math.ceil(sites / 3) - 1
    along = np.geomspace(*taus, 60).tolist()
    colluding = list(range(usual + 1))
    return {
        "sites": sites,
        "records": records,
        "epsilon": epsilon,
        "tau": tau,
        "colluding": usual,
        "taus": along,
        "by_tau": [deltas(sites, usual, records, epsilon, each) for each in along],
        "shares": [count / sites for count in colluding],
        "by_share": [deltas(sites, count, records, epsilon, tau) for count in colluding],
    }


def deltas(sites: int, colluding: int, records: int, epsilon: float, tau: float) -> dict[str, float]:
    change = sites / records
    exact = correlated_mu(change, tau**2, tau**2 / sites, sites - colluding)
    return {
        "paper": theorem_1(sites, colluding, records, epsilon, tau),
        "exact": delta_of(exact, epsilon),
        "conv": delta_of(change * math.sqrt(sites) / tau, epsilon),
    }


def theorem_1(sites: int, colluding: int, records: int, epsilon: float, tau: float) -> float:
    """The paper's δ = 2σ_z/(ε − μ_z) φ((ε − μ_z)/σ_z), where it says anything, else 1."""
    honest = sites - colluding
    factor = (honest + 2) / honest + 9 * colluding**2 / honest / (sites * (1 + sites) - 3 * colluding**2)
    variance = sites**3 / (tau**2 * records**2 * (1 + sites)) * factor
    ahead = (epsilon - variance / 2.0) / math.sqrt(variance)
    if ahead <= 0.0:
        return 1.0
    return min(1.0, 2.0 / ahead * math.exp(-(ahead**2) / 2.0) / math.sqrt(2.0 * math.pi))


def true_epsilon(stated: float, delta: float = 1e-5, sites: int = 5, colluding: int = 1) -> float:
    """What the published noise costs at least if it is made by CAPE: three orders, each with noise for ε and δ alone by
    the classical formula τ = Δ√(2 log(1.25/δ))/ε, and colluders who know their part.

    Replacing (x, y = 1) by (x', y' = 0) with x ⟂ x' moves y², 2yx and xxᵀ by 1, 2 and √2, where their sensitivities are
    1, 4 and √2: in units of the noise for each, by √(1 + 1/4 + 1).
    """
    each = stated / math.sqrt(2.0 * math.log(1.25 / delta))
    mu = correlated_mu(1.5 * each, 1.0, 1.0 / sites, sites - colluding)
    return epsilon_of(mu, delta)
