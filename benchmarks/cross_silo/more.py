"""Figure 2 with the other sampling and with the paper's network, Figure 4 for larger networks and with their time,
Figure 5 (pairwise masks)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.common import say
from benchmarks.cross_silo.data import Images
from benchmarks.cross_silo.points import PARTIES, Curve, measured, study_of
from benchmarks.cross_silo.rounds import Setting
from benchmarks.studies import plan_of

PROJECTED_EPSILON = 1.7
"""The paper's, in its Figure 4."""


SAMPLINGS = {
    "secure sums, Poisson": ("cross-silo", "poisson"),
    "secure sums, within parties": ("cross-silo", "within-parties"),
    "a trusted curator, Poisson": ("central", "poisson"),
    "a trusted curator, without replacement": ("central", "without-replacement"),
}


def sampling_sweep(images: Images, epsilons: Sequence[float], runs: int) -> dict[str, Any]:
    """Accuracy with batches without replacement beside Poisson sampling; and the noise with lists of tokens."""
    found = _by_sampling(images, SAMPLINGS, tuple({"learning_rate": r} for r in images.learning_rates), epsilons, runs)
    noise = {}
    for sampling in ("poisson", "within-parties", "without-replacement"):
        plans = [plan_of(study_of(images, "cross-silo", PARTIES, each, {"sampling": sampling})) for each in epsilons]
        noise[sampling] = [plan.sums[0].noise_std for plan in plans]
        if sampling == "without-replacement":
            upload = plans[0].upload_bytes
    return {
        **found,
        "noise": noise,
        "upload_by_tokens": upload,
        "upload": plans[0].sums[0].dimension * 4 * images.rounds,
    }


def network_sweep(images: Images, epsilons: Sequence[float], quick: bool, runs: int) -> dict[str, Any]:
    """Figure 2 with the paper's layers: convolutions that were trained on public images and stay as they are, whose
    outputs are the features here, and two hidden layers that begin at random."""
    hidden = [16, 16] if quick else [384, 384]
    choices = tuple(
        {"model": "mlp", "hidden": hidden, "momentum": 0.9, "learning_rate": rate / 6.0}
        for rate in images.learning_rates
    )
    ways = {**SAMPLINGS, "every party alone, Poisson": ("local", "poisson")}
    plan = plan_of(study_of(images, "cross-silo", PARTIES, 1.0, choices[0]))
    layers = {"hidden": hidden, "weights": plan.sums[0].dimension}
    return {**_by_sampling(images, ways, choices, epsilons, runs), **layers}


def _by_sampling(
    images: Images,
    ways: dict[str, tuple[str, str]],
    choices: tuple[dict[str, Any], ...],
    epsilons: Sequence[float],
    runs: int,
) -> dict[str, Any]:
    """Accuracy against ε by each method and sampling, with the best of the choices."""
    curves = {}
    for label, (method, sampling) in ways.items():
        say(f"{images.name}, {len(images.labels):,} records, {choices[0].get('model', 'linear')}: {label}")
        curve = Curve(label, method, tuple({**choice, "sampling": sampling} for choice in choices))
        curves[label] = [measured(images, curve, PARTIES, epsilon, runs) for epsilon in epsilons]
    return {
        "data": images.name,
        "records": len(images.labels),
        "rounds": images.rounds,
        "rate": images.rate,
        "runs": runs,
        "epsilons": list(epsilons),
        "curves": curves,
    }


def larger_networks(images: Images, quick: bool, runs: int) -> dict[str, Any]:
    """Accuracy and processor time of a round against the length of projected gradients, for networks of one layer."""
    lengths = (100, None) if quick else (100, 1_000, 10_000, 100_000, None)
    found: list[dict[str, Any]] = []
    for wanted in (2_000,) if quick else (100_000, 1_000_000):
        hidden = max(2, wanted // (images.features.shape[1] + 11))
        weights = (images.features.shape[1] + 1) * hidden + (hidden + 1) * 10
        points = []
        for length in (size for size in lengths if size is None or size < weights):
            say(f"a network of {weights:,} weights, projected to {length or weights:,} numbers")
            # E‖PPᵀu‖² is about (d/k)‖u‖², so steps are shorter.
            shorter = length / weights if length else 1.0
            common = {"model": "mlp", "hidden": [hidden]} | ({"projection": length} if length else {})
            choices = tuple({"learning_rate": rate * shorter**0.25, **common} for rate in images.learning_rates)
            point = measured(images, Curve("", "cross-silo", choices), PARTIES, PROJECTED_EPSILON, runs)
            setting = Setting(PARTIES, 20 if quick else 500, (max(2, wanted // 795),), 0.2, 2, length)
            seconds = {each: setting.seconds(each, 1 if quick else 3) for each in ("ideal", "compute-nodes")}
            points.append({"size": length or weights, **point, "seconds": seconds})
        found.append({"weights": weights, "hidden": hidden, "points": points})
    return {
        "data": images.name,
        "epsilon": PROJECTED_EPSILON,
        "runs": runs,
        "rounds": images.rounds,
        "records": len(images.labels),
        "networks": found,
    }


def pair_sweep(quick: bool) -> dict[str, Any]:
    """Processor seconds of a whole round by pairwise masks, over those with the ideal sum."""
    counts = (3, 6) if quick else (4, 8, 16, 32, 64, 100)
    hidden = (32,) if quick else (680, 680)
    protocols = ("pairwise", "secagg", "secagg+")
    folds: dict[str, list[float]] = {name: [] for name in protocols}
    setting = Setting(counts[0], 20 if quick else 600, hidden, 0.01, 2)
    repeats = 1 if quick else 5
    for count in counts:
        here = replace(setting, parties=count)
        ideal = here.seconds("ideal", repeats)
        for name in protocols:
            folds[name].append(here.seconds(name, repeats) / ideal)
    return {"weights": setting.weights, "parties": list(counts), "repeats": repeats, "folds": folds}
