"""Simulations of arrays and data frames."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unspoken.data.checking import frame_of
from unspoken.data.clipped import Holders
from unspoken.data.files import DataError, Records, check_arrays
from unspoken.data.parties import named_groups, number_parties
from unspoken.data.public import with_public
from unspoken.data.tables import Table
from unspoken.engines.conditions import Progress
from unspoken.errors import DataWarning
from unspoken.methods.registry import checked_plan, method_for, plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.remarks import before_a_run, on_predictions
from unspoken.simulation.runs import Simulation, simulate_folder, simulate_records
from unspoken.study import LARGEST_COUNT, Study, study_of
from unspoken.types import Integers

if TYPE_CHECKING:
    import pandas as pd


def simulate(
    study: Study | dict[str, Any] | str | Path,
    X: npt.ArrayLike | pd.DataFrame | str | Path,  # noqa: N803 (the name that everyone expects)
    y: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | str | None = None,
    *,
    X_test: npt.ArrayLike | pd.DataFrame | None = None,  # noqa: N803
    y_test: npt.ArrayLike | None = None,
    public: npt.ArrayLike | None = None,
    drop: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    private_analysis: bool = False,
    processes: bool = False,
    ledger: Ledger | None = None,
    engine: str = "local",
    address: str | None = None,
) -> Simulation:
    """Run any study on arrays, or on a data frame if it describes a table: row i of X belongs to the party groups[i].

    The study is a `Study`, a study file's path, or its content as a dictionary. Its number of parties must equal the
    number of distinct groups. A data frame has the study's columns, and the label's unless y has the labels; `groups`
    may be the name of a column that names the parties. A study of a matrix names no columns: it takes those of a data
    frame X as they stand, and those of `X_test` and `public` by the names that X has. Statistics need no y. Metrics
    are measured on the test records, if given. `public` has public records without labels, in place of a file that
    the study's [data] names. With a `checkpoint` file, an interrupted run resumes where it stopped, and no budget is
    spent twice. A `private_analysis` computes what a vote cost on these records, which is secret. With `processes`,
    each tallier of a vote runs in its own process. A `ledger` is charged before the run begins, and adds up what all
    runs on the same records cost. A `DataWarning` says before that if records hardly fit the study, or noise hides
    much of what they say, and afterwards if the model says nothing.

    If X is a folder's path, each Parquet file in it is a party, and only a few are in memory at once. With the
    engine "ray" blocks of parties run on a cluster: the one at `address`, or one that is started for this run.
    """
    study = study_of(study)
    if X_test is None and y_test is not None:
        raise DataError("y_test is given without X_test; give both, or neither.")
    if public is not None:
        study = with_public(study, in_order(public, X, study, "public"))
    test = None if X_test is None else records_of(in_order(X_test, X, study, "X_test"), y_test, study, "test")
    settings: dict[str, Any] = {
        "drop": drop,
        "seed": seed,
        "progress": progress,
        "checkpoint": None if checkpoint is None else Path(checkpoint),
        "private_analysis": private_analysis,
        "processes": processes,
        "ledger": ledger,
        "engine": engine,
        "address": address,
    }
    if isinstance(X, str | Path):
        if Path(X).is_file():
            raise DataError(
                f"X is the file {X}, but should be an array, a data frame or a folder; read it with pandas, or name a "
                "folder with a Parquet file for each party."
            )
        if y is not None or groups is not None:
            raise DataError(f"X is the folder {X}, which says whose records are whose; leave y and groups out.")
        warn(before_a_run(plan_for(study), None), stacklevel=2)
        records, done = None, simulate_folder(study, Path(X), test, **settings)
    else:
        records = records_of(X, y, study, "training")
        groups = named_groups(groups, X)
        parties = parties_of(study, groups, X, len(records))
        method = method_for(study)
        warn(before_a_run(checked_plan(method), records, Holders.of(parties, groups)), stacklevel=2)
        done = simulate_records(study, records, parties, test, method=method, **settings)
    if (scored := records if test is None else test) is not None:
        warn(on_predictions(study, done.outcome.release, scored), stacklevel=2)
    return done


def parties_of(study: Study, groups: Any, features: Any, records: int) -> Integers:
    """The party of each record: as many as the study has."""
    parties = number_parties(named_groups(groups, features), records)
    count = int(parties.max()) + 1
    if count != study.parties.count:
        raise DataError(
            f"groups names {count} parties, but the study's [parties] count is {study.parties.count}; make them equal, "
            "for example with study.with_parties."
        )
    return parties


def in_order(rows: Any, like: Any, study: Study, name: str) -> Any:
    """Rows of a matrix study with the columns of another data frame, in its order; anything else as it is.

    A study of a matrix names no columns. So two data frames must agree on which feature is which.
    """
    if study.data.is_table or not (hasattr(rows, "columns") and hasattr(like, "columns")):
        return rows
    ours, wanted = list(rows.columns), list(like.columns)
    if sorted(map(str, ours)) != sorted(map(str, wanted)) or len({*wanted}) < len(wanted):
        other = next((repr(each) for each in ours if each not in wanted), "other names or numbers of them")
        raise DataError(f"{name} has {other} among its columns, but X has not; give both the same columns, each once.")
    return rows[wanted]


def records_of(features: Any, labels: Any, study: Study, which: str) -> Records:
    """The records in arrays or a data frame, checked against the study; `which` names them in messages."""
    if study.data.is_table:
        return Table(frame_of(features, labels, study), f"the {which} table").records(study)
    return check_arrays(features, labels, study, f"the {which} arrays")


@contextmanager
def as_it_was_without(fitted: object, result: str) -> Iterator[None]:
    """A fit that ends without a new `result`, an attribute, leaves all as it was: what an earlier one paid for, too."""
    before = dict(vars(fitted))
    try:
        yield
    except BaseException:
        if vars(fitted).get(result) is before.get(result):
            vars(fitted).clear()
            vars(fitted).update(before)
        raise


def warn(texts: Iterable[str], stacklevel: int, kind: type[UserWarning] = DataWarning, *, named: bool = False) -> None:
    """Python warnings of these remarks, each once. They begin with a capital, unless with a name (`named`)."""
    for text in texts:
        first = text[:1] if named else text[:1].upper()
        warnings.warn(f"{first}{text[1:]}.", kind, stacklevel=stacklevel + 1)


def sizes_of(parties: Integers, unit: str | dict[str, int]) -> dict[str, int]:
    """A study's [parties] for the parties of each record: their number and sizes.

    Where whole parties are protected, so are their sizes, and they are not stated.
    """
    sizes = np.bincount(parties)
    if unit == "party":
        return {"count": len(sizes), "records": 1, "max_records": LARGEST_COUNT}
    return {"count": len(sizes), "records": int(sizes.min()), "max_records": int(sizes.max())}
