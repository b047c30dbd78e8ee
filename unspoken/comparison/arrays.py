"""Comparisons on arrays and data frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from unspoken.comparison.cells import ComparedRun, Comparison, doubts_of
from unspoken.comparison.points import Point, metric_of, points_of
from unspoken.comparison.running import Progress, run_comparison
from unspoken.data.files import DataError
from unspoken.data.public import with_public
from unspoken.report.remarks import on_records
from unspoken.simulation import in_order, parties_of, records_of, warn
from unspoken.study import Study, study_of

if TYPE_CHECKING:
    import pandas as pd

    from unspoken.comparison.plots import By


@dataclass(frozen=True)
class Compared:
    """The runs of a comparison, and their means."""

    runs: tuple[ComparedRun, ...]

    @property
    def points(self) -> list[Point]:
        """The results of each method at each ε and number of parties, over all repeats."""
        return points_of(self.runs)

    @property
    def table(self) -> pd.DataFrame:
        """One row a run."""
        import pandas as pd

        from unspoken.comparison.journal import rows_of

        return pd.DataFrame(rows_of(self.runs, {}))

    def plot(self, file: str | Path, by: By = "epsilon", *, replace: bool = False) -> None:
        """Draw means with 95 % intervals, and every run as a dot. An existing file is kept, unless `replace` is set."""
        from unspoken import writing
        from unspoken.comparison import plots

        if not replace:
            writing.check_free(Path(file), "choose another name, or overwrite it with replace=True")
        plots.plot(self.points, metric_of(self.points), Path(file), by, replace=replace)


def compare(
    study: Study | dict[str, Any] | str | Path,
    X: npt.ArrayLike | pd.DataFrame,  # noqa: N803 (the name that everyone expects)
    y: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    *,
    methods: Sequence[str],
    epsilons: Sequence[float] = (0.5, 1.0, 2.0, 4.0),
    X_test: npt.ArrayLike | pd.DataFrame | None = None,  # noqa: N803
    y_test: npt.ArrayLike | None = None,
    hold_out: float | None = None,
    public: npt.ArrayLike | None = None,
    parties: Sequence[int] = (),
    split: str = "iid",
    resplit: bool = False,
    repeats: int = 3,
    seed: int = 0,
    jobs: int | None = 1,
    progress: Progress | None = None,
    engine: str = "local",
    address: str | None = None,
) -> Compared:
    """Run several methods on the same records at the same epsilons, `repeats` times each with fresh noise.

    `methods` are names of methods, or of the study's sections [compare.NAME], which have keys of their own. The records
    are given as for `unspoken.simulate`. Without `groups` they are dealt to the study's parties, or to each number in
    `parties`, by the public `seed` and the kind of `split` ("iid", "by-class", "dirichlet:0.5", "classes:2"); `resplit`
    deals them anew for each repeat. Models are measured on the test records, or on the share `hold_out` of X that each
    repeat holds out, class by class. `jobs` is the number of processes; None means one for each core, if it pays. With
    the engine "ray" each run is a task on a cluster: the one at `address`, or one that is started for them.
    """
    study = study_of(study)
    _check(methods, epsilons, {"repeats": (repeats, 1), "seed": (seed, 0), "jobs": (1 if jobs is None else jobs, 1)})
    _check_tests(study, X_test, y_test, hold_out)
    if groups is not None and (parties or (resplit and hold_out is None)):
        raise DataError("groups says whose records are whose; leave parties and resplit out.")
    if public is not None:
        study = with_public(study, in_order(public, X, study, "public"))
    train = records_of(X, y, study, "training")
    compared = Comparison(
        study,
        train,
        None if X_test is None else records_of(in_order(X_test, X, study, "X_test"), y_test, study, "test"),
        tuple(dict.fromkeys(methods)),
        tuple(dict.fromkeys(map(float, epsilons))),
        repeats,
        seed,
        kind=split,
        parties=tuple(dict.fromkeys(parties)),
        groups=None if groups is None else parties_of(study, groups, X, len(train)),
        hold_out=hold_out,
        resplit=resplit,
    )
    warn(doubts_of(compared), stacklevel=2, named=True)
    warn(on_records(study, train), stacklevel=2)
    runs = run_comparison(compared, jobs=jobs, progress=progress, engine=engine, address=address)
    return Compared(tuple(runs))


def _check(methods: Sequence[str], epsilons: Sequence[float], numbers: dict[str, tuple[int, int]]) -> None:
    """Refuse arguments that would give no runs."""
    for name, (value, least) in numbers.items():
        if value < least:
            raise DataError(f"{name} is {value}, but should be {least} or more.")
    if isinstance(methods, str) or not methods:
        raise DataError(f"methods is {methods!r}, but should be a list of names, such as ['moments', 'local'].")
    if len(epsilons) == 0:
        raise DataError("epsilons has no number; give at least one, such as [0.5, 1, 2].")


def _check_tests(study: Study, features: Any, labels: Any, hold_out: float | None) -> None:
    """Refuse a comparison without records to measure on, or with both kinds of them."""
    if features is None and labels is not None:
        raise DataError("y_test is given without X_test; give both, or neither.")
    if hold_out is not None and not 0.0 < hold_out < 1.0:
        raise DataError(f"hold_out is {hold_out:g}, but should be a share above 0 and below 1, as 0.2.")
    if features is not None and hold_out is not None:
        raise DataError("X_test and hold_out are both given, but one is enough; leave one out.")
    if features is None and hold_out is None and study.task != "statistics":
        raise DataError("there are no records to measure the models on; give X_test, or hold_out=0.2.")
