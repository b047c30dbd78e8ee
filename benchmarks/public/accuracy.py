"""Claim: public records without labels make linear classifiers better where noise is large, and no worse elsewhere.

Every linear method with and without a public file, with its defaults; beside them scikit-learn's model of the same
records without privacy (`benchmarks.reference`), and with --before FOLDER, a checkout of version 0.1, what that made of
the same study with its defaults. Runs of the whole engine with fresh noise (and, but for adult and scattering, another
split each time), δ = 1e-5, one record replaced. With --cifar FILE the CIFAR-10 features, with --scattering FILE
features of Fashion-MNIST, and with --fashion FOLDER its bare pixels, for 1,000 parties of 50 records of which half
collude; with --adult FILE adult, for 100 parties. Public rows are neither learnt from nor tested with: those of
CIFAR-10 and Fashion-MNIST are taken from the 10,000 test rows.
"""

from __future__ import annotations

import gc
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import reference
from benchmarks.before import Before, add_before
from benchmarks.common import (
    Kept,
    Numbers,
    claim,
    conclude,
    mean_and_error,
    measure_parts,
    run_options,
    say,
    show_table,
    with_error,
)
from benchmarks.public.data import Rows, Setting, add_options, settings
from benchmarks.studies import ArrayFederation, deal, make_study, method_for, run, share_right
from unspoken.data.public import with_public

RESULTS = Path(__file__).with_name("results.json")
_CHANCE = 2.5
"""A loss within so many deviations of a difference of means is put down to chance."""


def main() -> None:
    parser = run_options(__doc__, RESULTS)
    add_options(parser)
    add_before(parser)
    arguments = parser.parse_args()
    made = settings(arguments)
    parts = {
        "/".join([name, keys["name"], words(size)]): partial(measure, name, setting, keys, size, arguments)
        for name, setting in made.items()
        for keys in (setting.methods[:2] if arguments.quick else setting.methods)
        for size in (0, *setting.sizes)
    }
    kept = Kept(arguments.resume)
    parts |= {
        f"{name}/without privacy/none": partial(without_privacy, name, made[name], kept, arguments) for name in made
    }
    if arguments.before is not None:
        before = Before(arguments.before)
        for name, setting in made.items():
            for method in ("moments", "helmet"):
                work = partial(measure_before, name, setting, method, before, kept, arguments)
                parts[f"{name}/{method} of version 0.1/none"] = work
    result = measure_parts(arguments, {"quick": arguments.quick}, parts)
    conclude(arguments, {**result, "claims": make_claims(result)}, show)


def words(size: int | None) -> str:
    """A number of public rows."""
    return "none" if size == 0 else "all" if size is None else str(size)


def measure(name: str, setting: Setting, keys: dict[str, Any], size: int | None, arguments: Any) -> Numbers:
    """Accuracies, in %, by ε: the mean, and its standard error."""
    repeats, kept = _repeats(setting, arguments), Kept(arguments.resume)
    found: Numbers = {"runs": repeats, "accuracy": {}}
    for epsilon in setting.epsilons:
        run = Running(setting, keys, size, epsilon)
        cell = (name, json.dumps(keys, sort_keys=True), words(size), f"{epsilon:g}")
        accuracies = [kept.measured((*cell, seed), partial(run.accuracy, seed)) for seed in range(repeats)]
        found["accuracy"][f"{epsilon:g}"] = mean_and_error(accuracies)
        say(f"{keys['name']}, public {words(size)}, ε = {epsilon:g}: {np.mean(accuracies):.2f}")
    return found


def measure_before(name: str, setting: Setting, method: str, before: Before, kept: Kept, arguments: Any) -> Numbers:
    """The same of version 0.1, which made no use of public records, with its defaults."""
    repeats = _repeats(setting, arguments)
    found: Numbers = {"runs": repeats, "accuracy": {}}
    for epsilon in setting.epsilons:

        def accuracy(seed: int, epsilon: float = epsilon) -> float:
            rows = setting.rows(seed)
            agreed, groups = setting.sections(rows, epsilon, {"name": method}), deal(len(rows.train), setting.parties)
            predicted = before.predictions(agreed, *rows.train_arrays, groups, rows.test.features)
            return 100.0 * float((predicted == rows.test.labels).mean())

        cell = (name, "0.1", method, f"{epsilon:g}")
        accuracies = [kept.measured((*cell, seed), partial(accuracy, seed)) for seed in range(repeats)]
        found["accuracy"][f"{epsilon:g}"] = mean_and_error(accuracies)
        say(f"{name}, {method} of version 0.1, ε = {epsilon:g}: {np.mean(accuracies):.2f}")
    return found


def without_privacy(name: str, setting: Setting, kept: Kept, arguments: Any) -> Numbers:
    """Scikit-learn's model of the same splits: a column for each ε, all alike."""
    repeats = _repeats(setting, arguments)

    def accuracy(seed: int) -> float:
        rows = setting.rows(seed)
        model = reference.classifier(*rows.train_arrays)
        return 100.0 * float((model.predict(rows.test.features) == rows.test.labels).mean())

    seeds = [0] if setting.rows(0).train is setting.rows(1).train else range(repeats)
    accuracies = [kept.measured((name, "without", seed), partial(accuracy, seed)) for seed in seeds]
    return {"runs": repeats, "accuracy": {f"{epsilon:g}": mean_and_error(accuracies) for epsilon in setting.epsilons}}


def _repeats(setting: Setting, arguments: Any) -> int:
    return int(arguments.repeats or (3 if arguments.quick else setting.repeats))


class Running:
    """Runs with fresh noise. Where there is one split, records are mapped once for all of them."""

    def __init__(self, setting: Setting, keys: dict[str, Any], size: int | None, epsilon: float) -> None:
        self._setting, self._keys, self._size, self._epsilon = setting, keys, size, epsilon
        self._rows: Rows | None = None

    def accuracy(self, seed: int) -> float:
        """In %, of the run with this split."""
        rows = self._setting.rows(seed)
        if rows is not self._rows:
            self._prepare(rows)
            self._rows = rows
        release = run(self._method, self._federation).release
        gc.collect()
        return 100.0 * share_right(self._agreed, release, rows.test.features, rows.test.labels)

    def _prepare(self, rows: Rows) -> None:
        agreed = make_study(self._setting.sections(rows, self._epsilon, self._keys))
        if self._size != 0:
            agreed = with_public(agreed, rows.public[: self._size])
        self._agreed, self._method = agreed, method_for(agreed)
        groups = deal(len(rows.train), self._setting.count(self._keys))
        self._federation = ArrayFederation(agreed, rows.train, groups, self._method.directions)


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
    return "" if numbers is None else with_error(*numbers)


if __name__ == "__main__":
    main()
