"""Claim: with a large Λ, the average of local hinge-loss SVMs tends to the SVM of the pooled data, as 1/M.

DP-Helmet, Theorem 14 (Section 5, Appendix L.2). Every party runs M steps of projected subgradient descent with
weighted averaging on its own records, nothing else is exchanged, and the models are averaged. What is measured is the
excess objective on the pooled data, J(average) − min J, averaged over repetitions with other random steps.

Large Λ: every record lies inside every margin (checked), so the loss is linear there, the pooled optimum is exactly
mean(y·x)/Λ, and the average of the local optima is that same model. Small Λ: records leave the margins, the average of
local optima is not the pooled optimum, and the excess levels off above zero. Both for records spread at random and
for the paper's Figure 2, where each of two parties holds one class only (Λ = 20, R = 1, c = 5, 500 records each).

Writes the numbers (with --quick only if --results is given). `python -m benchmarks.helmet.plots` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.helmet.hinge import hinge_objective, weighted_average_descent
from benchmarks.studies import Floats

RESULTS = Path(__file__).with_name("convergence.json")
FITTED_FROM = 32
"""The slope is fitted to this many steps and more."""


@dataclass(frozen=True)
class Situation:
    """Parties with records, a regularisation, and the ball that iterates are projected onto."""

    name: str
    large: bool
    features: Floats
    """(parties, records, dimension)"""
    signs: Floats
    """(parties, records)"""
    regularization: float
    radius: float
    repetitions: int

    def pooled(self) -> tuple[Floats, Floats]:
        return self.features.reshape(-1, self.features.shape[2]), self.signs.ravel()

    def margins(self) -> float:
        """The largest |wᵀx| over all records, for the pooled and all local optima of the large-Λ regime."""
        products = self.signs[:, :, None] * self.features
        optima = [*products.mean(axis=1) / self.regularization, products.mean(axis=(0, 1)) / self.regularization]
        return max(float(np.abs(self.features @ optimum).max()) for optimum in optima)

    def pooled_optimum(self) -> Floats:
        if self.large:
            return np.asarray((self.signs[:, :, None] * self.features).mean(axis=(0, 1)) / self.regularization)
        return exact_svm(*self.pooled(), self.regularization)

    def average_of_optima(self) -> Floats:
        """What blind averaging tends to."""
        models = [
            exact_svm(features, signs, self.regularization)
            for features, signs in zip(self.features, self.signs, strict=True)
        ]
        return np.asarray(np.mean(models, axis=0))


def main() -> None:
    arguments = run_options(__doc__, RESULTS).parse_args()
    steps = [2**power for power in range(4, 10 if arguments.quick else 14)]
    parts = {"situations": lambda: [run(situation, steps) for situation in situations(arguments.quick)]}
    result = measure_parts(arguments, {"quick": arguments.quick, "steps": steps}, parts)
    conclude(arguments, result | {"claims": make_claims(result["situations"])}, show)


def show(result: Numbers) -> None:
    steps = result["steps"]
    print("Excess objective on the pooled data after M local steps, mean over repetitions\n")
    shown = steps[:: max(1, len(steps) // 5)]
    show_table(
        ["situation", "Λ", "largest |w·x|", *(f"M={m}" for m in shown), "slope", "average of exact SVMs"],
        [
            [
                found["name"],
                f"{found['regularization']:g}",
                f"{found['margins']:.2f}" if found["large"] else "-",
                *(f"{found['excess'][steps.index(m)]:.1e}" for m in shown),
                f"{found['slope']:.3f}",
                f"{found['level']:.1e}",
            ]
            for found in result["situations"]
        ],
    )


def situations(quick: bool) -> list[Situation]:
    rng = np.random.default_rng(14)
    few = 2 if quick else 1
    random, one_class = spread_at_random(rng), one_class_each(rng)
    return [
        Situation("spread at random", True, *random, 2.0, 0.5, 6 // few),
        Situation("one class per party", True, *one_class, 20.0, 1.0, 48 // few),
        Situation("spread at random", False, *random, 0.02, 50.0, 4 // few),
        Situation("one class per party", False, *one_class, 0.5, 10.0, 16 // few),
    ]


def spread_at_random(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """20 parties × 50 records in 10 dimensions, at most 1 long; both classes everywhere."""
    signs = rng.choice([-1.0, 1.0], size=(20, 50))
    direction = np.full(10, 10**-0.5)
    features = signs[:, :, None] * direction + rng.standard_normal((20, 50, 10)) * 0.6
    return features / np.maximum(1.0, np.linalg.norm(features, axis=2, keepdims=True)), signs


def one_class_each(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The paper's Figure 2: two point clouds in the plane, one at each party; a constant 1 in front, at most 5 long."""
    signs = np.repeat([[1.0], [-1.0]], 500, axis=1)
    centres = np.array([[1.5, 2.0], [-2.0, -1.0]])
    points = centres[:, None, :] + 0.7 * rng.standard_normal((2, 500, 2))
    features = np.concatenate([np.ones((2, 500, 1)), points], axis=2)
    return features * np.minimum(1.0, 5.0 / np.linalg.norm(features, axis=2, keepdims=True)), signs


def exact_svm(features: Floats, signs: Floats, regularization: float) -> Floats:
    """The hinge-loss SVM without intercept, by dual coordinate descent.

    The objective depends on the products sign·x only, so every other record is mirrored: liblinear wants two classes.
    """
    mirror = np.where(np.arange(len(signs)) % 2 == 0, 1.0, -1.0)
    products = features * signs[:, None]
    penalty = 1.0 / (len(signs) * regularization)
    model = LinearSVC(C=penalty, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=1_000_000, random_state=0)
    weights: Floats = model.fit(products * mirror[:, None], mirror).coef_[0]
    return weights


def run(situation: Situation, steps: list[int]) -> dict[str, Any]:
    """The excess after each number of steps, and what it should tend to."""
    features, signs = situation.pooled()

    def excess_of(model: Floats) -> float:
        return hinge_objective(model, features, signs, situation.regularization) - least

    least = hinge_objective(situation.pooled_optimum(), features, signs, situation.regularization)
    margins = situation.margins()
    if situation.large and margins >= 1.0:
        raise ValueError(f"Expected all records inside the margin, got |w·x| = {margins}.")
    runs = np.empty((len(steps), situation.repetitions))
    for position, count in enumerate(steps):
        say(f"{situation.name}, Λ = {situation.regularization:g}: {count} steps")
        for repetition in range(situation.repetitions):
            runs[position, repetition] = excess_of(average_model(situation, count, seed=(count, repetition)))
    excess = runs.mean(axis=1)
    fitted = np.array(steps) >= FITTED_FROM
    return {
        "name": situation.name,
        "large": situation.large,
        "regularization": situation.regularization,
        "margins": margins,
        "excess": excess.tolist(),
        "lowest": np.quantile(runs, 0.1, axis=1).tolist(),
        "highest": np.quantile(runs, 0.9, axis=1).tolist(),
        "slope": float(np.polyfit(np.log(np.array(steps)[fitted]), np.log(excess[fitted]), 1)[0]),
        "level": excess_of(situation.average_of_optima()),
    }


def average_model(situation: Situation, steps: int, seed: tuple[int, int]) -> Floats:
    """The average of the parties' models; each step of a party looks at one of its records, drawn at random."""
    rng = np.random.default_rng(seed)
    models = [
        weighted_average_descent(
            features,
            signs,
            situation.regularization,
            steps,
            situation.radius,
            rng.integers(len(signs), size=steps),
        )
        for features, signs in zip(situation.features, situation.signs, strict=True)
    ]
    return np.asarray(np.mean(models, axis=0))


def make_claims(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    claims = []
    for result in results:
        where = f"{result['name']}, Λ = {result['regularization']:g}"
        if result["large"]:
            text = f"{where}: slope of the excess against M in log-log"
            claims.append(claim("slope", text, result["slope"], at_least=-1.2, at_most=-0.8))
        else:
            text = f"{where}: last excess over that of the average of the exact local SVMs"
            claims.append(claim("level", text, result["excess"][-1] / result["level"], at_least=0.8))
    return claims


if __name__ == "__main__":
    main()
