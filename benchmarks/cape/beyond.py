"""What the paper has no figure of: what our settings do, iterations, unequal sites, sites with an ε of their own, sites
that vanish, and what is sent."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from benchmarks.cape.data import Regression, synthetic, two_classes
from benchmarks.cape.sweeps import (
    ABLATION,
    NETWORK,
    Curve,
    Experiment,
    Point,
    measure_network,
    measure_regression,
    regression_metrics,
)
from benchmarks.common import standard_error
from benchmarks.studies import Integers, Records, make_study, plan_of, run_records, sections, study

EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
LARGEST_SHARES = (0.2, 0.4, 0.6, 0.8, 0.96)
ORDERS = ("noise-first", "messages-first")


def ablation(quick: bool, runs: int) -> list[dict[str, Any]]:
    """capeFM, with the paper's settings, and without one of ours."""
    dimension, records = (10, 5_000) if quick else (20, 20_000)
    name = f"synthetic, D = {dimension}, S = 5"
    experiment = Experiment(name, 5, partial(synthetic, dimension), measure_regression, ABLATION, runs)
    return [experiment.sweep("epsilon", (0.5, 5.0) if quick else EPSILONS, Point(0.5, 1e-5, records))]


def iterations(quick: bool, runs: int) -> dict[str, Any]:
    """Accuracy of the network against the number of iterations, which share one ε."""
    dimension, records, counts = (10, 2_000, (2, 5)) if quick else (50, 10_000, (5, 10, 20, 40, 80))
    found: dict[str, list[dict[str, float]]] = {"CAPE": [], "conv": [], "not private": []}
    for steps in counts:
        options = ({**NETWORK, "steps": steps},)
        curves = [
            Curve("CAPE", "cape", options),
            Curve("conv", "conv", options),
            Curve("not private", "none", options, frozenset()),
        ]
        experiment = Experiment(
            f"{steps} iterations", 4, partial(two_classes, dimension), measure_network, curves, min(runs, 5)
        )
        sweep = experiment.sweep("epsilon", (1.0,), Point(1.0, 1e-5, records))
        for label, points in sweep["curves"].items():
            found[label] += points
    fixed = {"epsilon": 1.0, "delta": 1e-5, "records": records}
    return {"values": list(counts), "curves": found, "fixed": fixed, "runs": min(runs, 5)}


def unequal(quick: bool, runs: int) -> dict[str, Any]:
    """err_w if one of five sites has more and more of the records: with sums over records, and H(n) of a mean of means,
    the paper's Remark 3."""
    dimension, records = (10, 5_000) if quick else (20, 20_000)
    shares = LARGEST_SHARES[:: 4 if quick else 1]
    rows = []
    for share in shares:
        sizes = sizes_of(records, share)
        row: dict[str, Any] = {"share": share, "h": weights_lost(sizes)}
        for name in ("cape", "conv"):
            errors = [_error(synthetic(dimension, records, run), sizes, name) for run in range(runs)]
            row |= {name: float(np.mean(errors)), f"{name}_se": standard_error(errors)}
        rows.append(row)
    return {"rows": rows, "records": records, "dimension": dimension}


def sizes_of(records: int, share: float) -> Integers:
    """Five sites, of which the first has this share of the records, and the others have equally many."""
    each = round(records * (1.0 - share) / 4.0)
    return np.array([records - 4 * each, each, each, each, each])


def weights_lost(sizes: Integers) -> float:
    """H(n) = N²/S³ · Σ 1/N_s²: the variance of a mean of the sites' noisy means over that of one curator."""
    return float(sizes.sum() ** 2 / len(sizes) ** 3 * (1.0 / sizes.astype(float) ** 2).sum())


def _error(data: Regression, sizes: Integers, method: str) -> float:
    agreed = study(
        {"features": data.features.shape[1], "norm": 1.0, "label_bounds": [-1.0, 1.0]},
        {"count": len(sizes), "records": int(sizes.min()), "max_records": int(sizes.max())},
        {"epsilon": 0.5, "delta": 1e-5, "colluding": 1},
        {"name": method},
    )
    groups = np.repeat(np.arange(len(sizes)), sizes)
    release = run_records(agreed, Records(data.features, data.labels), groups).release
    return regression_metrics(data, release)["error"]


def vanished() -> list[dict[str, Any]]:
    """The deviation of the noise in a total of sensitivity 1, by how many sites vanish after they have begun."""
    return [_vanished(sites, dropouts) for sites, dropouts in ((5, 2), (10, 3), (30, 9))]


def _vanished(sites: int, dropouts: int) -> dict[str, Any]:
    counts, found = list(range(dropouts + 1)), {}
    for label, method in (
        *((order, {"name": "cape", "order": order}) for order in ORDERS),
        ("conv", {"name": "conv"}),
        ("moments", {"name": "moments"}),
    ):
        agreed = study(
            {"features": 1, "norm": 1.0, "label_bounds": [-1.0, 1.0]},
            {"count": sites, "records": 100, "max_records": 100},
            {"epsilon": 1.0, "delta": 1e-5, "colluding": 1, "dropouts": dropouts},
            {"reshape": False, **method},
            "compute-nodes",
        )
        planned = plan_of(agreed).sums[0]
        prepared = sites if planned.noise.prepares else None
        found[label] = [planned.total_std(sites - count, prepared) / planned.sensitivity for count in counts]
    curator = 1.0 / planned.mu
    return {"sites": sites, "dropouts": dropouts, "vanished": counts, "curves": found, "curator": curator}


def strict() -> dict[str, Any]:
    """The deviation of the noise in a total of sensitivity 1 if some of five sites have a smaller ε of their own."""
    sites, usual, own = 5, 1.0, 0.1
    found = []
    for count in range(sites + 1):
        asked = {"epsilons": [own] * count + [usual] * (sites - count)} if count else {}
        agreed = study(
            {"features": 1, "norm": 1.0, "label_bounds": [-1.0, 1.0]},
            {"count": sites, "records": 100, "max_records": 100},
            {"epsilon": usual, "delta": 1e-5, "colluding": 1},
            {"name": "cape", "reshape": False, **asked},
        )
        planned = plan_of(agreed).sums[0]
        found.append(planned.total_std(sites) / planned.sensitivity)
    return {"sites": sites, "usual": usual, "own": own, "noise": found}


SENDERS = (
    ("conv", "conv", "ideal"),
    ("CAPE over SecAgg", "cape", "secagg"),
    ("CAPE over 3 compute nodes", "cape", "compute-nodes"),
    ("SecAgg of f itself", "moments", "secagg"),
    ("3 compute nodes for f itself", "moments", "compute-nodes"),
)


def communication() -> list[dict[str, Any]]:
    """The bytes that a site sends for a mean of D numbers, as planned (Table 1)."""
    return [
        {"sites": sites, "dimension": dimension, "bytes": {name: _sent(sites, dimension, *by) for name, *by in SENDERS}}
        for sites, dimension in product((5, 20, 100), (10, 1_000))
    ]


def _sent(sites: int, dimension: int, method: str, protocol: str) -> int:
    content = sections(
        {"features": dimension, "norm": 1.0},
        {"count": sites, "records": 100, "max_records": 100},
        {"epsilon": 1.0, "delta": 1e-5, "colluding": math.ceil(sites / 3) - 1},
        {"name": method, "function": "mean"},
        protocol,
    )
    content["study"]["task"] = "statistics"
    return plan_of(make_study(content)).upload_bytes
