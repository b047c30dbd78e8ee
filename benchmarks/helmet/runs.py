"""Claim: blind averaging loses little if the same records are spread over more parties; federated learning loses much.

Figures 3, 4, 5 and 8 and Table 2 of Secure Distributed DP-Helmet again, on
CIFAR-10 features (--cifar FILE) and on scattering features of Fashion-MNIST (--scattering FILE); half of the parties
collude, δ = 1e-5 where nothing else is said. Λ and radius are chosen by `unspoken.tune` for each ε on public records
that no party has and no test uses; federated learning and DP-SGD have settings that were fixed beforehand. Each number
is the mean of some runs of the whole engine with fresh noise.

The sizes are the paper's (`FULL` in `paper_data.py`); --quick has digits only.
`--only PART …` measures some parts again, and leaves the others as they are.
Writes the numbers (with --quick only if --results is given); `python -m benchmarks.helmet.page` makes page and plots.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.helmet.accuracy import RESULTS
from benchmarks.helmet.paper_data import Images, add_paper_options, data_sets
from benchmarks.helmet.remembering import Remembering
from benchmarks.studies import ArrayFederation, Study, method_for, run, share_right, split
from unspoken.data.bounding import clip_rows
from unspoken.learners.scores import classify
from unspoken.methods.base import Trials
from unspoken.methods.helmet import Helmet
from unspoken.methods.helmet_rules import weight_noise
from unspoken.simulation.tuning import tune_records

LEARNERS = ("softmax", "svm")
DP_FL = ("local", "fedsgd")
GROUPS: tuple[Any, ...] = (1, 2, 5, 10, 50, "party")
CROWDS = {1_000: 1e-5, 10_000: 1e-6, 200_000: 1e-10, 20_000_000: 1e-12}
"""Numbers of parties, each with a δ below one over the number of their records; for the last two it is the paper's"""
CROWD_EPSILON = 0.1
SMALLER = (1e-4, 1e-3, 1e-2)
"""Further ε for the crowds that the paper has"""
BIASED = (0.0025, 0.01, 0.03, 0.1, 0.3)
"""Λ of Table 2's rows: the first is the paper's 3 at c = 34.854, brought to c = 1"""
TABLE_EPSILON = 1.172
ALLOWED = 8.0
"""Points that may be lost from few parties to many, at the largest ε"""


def main() -> None:
    parser = run_options(__doc__, RESULTS)
    add_paper_options(parser)
    arguments = parser.parse_args()
    found = list(data_sets(arguments))
    parts: dict[str, Callable[[], Any]] = {}
    for data in found:
        for figure, measure in FIGURES.items():
            parts[f"{data.name}-{figure}"] = partial(measure, data)
    # Numbers of other programs, and of data sets that were not named, stay as they are.
    arguments.only = arguments.only or list(parts)
    sizes = {f"{data.name}-size": _size(data, arguments) for data in found}
    result = measure_parts(arguments, {"quick": arguments.quick, **sizes}, parts)
    conclude(arguments, {**result, "claims": make_claims(result)}, show)


def _size(data: Images, arguments: argparse.Namespace) -> dict[str, Any]:
    counts = {"records": len(data.train), "public": len(data.public), "test": len(data.test)}
    size, few = data.size, data.size.federated_runs or data.size.runs
    times = {"runs": size.runs, "federated_runs": few, "rounds": size.rounds}
    times["federated_rounds"] = size.federated_rounds or size.rounds
    return {"quick": arguments.quick, **counts, **times, "parties": size.parties}


# --- What a cell is --------------------------------------------------------------------------------------------------


def tuned(data: Images, keys: dict[str, Any], parties: int, epsilons: tuple[float, ...], **how: Any) -> list[Any]:
    """Blind averaging with settings chosen on public records for each ε, then measured on test records."""
    kind = how.pop("split", "iid")
    found = tune_records(data.study(keys, parties, 1.0, **how), data.public, Trials(epsilons, kind, 1))
    kept = Remembering()
    return [
        measured(data, keys | choice.settings["method"], parties, choice.epsilon, kept=kept, split=kind, **how)
        for choice in found.choices
    ]


def measured(data: Images, keys: dict[str, Any], parties: int, epsilon: float, **how: Any) -> dict[str, Any]:
    """Mean accuracy of some runs in %, with fresh noise on the same split."""
    kept, kind, runs = how.pop("kept", None), how.pop("split", "iid"), how.pop("runs", data.size.runs)
    agreed = data.study(keys, parties, epsilon, **how)
    method = method_for(agreed)
    if kept is not None and isinstance(method, Helmet):
        kept.watch(method)
    groups = split(kind, data.train.labels, parties, seed=0)
    federation = ArrayFederation(agreed, data.train, groups)
    right = [_right(data, agreed, run(method, federation).release) for _ in range(runs)]
    say(f"{data.name}: {keys}, {parties} parties, ε = {epsilon:g}: {np.mean(right):.1f}")
    return {
        "epsilon": epsilon,
        "parties": parties,
        "regularization": keys.get("regularization"),
        "accuracy": float(np.mean(right)),
        "deviation": float(np.std(right)) if runs > 1 else None,
    }


def _right(data: Images, agreed: Study, release: Any) -> float:
    return 100.0 * share_right(agreed, release, data.test.features, data.test.labels)


def _federated(data: Images, name: str) -> dict[str, Any]:
    """The keys of DP-SGD and of federated learning, fixed beforehand."""
    rounds = (data.size.federated_rounds if name in DP_FL else None) or data.size.rounds
    if name == "fedsgd":
        few = max(1, rounds // 5)
        return {"name": name, "model": "linear", "rounds": few, "local_steps": 5, "rate": 0.2, "local_rate": 4.0}
    return {"name": name, "model": "linear", "rounds": rounds, "rate": 0.1, "learning_rate": 4.0}


# --- Figures ---------------------------------------------------------------------------------------------------------


def spread(data: Images) -> list[dict[str, Any]]:
    """Figure 3, top and bottom: the same records over more and more parties."""
    rows = []
    for parties in data.size.parties:
        for learner in LEARNERS:
            cells = tuned(data, {"name": "helmet", "learner": learner}, parties, data.size.epsilons)
            rows += [{"method": f"helmet, {learner}", **cell} for cell in cells]
    return rows


def plain(data: Images) -> float:
    """Logistic regression on all records in one place, without privacy."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=100.0, max_iter=100, tol=1e-3).fit(data.train.features, data.train.labels)
    return 100.0 * float(model.score(data.test.features, data.test.labels))


def federated(data: Images) -> list[dict[str, Any]]:
    """The same figure's federated learning, and DP-SGD on records in one place."""
    rows = []
    for parties in data.size.parties:
        names = ("central",) if parties == 1 else DP_FL
        for name, epsilon in [(name, epsilon) for name in names for epsilon in data.size.epsilons[-2:]]:
            runs = (data.size.federated_runs if name in DP_FL else None) or data.size.runs
            cell = measured(data, _federated(data, name), parties, epsilon, runs=runs)
            rows.append({"method": name, **cell})
    if 1 not in data.size.parties:
        cells = [measured(data, _federated(data, "central"), 1, epsilon) for epsilon in data.size.epsilons[-2:]]
        rows += [{"method": "central", **cell} for cell in cells]
    return rows


def growing(data: Images) -> list[dict[str, Any]]:
    """Figure 4: more and more parties of 50 records, at one ε; with the naive average beside it."""
    rows, most = [], data.size.parties[-1]
    for parties in sorted({max(4, most // 16), most // 8, most // 4, most // 2, most}):
        part = data.first(parties * data.size.each)
        for name, learner in (("helmet", "softmax"), ("helmet", "svm"), ("independent-models", "softmax")):
            (cell,) = tuned(part, {"name": name, "learner": learner}, parties, (data.size.epsilon,))
            rows.append({"method": f"{name}, {learner}", **cell})
        rows.append({"method": "local", **measured(part, _federated(data, "local"), parties, data.size.epsilon)})
    return rows


def crowds(data: Images) -> dict[str, Any]:
    """Figure 5: groups of records and whole parties, among as many parties as one likes.

    As in the paper, the average is that of the parties that there are, and the noise that of the crowd.
    """
    parties, rows = data.size.parties[-1], []
    base = {"name": "helmet", "learner": "softmax", "regularization": 0.1, "weights": "equal"}
    cells = [(crowd, CROWD_EPSILON) for crowd in CROWDS]
    cells += [(crowd, epsilon) for crowd in list(CROWDS)[-2:] for epsilon in SMALLER]
    kept = Remembering()
    for unit in GROUPS:
        said = {"unit": unit if unit == "party" else {"group": unit}}
        method = method_for(data.study(base, parties, CROWD_EPSILON, **said))
        if not isinstance(method, Helmet):
            raise TypeError("Expected blind averaging.")
        bound = method.learner
        kept.watch(method)
        groups = split("iid", data.train.labels, parties, seed=0)
        blocks = ArrayFederation(method.study, data.train, groups).blocks()
        weights = np.sum([kept.average(method, block) for _, block in blocks], axis=0) / parties
        for crowd, epsilon in cells:
            agreed = data.study(base, parties, epsilon, delta=CROWDS[crowd], **said).with_parties(crowd)
            accuracy = _with_noise(data, weights, weight_noise(agreed, bound, by_records=False))
            where = {"parties": crowd, "epsilon": epsilon, "delta": CROWDS[crowd]}
            rows.append({"group": unit, **where, "accuracy": accuracy})
    return {"regularization": 0.1, "models": parties, "rows": rows}


def _with_noise(data: Images, weights: Any, noise: float) -> float:
    rng = np.random.default_rng(0)
    features = clip_rows(data.test.features, data.study({"name": "helmet"}, 2, 1.0).data)
    scores = [features @ (weights + noise * rng.normal(size=weights.shape)).T for _ in range(data.size.runs)]
    return 100.0 * float(np.mean([(classify(each) == data.test.labels).mean() for each in scores]))


def alone(data: Images) -> list[dict[str, Any]]:
    """Figure 8: all records at one party, for two δ."""
    rows, epsilons = [], data.size.epsilons[-3:]
    for delta in (1e-5, 2e-8):
        for learner in LEARNERS:
            cells = tuned(data, {"name": "helmet", "learner": learner}, 1, epsilons, delta=delta)
            rows += [{"method": f"helmet, {learner}", "delta": delta, **cell} for cell in cells]
        for epsilon in epsilons:
            cell = measured(data, _federated(data, "central"), 1, epsilon, delta=delta)
            rows.append({"method": "central", "delta": delta, **cell})
    return rows


def biased(data: Images) -> list[dict[str, Any]]:
    """Table 2: one class a party, at the paper's ε, for several Λ; and with the noise of 67 times as many parties.

    Beside it the length of the average and the deviation of its noise: what one class a party costs is signal.
    """
    rows = []
    for learner, regularization in [(learner, each) for learner in LEARNERS for each in BIASED]:
        keys = {"name": "helmet", "learner": learner, "regularization": regularization}
        row: dict[str, Any] = {"method": f"helmet, {learner}", "regularization": regularization}
        for kind in ("iid", "by-class"):
            weights, row["noise"] = _average(data, keys, kind)
            row[f"{kind}, length"] = float(np.linalg.norm(weights))
            for times in (1, 67):
                # ε of a Gaussian release grows with its noise's inverse, nearly: so the noise is divided, not ε raised.
                row[f"{kind}, {times}x"] = _with_noise(data, weights, row["noise"] / times)
        rows.append(row)
        say(f"{data.name}: {row}")
    return rows


def _average(data: Images, keys: dict[str, Any], kind: str) -> tuple[Any, float]:
    """The average of the parties' models without noise, and the deviation of the noise in each of its weights."""
    parties = data.size.parties[-1]
    method = method_for(data.study(keys, parties, TABLE_EPSILON))
    if not isinstance(method, Helmet):
        raise TypeError("Expected blind averaging.")
    noise = weight_noise(method.study, method.learner, method.by_records)
    groups = split(kind, data.train.labels, parties, seed=0)
    blocks = ArrayFederation(method.study, data.train, groups).blocks()
    total = np.sum([Remembering().average(method, block) for _, block in blocks], axis=0)
    return total / len(data.train), noise


FIGURES: dict[str, Callable[[Images], Any]] = {
    "table2": biased,
    "figure5": crowds,
    "plain": plain,
    "figure3": spread,
    "figure4": growing,
    "federated": federated,
    "figure8": alone,
}


def make_claims(result: Numbers) -> list[dict[str, Any]]:
    """From the fewest parties of more than one to the most, at the largest ε, softmax."""
    claims = []
    for name, part in result.items():
        if name.endswith("-figure3"):
            rows = [row for row in part if row["method"] == "helmet, softmax"]
            largest = max(row["epsilon"] for row in rows)
            there = sorted((row["parties"], row["accuracy"]) for row in rows if row["epsilon"] == largest)
            text = f"{name.removesuffix('-figure3')}: points lost from {there[0][0]} to {there[-1][0]} parties"
            claims.append(claim("spread", text, there[0][1] - there[-1][1], at_most=ALLOWED + 20.0 * result["quick"]))
    return claims


def show(result: Numbers) -> None:
    for name, part in result.items():
        if name.endswith("-figure3"):
            print(f"{name.removesuffix('-figure3')}: accuracy in %")
            rows = [[row["method"], row["parties"], row["epsilon"], f"{row['accuracy']:.1f}"] for row in part]
            show_table(["method", "parties", "ε", "accuracy"], rows)


if __name__ == "__main__":
    main()
