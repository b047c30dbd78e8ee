"""Claim: public records without labels make linear classifiers better where noise is large, and no worse elsewhere.

Every linear method with and without a public file, with its defaults. Runs of the whole engine with fresh noise (and,
but for adult and scattering, another split each time), δ = 1e-5, one record replaced. With --cifar FILE the CIFAR-10
features, with --scattering FILE features of Fashion-MNIST, and with --fashion FOLDER its bare pixels, for 1,000 parties
of 50 records of which half collude; with --adult FILE adult, for 100 parties. Public rows are neither learnt from nor
tested with: those of CIFAR-10 and Fashion-MNIST are taken from the 10,000 test rows.
"""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Numbers, claim, conclude, measure_parts, run_options, say, show_table
from benchmarks.public.data import Rows, Setting, add_options, settings
from benchmarks.studies import ArrayFederation, deal, method_for, run, share_right, study
from unspoken.data.public import with_public

RESULTS = Path(__file__).with_name("results.json")
_CHANCE = 2.5
"""A loss within so many deviations of a difference of means is put down to chance."""


def main() -> None:
    parser = run_options(__doc__, RESULTS)
    add_options(parser)
    arguments = parser.parse_args()
    made = settings(arguments)
    parts = {
        "/".join([name, keys["name"], words(size)]): partial(measure, setting, keys, size, arguments)
        for name, setting in made.items()
        for keys in (setting.methods[:2] if arguments.quick else setting.methods)
        for size in (0, *setting.sizes)
    }
    result = measure_parts(arguments, {"quick": arguments.quick}, parts)
    conclude(arguments, {**result, "claims": make_claims(result)}, show)


def words(size: int | None) -> str:
    """A number of public rows."""
    return "none" if size == 0 else "all" if size is None else str(size)


def measure(setting: Setting, keys: dict[str, Any], size: int | None, arguments: Any) -> Numbers:
    """Accuracies, in %, by ε: the mean, and its standard error."""
    repeats = arguments.repeats or (3 if arguments.quick else setting.repeats)
    found: Numbers = {"runs": repeats, "accuracy": {}}
    for epsilon in setting.epsilons:
        accuracies = runs(setting, keys, size, epsilon, repeats)
        spread = float(np.std(accuracies, ddof=1) / np.sqrt(repeats)) if repeats > 1 else 0.0
        found["accuracy"][f"{epsilon:g}"] = [float(np.mean(accuracies)), spread]
        say(f"{keys['name']}, public {words(size)}, ε = {epsilon:g}: {np.mean(accuracies):.2f} ± {spread:.2f}")
    return found


def runs(setting: Setting, keys: dict[str, Any], size: int | None, epsilon: float, repeats: int) -> list[float]:
    """The accuracies, in %, of some runs. Where there is one split, records are mapped once for all of them."""
    found: list[float] = []
    rows: Rows | None = None
    for seed in range(repeats):
        split = setting.rows(seed)
        if split is not rows:
            rows, each = split, len(split.train) // setting.parties
            agreed = study(
                {"features": rows.public.shape[1], "classes": setting.classes, "intercept": setting.intercept},
                {"count": setting.parties, "records": each, "max_records": each + 1},
                {"epsilon": epsilon, "delta": 1e-5, "colluding": setting.colluding},
                keys,
            )
            if size != 0:
                agreed = with_public(agreed, rows.public[:size])
            method = method_for(agreed)
            groups = deal(len(rows.train), setting.parties)
            federation = ArrayFederation(agreed, rows.train, groups, method.directions)
        release = run(method, federation).release
        found.append(100.0 * share_right(agreed, release, rows.test.features, rows.test.labels))
    gc.collect()
    return found


def tables(result: Numbers) -> dict[str, dict[str, dict[str, Numbers]]]:
    """What was found, by data set, method and number of public rows."""
    found: dict[str, dict[str, dict[str, Numbers]]] = {}
    for part, numbers in result.items():
        if part not in ("quick", "claims"):
            name, method, size = part.split("/")
            found.setdefault(name, {}).setdefault(method, {})[size] = numbers
    return found


def make_claims(result: Numbers) -> list[dict[str, Any]]:
    made = []
    for name, methods in tables(result).items():
        for method, sizes in methods.items():
            without = sizes.get("none", {"accuracy": {}})["accuracy"]
            for size in sizes.keys() - {"none"}:
                with_rows = sizes[size]["accuracy"]
                pairs = [(with_rows[epsilon], without[epsilon]) for epsilon in without if epsilon in with_rows]
                if pairs:
                    made += _compared(f"{name}, {method}, {size} public rows", pairs)
    return made


def _compared(what: str, pairs: list[Any]) -> list[dict[str, Any]]:
    least = pairs[0][0][0] - pairs[0][1][0]
    worst = min((one - other) / max(np.hypot(a, b), 0.1) for (one, a), (other, b) in pairs)
    return [
        claim("gain", f"{what}: points gained at the smallest ε", least, at_least=0.0),
        claim("harmless", f"{what}: worst gain in deviations", float(worst), at_least=-_CHANCE),
    ]


def show(result: Numbers) -> None:
    for name, methods in tables(result).items():
        print(f"\n{name}: accuracy in %")
        show_table(*table(methods))


def table(methods: dict[str, dict[str, Numbers]]) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of a data set's table."""
    epsilons = list(next(iter(next(iter(methods.values())).values()))["accuracy"])
    rows = [
        [method, size, *(_cell(numbers["accuracy"].get(epsilon)) for epsilon in epsilons)]
        for method, sizes in methods.items()
        for size, numbers in sizes.items()
    ]
    return ["method", "public rows", *(f"ε = {epsilon}" for epsilon in epsilons)], rows


def _cell(numbers: list[float] | None) -> str:
    return "" if numbers is None else f"{numbers[0]:.1f} ± {numbers[1]:.1f}"


if __name__ == "__main__":
    main()
