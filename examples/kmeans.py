"""Private k-means: a function of one's own in several turns, under one budget.

In each turn the parties get the centres, assign their rows to the nearest one, and add up for each centre its rows and
their number. The noisy totals make the next centres. Run it with `python examples/kmeans.py`.

Sensitivity. Rows have norm at most 1, so a row adds (x, 1), of norm at most √2, to one centre's numbers. Replaced, it
leaves one centre and comes to another, or stays: it moves the numbers by at most √(2 + 2) = 2, or ‖x − x'‖ ≤ 2.
"""

from __future__ import annotations

import math

import numpy as np

import unspoken
from unspoken.simulation import Computation

CENTRES, TURNS, PARTIES = 3, 5, 6


def assigned(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """What a party contributes: the sum of each centre's rows, and how many they are."""
    centres = centres.reshape(CENTRES, -1)
    nearest = ((rows[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    indicators = (nearest[:, None] == np.arange(CENTRES)).astype(float)
    return np.column_stack([indicators.T @ rows, indicators.sum(axis=0)]).ravel()


def moved(total: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The next centres: noisy sums over noisy numbers. A centre that nobody is near stays where it is."""
    numbers = total.reshape(CENTRES, -1)
    counts = numbers[:, -1:]
    return np.where(counts > 1.0, numbers[:, :-1] / np.maximum(counts, 1.0), centres.reshape(CENTRES, -1))


def clustered(
    rows: np.ndarray, parties: np.ndarray, epsilon: float, method: str = "cape", **options: object
) -> Computation:
    """Private centres of rows of norm at most 1, and their certificate."""
    features = rows.shape[1]
    angles = 2.0 * math.pi * np.arange(CENTRES) / CENTRES
    start = np.zeros((CENTRES, features))
    start[:, 0], start[:, 1] = 0.5 * np.cos(angles), 0.5 * np.sin(angles)
    return unspoken.compute(
        assigned,
        rows,
        parties,
        dimension=CENTRES * (features + 1),
        sensitivity=2.0,
        bound=math.sqrt(2.0) * float(np.bincount(parties).max()),
        norm=1.0,
        epsilon=epsilon,
        delta=1e-6,
        turns=TURNS,
        start=start,
        update=moved,
        parameter_bounds=(-1.0, 1.0),
        method=method,
        **options,
    )


def made_up(seed: int = 0, count: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Three groups of points, and where their middles are."""
    rng = np.random.default_rng(seed)
    middles = np.array([[0.6, 0.2], [-0.5, 0.5], [0.0, -0.6]])
    return middles[rng.integers(0, 3, count)] + rng.normal(0.0, 0.08, (count, 2)), middles


if __name__ == "__main__":
    points, middles = made_up()
    result = clustered(points, np.arange(len(points)) % PARTIES, epsilon=1.0)
    print("centres:", result.parameters.reshape(CENTRES, -1).round(3).tolist())
    print("true middles:", middles.tolist())
    print(result.guarantee.sentence())
