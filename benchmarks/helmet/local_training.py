"""Claim: training all local models takes at most 1/20 of scikit-learn's time, and little memory beyond the data.

1,000 parties × 50 records × 6,144 features × 10 classes (class means plus noise, every row at unit length): all local
models and their average with `unspoken.learners`, a block of parties at a time on every core, against a loop over
scikit-learn's LogisticRegression and LinearSVC. BLAS has one thread in both. scikit-learn is timed on some of the
parties and extrapolated linearly. The ratio of clock times needs a machine with nothing else to do, as ours uses all
cores and a loop only one; the ratio of CPU times compares the work alone.

Both work to the same accuracy where that can be said: scikit-learn's `tol` is the loosest power of ten for which the
gradient norm of its objective, at the worst of a few parties, is within the one that our certificate promises. For
the softmax both objectives are the same, and the models are compared too. scikit-learn has no Huber SVM: the squared
hinge loss is compared by the gradient of its own objective; the hinge loss has no gradient and gets the same `tol`.
Our own gradient norms are computed again from the finished models, by another formula than the solver's.
"""

from __future__ import annotations

import argparse
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from benchmarks.common import Numbers, PeakMemory, best_of, claim, conclude, options, say, show_table
from benchmarks.studies import Floats, Integers
from unspoken.data.block import Block
from unspoken.learners.linear import SLACK, LinearLearner
from unspoken.learners.losses import CrossEntropy, HuberSVM, Loss

CLASSES = 10
REGULARIZATIONS = (0.1, 0.01)
BLOCK_PARTIES = 32
CORES = os.cpu_count() or 1


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--parties", type=int, help="another number of parties")
    parser.add_argument("--sample", type=int, default=50, help="how many parties scikit-learn is timed on")
    arguments = parser.parse_args()
    conclude(arguments, training(arguments), show)


def training(arguments: argparse.Namespace) -> Numbers:
    parties, records, features = (64, 50, 1024) if arguments.quick else (1000, 50, 6144)
    parties = arguments.parties or parties
    sample = min(parties, 4 if arguments.quick else arguments.sample)
    say(f"making {parties:,} parties × {records} records × {features:,} features")
    block = make_block(np.random.default_rng(0), parties, records, features)
    learners = [
        LinearLearner(loss, 1.0, regularization)
        for loss in (CrossEntropy(CLASSES), HuberSVM(CLASSES))
        for regularization in REGULARIZATIONS
    ]
    with threadpool_limits(limits=1, user_api="blas"):
        say("memory of all our trainings")
        with PeakMemory() as memory:
            for learner in learners:
                average_model(learner, block)
        rows = [row for learner in learners for row in compare(learner, block, sample, arguments.quick)]
    return {
        "parties": parties,
        "records": records,
        "features": features,
        "classes": CLASSES,
        "cores": CORES,
        "sklearn_sample": sample,
        "data_gb": block.features.nbytes / 1e9,
        "memory_gb": memory.above / 1e9,
        "rows": rows,
        "claims": training_claims(rows, memory.above / 1e9),
    }


def training_claims(rows: list[dict[str, Any]], memory_gb: float) -> list[dict[str, Any]]:
    comparable = min(row["ratio"] for row in rows if row["sklearn_gradient"] is not None)
    hinge = min(row["ratio"] for row in rows if row["sklearn_gradient"] is None)
    gradient = max(row["gradient"] / row["certificate"] for row in rows)
    difference = max(row["difference"] for row in rows if row["difference"] is not None)
    return [
        claim("speed", "scikit-learn's time over ours, to a comparable gradient", comparable, at_least=20.0),
        claim("speed-hinge", "the same for its hinge loss, which has no gradient", hinge, at_least=20.0),
        claim("seconds", "our slowest training in seconds", max(row["seconds"] for row in rows), at_most=3.0),
        claim("memory", "peak memory above the data in GB", memory_gb, at_most=1.0),
        claim("gradient", "our largest gradient norm over the certificate's", gradient, at_most=1.0),
        claim("difference", "largest difference of a softmax weight from scikit-learn's", difference, at_most=1e-6),
    ]


def show(result: Numbers) -> None:
    parties, sample = result["parties"], result["sklearn_sample"]
    print(
        f"{parties:,} parties × {result['records']} records × {result['features']:,} features × {CLASSES} classes "
        f"({result['data_gb']:.2f} GB), {CORES} cores\nscikit-learn: {sample} parties timed, one after the other, and "
        f"extrapolated to {parties:,}; CPU ratio: of the work on all cores, as if its loop were spread over them\n"
        "gradient: the largest norm, over a few parties, of each objective's own gradient at the finished models\n"
    )
    headings = ["models", "Λ", "ours s", "on cores", "scikit-learn s", "ratio", "CPU ratio", "tol"]
    headings += ["certificate", "our gradient", "its gradient", "model differs"]
    show_table(
        headings,
        [
            [
                f"{row['learner']} / {row['sklearn']}",
                f"{row['regularization']:g}",
                f"{row['seconds']:.2f}",
                f"{row['cores_used']:.1f}",
                f"{row['sklearn_seconds']:.1f}",
                f"{row['ratio']:.1f}",
                f"{row['processor_ratio']:.1f}",
                f"{row['tol']:.0e}",
                f"{row['certificate']:.1e}",
                f"{row['gradient']:.1e}",
                "-" if row["sklearn_gradient"] is None else f"{row['sklearn_gradient']:.1e}",
                "-" if row["difference"] is None else f"{row['difference']:.1e}",
            ]
            for row in result["rows"]
        ],
    )
    if min(row["cores_used"] for row in result["rows"]) < 0.8 * CORES:
        print(f"\nThe machine was busy: ours had not all {CORES} cores to itself, so its ratios are too low.")


def make_block(rng: np.random.Generator, parties: int, records: int, features: int) -> Block:
    """Class means plus noise, rows of unit length; every party has (almost) equally many records of each class."""
    means = 0.3 * rng.standard_normal((CLASSES, features))
    vectors = np.empty((parties, records, features))
    labels = rng.permuted(np.tile(np.arange(records) % CLASSES, (parties, 1)), axis=1)
    for party in range(parties):
        rng.standard_normal(out=vectors[party])
        vectors[party] += means[labels[party]]
        vectors[party] /= np.linalg.norm(vectors[party], axis=1, keepdims=True)
    return Block(vectors, labels, np.full(parties, records))


def compare(learner: LinearLearner, block: Block, sample: int, quick: bool) -> list[dict[str, Any]]:
    """Time ours and scikit-learn's on the same parties; one row for each of scikit-learn's learners."""
    name, regularization = type(learner.loss).__name__, learner.regularization
    say(f"{name}, Λ = {regularization:g}: ours")
    seconds, processor = best_of(3 if quick else 5, lambda: average_model(learner, block))
    few = min(sample, 8)
    models = learner.fit(part(block, 0, few))
    certificate = SLACK / 2.0 * learner.lipschitz / block.features.shape[1]
    gradient = max(
        gradient_norm(learner.loss, models[p], block.features[p], block.labels[p], regularization) for p in range(few)
    )
    common = {
        "learner": name,
        "regularization": regularization,
        "seconds": seconds,
        "cores_used": processor / seconds,
        "certificate": certificate,
        "gradient": gradient,
    }
    exact = "LogisticRegression" if name == "CrossEntropy" else "squared hinge"
    say(f"{name}, Λ = {regularization:g}: scikit-learn's {exact}")
    tol, reached = loosest_tolerance(exact, block, few, regularization, certificate)
    difference = softmax_difference(models, block, regularization, tol) if name == "CrossEntropy" else None
    rows = [{**common, "sklearn": exact, "tol": tol, "sklearn_gradient": reached, "difference": difference}]
    if name == "HuberSVM":
        rows.append({**common, "sklearn": "hinge", "tol": tol, "sklearn_gradient": None, "difference": None})
    for row in rows:
        theirs, their_processor = time_sklearn(row["sklearn"], block, sample, regularization, tol)
        row["sklearn_seconds"] = theirs * len(block) / sample
        row["ratio"] = row["sklearn_seconds"] / seconds
        row["processor_ratio"] = their_processor * len(block) / sample / processor
    return rows


def average_model(learner: LinearLearner, block: Block) -> Floats:
    """All local models and their average, a block of parties at a time on every core; no model is kept."""

    def total(start: int) -> Floats:
        models: Floats = learner.fit(part(block, start, start + BLOCK_PARTIES)).sum(axis=0)
        return models

    average = np.zeros((learner.loss.outputs, block.features.shape[2]))
    with ThreadPoolExecutor(CORES) as pool:
        for models in pool.map(total, range(0, len(block), BLOCK_PARTIES)):
            average += models
    return average / len(block)


def part(block: Block, start: int, end: int) -> Block:
    """Some of the block's parties, without copying them."""
    return Block(block.features[start:end], block.labels[start:end], block.counts[start:end])


def fit_sklearn(kind: str, block: Block, party: int, regularization: float, tol: float) -> Floats:
    """One party's model by scikit-learn, whose objective is ours divided by Λ."""
    vectors, labels = block.features[party], block.labels[party]
    penalty = 1.0 / (len(labels) * regularization)
    if kind == "LogisticRegression":
        model = LogisticRegression(C=penalty, fit_intercept=False, tol=tol, max_iter=10_000)
    else:
        model = LinearSVC(C=penalty, loss=kind.replace(" ", "_"), fit_intercept=False, tol=tol, max_iter=100_000)
    weights: Floats = model.fit(vectors, labels).coef_
    return weights


def time_sklearn(kind: str, block: Block, sample: int, regularization: float, tol: float) -> tuple[float, float]:
    def loop() -> None:
        for party in range(sample):
            fit_sklearn(kind, block, party, regularization, tol)

    return best_of(2, loop)


def loosest_tolerance(
    kind: str, block: Block, parties: int, regularization: float, certificate: float
) -> tuple[float, float]:
    """The largest power of ten with which scikit-learn's models have a gradient as small as ours; and that gradient."""
    loss: Loss | None = CrossEntropy(CLASSES) if kind == "LogisticRegression" else None
    best = (1e-6, np.inf)
    for exponent in range(6, 13):
        tol = 10.0**-exponent
        norms = []
        for party in range(parties):
            weights = fit_sklearn(kind, block, party, regularization, tol)
            norms.append(gradient_norm(loss, weights, block.features[party], block.labels[party], regularization))
        if max(norms) < best[1]:
            best = (tol, max(norms))
        if best[1] <= certificate:
            break
    return best


def gradient_norm(
    loss: Loss | None, weights: Floats, vectors: Floats, labels: Integers, regularization: float
) -> float:
    """‖∇J‖ for J(W) = Λ/2‖W‖² + mean loss, written out; without a loss: the squared hinge of one class against all."""
    scores = vectors @ weights.T
    hot = labels[:, None] == np.arange(CLASSES)
    signs = np.where(hot, 1.0, -1.0)
    if isinstance(loss, CrossEntropy):
        exponentials = np.exp(scores)
        slopes = exponentials / exponentials.sum(axis=1, keepdims=True) - hot
    elif isinstance(loss, HuberSVM):
        margins, width = signs * scores, loss.smoothing
        steepness = np.select(
            [margins > 1.0 + width, margins < 1.0 - width], [0.0, 1.0], (1.0 + width - margins) / (2.0 * width)
        )
        slopes = -signs * steepness
    else:
        slopes = -2.0 * signs * np.maximum(0.0, 1.0 - signs * scores)
    gradient = slopes.T @ vectors / len(labels) + regularization * weights
    return float(np.linalg.norm(gradient))


def softmax_difference(models: Floats, block: Block, regularization: float, tol: float) -> float:
    """The largest difference of a weight between our models of the first parties and scikit-learn's."""
    theirs = [fit_sklearn("LogisticRegression", block, party, regularization, tol) for party in range(len(models))]
    return float(np.abs(models - np.stack(theirs)).max())


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    main()
