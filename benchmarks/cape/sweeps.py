"""Methods measured side by side while one quantity varies: what all of the CAPE figures are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from benchmarks.cape.data import Regression, TwoClasses
from benchmarks.common import say, standard_error
from benchmarks.studies import (
    Finished,
    LinearModel,
    Records,
    Release,
    Study,
    deal,
    run_records,
    share_right,
    study,
)

Data = TypeVar("Data")
Axis = Literal["epsilon", "delta", "records"]

SEPARATION_ACCURACY = 0.5 * (1.0 + math.erf(0.5 / math.sqrt(2.0)))
"""Of the best classifier there is for two Gaussian classes whose means are 1 apart."""
STEPS = 40
NETWORK = {"function": "network", "hidden": 16, "steps": STEPS, "learning_rate": 3.0, "clip": 1.0}
"""The best of four settings on other data of the same kind, with and without privacy; the same for all methods."""


@dataclass(frozen=True)
class Point:
    """What is promised, and for how many records."""

    epsilon: float
    delta: float
    records: int


@dataclass(frozen=True)
class Curve:
    """A method with its options; of several options, those with the lowest mean result count."""

    label: str
    method: str
    options: tuple[dict[str, Any], ...] = ({},)
    depends_on: frozenset[str] = frozenset({"epsilon", "delta"})


_PURE = frozenset({"epsilon"})
_PERTURBED = tuple(
    {"regularization": regularization, "radius": radius}
    for regularization, radius in ((1e-2, 2.0), (1e-3, 2.0), (1e-4, 4.0), (1e-5, 4.0))
)

PAPER = "capeFM, the paper's settings"
"""Correlation S, no reshaping, the pseudo-inverse; but both orders in one release, and the true ε."""
PAPER_NETWORK = "CAPE, the paper's settings"
"""Correlation S; a network has nothing else of the paper's to set. But the true ε, of all iterations together."""
REGRESSIONS = (
    Curve("capeFM", "cape"),
    Curve(PAPER, "cape", ({"published": True},)),
    Curve("conv", "conv"),
    Curve("local", "local"),
    Curve("objective perturbation", "objective-perturbation", _PERTURBED, _PURE),
    Curve("dp-fm, published sensitivity", "dp-fm", ({"sensitivity": "published"},), _PURE),
    Curve("dp-fm, tight sensitivity", "dp-fm", ({"sensitivity": "tight"},), _PURE),
    Curve("not private", "none", ({},), frozenset()),
)
ABLATION = (
    *REGRESSIONS[:2],
    Curve("capeFM without reshaping", "cape", ({"reshape": False},)),
    Curve("capeFM without repair", "cape", ({"repair": "none"},)),
    *(curve for curve in REGRESSIONS if curve.label in ("conv", "not private")),
)
"""What each of our settings does."""
CURATED = (*REGRESSIONS, Curve("central", "central"))
"""With a curator whom everyone trusts, for comparison."""
NETWORKS = (
    Curve("CAPE", "cape", (NETWORK,)),
    Curve(PAPER_NETWORK, "cape", (NETWORK | {"published": True},)),
    Curve("conv", "conv", (NETWORK,)),
    Curve("not private", "none", (NETWORK,), frozenset()),
)


@dataclass
class Experiment(Generic[Data]):
    """Data made anew for each run, and what a method's model on it is worth: `first` of the metrics, the less the
    better, decides between options."""

    name: str
    sites: int
    make: Callable[[int, int], Data]
    measure: Callable[[Experiment[Data], Data, Curve, dict[str, Any], Point], dict[str, float]]
    curves: Sequence[Curve]
    runs: int
    _known: dict[tuple[Any, ...], dict[str, float]] = field(default_factory=dict)

    @property
    def colluding(self) -> int:
        """The paper's S_C."""
        return math.ceil(self.sites / 3) - 1

    def sweep(self, along: Axis, values: Sequence[float], fixed: Point) -> dict[str, Any]:
        """All curves at all values, run by run so that data is made once for each."""
        points = [_moved(fixed, along, value) for value in values]
        data = lru_cache(maxsize=1)(self.make)
        for run in range(self.runs):
            say(f"{self.name}, along {along}: run {run + 1} of {self.runs}")
            for point in points:
                for curve, options in self._settings():
                    key = _key(curve, options, point, run)
                    if key not in self._known:
                        made = data(point.records, run)
                        self._known[key] = self.measure(self, made, curve, options, point)
        others = {name: value for name, value in vars(fixed).items() if name != along}
        curves = {curve.label: [self._summary(curve, point) for point in points] for curve in self.curves}
        return {"set": self.name, "along": along, "values": list(values), "fixed": others, "curves": curves}

    def _settings(self) -> list[tuple[Curve, dict[str, Any]]]:
        return [(curve, options) for curve in self.curves for options in curve.options]

    def _summary(self, curve: Curve, point: Point) -> dict[str, float]:
        """Means and standard errors."""
        choices = []
        for options in curve.options:
            runs = [self._known[_key(curve, options, point, run)] for run in range(self.runs)]
            choices.append({name: np.array([run[name] for run in runs]) for name in runs[0]})
        best = min(choices, key=lambda found: float(next(iter(found.values())).mean()))
        means = {name: float(found.mean()) for name, found in best.items()}
        return means | {f"{name}_se": standard_error(found) for name, found in best.items()}


def _moved(point: Point, along: Axis, value: float) -> Point:
    match along:
        case "epsilon":
            return replace(point, epsilon=value)
        case "delta":
            return replace(point, delta=value)
        case "records":
            return replace(point, records=int(value))


def _key(curve: Curve, options: dict[str, Any], point: Point, run: int) -> tuple[Any, ...]:
    counts = [value for name, value in vars(point).items() if name in curve.depends_on]
    return (curve.label, str(options), run, point.records, *counts)


def study_of(
    experiment: Experiment[Any], data: dict[str, Any], method: dict[str, Any], point: Point, protocol: str = "ideal"
) -> Study:
    """CAPE's parties draw their own noise whatever the summation is: `secure_run` compares."""
    each = point.records // experiment.sites
    return study(
        data,
        {"count": experiment.sites, "records": each, "max_records": each},
        {"epsilon": point.epsilon, "delta": point.delta, "colluding": experiment.colluding},
        method,
        protocol,
    )


def run_regression(
    experiment: Experiment[Regression],
    data: Regression,
    method: dict[str, Any],
    point: Point,
    protocol: str = "ideal",
    **how: Any,
) -> Finished:
    """A linear regression on these records, which are in random order and dealt to sites in turn."""
    described = {"features": data.features.shape[1], "norm": 1.0, "label_bounds": [-1.0, 1.0]}
    agreed = study_of(experiment, described, method, point, protocol)
    return run_records(agreed, Records(data.features, data.labels), deal(point.records, experiment.sites), **how)


def regression_metrics(data: Regression, release: Release) -> dict[str, float]:
    """The paper's f_D(w) = (1/N)‖y − Xw‖², and err_w = ‖w* − w‖/D where w* is known; and both for w = 0."""
    if not isinstance(release, LinearModel):
        raise TypeError(f"Expected a linear model, got {release}.")
    weights = release.weights[0]
    metrics = {"loss": float(np.mean((data.labels - data.features @ weights) ** 2))}
    if data.true is not None:
        metrics["error"] = float(np.linalg.norm(data.true - weights) / len(weights))
        metrics["zero_error"] = float(np.linalg.norm(data.true) / len(weights))
    return metrics | {"zero_loss": float(np.mean(data.labels**2))}


def measure_regression(
    experiment: Experiment[Regression], data: Regression, curve: Curve, options: dict[str, Any], point: Point
) -> dict[str, float]:
    finished = run_regression(experiment, data, {"name": curve.method, **options}, point)
    return regression_metrics(data, finished.release)


def measure_network(
    experiment: Experiment[TwoClasses], data: TwoClasses, curve: Curve, options: dict[str, Any], point: Point
) -> dict[str, float]:
    """Shares of wrongly classified records: of those that were learnt from, and of others."""
    described = {"features": data.features.shape[1], "norm": 15.0, "classes": 2}
    agreed = study_of(experiment, described, {"name": curve.method, **options}, point)
    groups = deal(point.records, experiment.sites)
    release = run_records(agreed, Records(data.features, data.labels), groups).release
    return {
        "test": 1.0 - share_right(agreed, release, data.test_features, data.test_labels),
        "train": 1.0 - share_right(agreed, release, data.features, data.labels),
    }
