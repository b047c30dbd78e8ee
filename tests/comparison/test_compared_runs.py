"""The runs of a comparison: interrupted and continued, in processes, each in the table, and shown with intervals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from compared import small, study
from unspoken.cli import app
from unspoken.comparison import (
    ComparedRun,
    Point,
    interval,
    metric_of,
    points_of,
    run_comparison,
    running,
    study_for,
)
from unspoken.comparison.journal import ComparisonJournal, rows_of, write_table
from unspoken.comparison.plots import plot
from unspoken.comparison.points import remarks
from unspoken.errors import UnspokenError


def test_what_is_shown_is_the_first_metric_that_all_methods_have() -> None:
    points = [Point("one", 1.0, {"loss": [1.0], "mse": [2.0]}), Point("other", 1.0, {"mse": [3.0]})]
    assert metric_of(points) == "mse"
    with pytest.raises(UnspokenError, match=r'^what "one" and "moments" released has no metric in common: there is'):
        metric_of([*points[:1], Point("moments", 1.0, {})])


def test_a_plot_without_matplotlib_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "study.toml"]).exit_code == 0
    options = ["--data", "nowhere.csv", "--test", "nowhere.csv", "--methods", "moments", "--plot", "plot.png"]
    done = CliRunner().invoke(app, ["compare", "study.toml", *options])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("unspoken: a plot needs matplotlib, which is not installed")


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        (b'"parties"', b'"people"', "Object missing required field `parties`"),
        (b'"method": "moments"', b'"method": 3', "Expected `str`, got `int` - at `$.method`"),
        (b'{"variant"', b'{"v\xffriant"', "'utf-8' codec can't decode byte 0xff"),
        (b'{"variant"', b'"variant"', "Extra data"),
    ],
)
def test_a_run_that_a_journal_has_otherwise_than_it_was_written_is_told_with_its_line(
    was: bytes, now: bytes, problem: str, tmp_path: Path
) -> None:
    """And it is made again when the line is gone."""
    table, compared = tmp_path / "runs.csv", small(repeats=1)
    journal = ComparisonJournal(table, compared)
    run_comparison(compared, keep=journal.keep)
    journal.close()
    header, first, *others = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"".join([header, first.replace(was, now), *others]))
    with pytest.raises(UnspokenError) as raised:
        ComparisonJournal(table, compared)
    told = str(raised.value)
    assert told.startswith(f"{journal.path}: line 2 is not a run as this version writes it ({problem}")
    assert told.endswith("; remove that line, and its run is made again, or choose another --table.")
    journal.path.write_bytes(b"".join([header, *others]))
    again = ComparisonJournal(table, compared)
    assert len(again.runs) == len(others) > 0
    again.close()


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    journal = ComparisonJournal(table, small())
    kept: list[ComparedRun] = []

    def interrupt(run: ComparedRun) -> None:
        journal.keep(run)
        kept.append(run)
        if len(kept) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_comparison(small(), keep=interrupt)
    with pytest.raises(UnspokenError, match=r"runs\.csv\.journal: is in use by another comparison"):
        ComparisonJournal(table, small())
    journal.close()
    # A crash may have torn a line.
    with journal.path.open("a") as file:
        file.write('{"variant": "moments", "met')
    again = ComparisonJournal(table, small())
    assert again.runs == kept
    new: list[ComparedRun] = []
    runs = run_comparison(small(), done=again.runs, keep=new.append)
    assert (len(runs), len(new), runs[:3]) == (6, 3, kept)
    for run in new:
        again.keep(run)
    again.close()
    # More of it can be asked for; what has changed is done again.
    more = ComparisonJournal(table, small(repeats=3))
    assert len(run_comparison(small(repeats=3), done=more.runs)) == 9
    assert len(more.runs) == 6
    more.close()
    other = ComparisonJournal(table, replace(small(), study=study(method="moments", delta=1e-6)))
    assert other.runs == []
    other.close()
    with pytest.raises(UnspokenError, match="is of a comparison on other records, or with another split or seed"):
        ComparisonJournal(table, small(seed=1))
    # It goes when all that it has is in the table.
    assert not ComparisonJournal(table, small()).end(runs[1:])
    assert journal.path.exists()
    assert ComparisonJournal(table, small()).end(runs)
    assert not journal.path.exists()


def test_a_comparison_does_not_go_on_from_runs_of_other_parties(tmp_path: Path) -> None:
    """The same records, but at other parties: by column, by another column, or dealt at random."""
    table, whose = tmp_path / "runs.csv", np.arange(300) % 5
    ComparisonJournal(table, small(groups=whose)).close()
    ComparisonJournal(table, small(groups=whose.copy())).close()
    for others in (whose[::-1], None):
        with pytest.raises(UnspokenError, match="is of a comparison on other records, or with another split or seed"):
            ComparisonJournal(table, small(groups=others))


def test_a_full_disk_keeps_the_runs_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    table, (first, second) = tmp_path / "runs.csv", run_comparison(small(epsilons=(1.0,), repeats=2))[:2]
    with monkeypatch.context() as change:
        change.setattr(os, "fsync", full)
        with pytest.raises(UnspokenError, match=r"runs\.csv\.journal: cannot be written to \(No space left"):
            ComparisonJournal(table, small())
    assert list(tmp_path.iterdir()) == []
    journal = ComparisonJournal(table, small())
    journal.keep(first)
    with monkeypatch.context() as change:
        change.setattr(os, "fsync", full)
        with pytest.raises(UnspokenError, match=r"takes no more runs .* but keeps those that it has; make room"):
            journal.keep(second)
    journal.close()
    assert ComparisonJournal(table, small()).runs == [first]


def test_runs_in_processes_are_those_in_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS")
    here, there = run_comparison(small(repeats=1)), run_comparison(small(repeats=1), jobs=2)
    assert (os.environ["OMP_NUM_THREADS"], os.environ.get("MKL_NUM_THREADS")) == ("7", None)
    assert [run.cell for run in here] == [run.cell for run in there]
    assert [run.study_sha256 for run in here] == [run.study_sha256 for run in there]
    # Without noise the result is the same, too.
    assert here[-1].metrics == there[-1].metrics


def test_what_goes_wrong_in_a_process_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_workers", [running.Worker(small(groups=np.arange(300) % 4))])
    failure = running._run(running.Cell("none", 1.0, 5, 0))
    assert isinstance(failure, running._Failure)
    assert failure.text.startswith("party 4 has 0 records, but the study's [parties] asks for at least 60")
    assert not failure.aborted


def test_every_run_is_in_the_table_with_what_it_takes_to_do_it_again(tmp_path: Path) -> None:
    runs = run_comparison(small(seed=7))
    facts = {**small().digests(), "version_unspoken": "1"}
    for name in ("runs.csv", "runs.parquet"):
        path = tmp_path / name
        write_table(path, rows_of(runs, facts))
        rows = pd.read_csv(path) if name.endswith("csv") else pd.read_parquet(path)
        assert len(rows) == 6
        assert rows["accuracy"].tolist() == [run.metrics["accuracy"] for run in runs]
        assert set(rows["seed"]) == {7}
        assert rows["epsilon"].isna().tolist() == [False] * 4 + [True] * 2
        assert rows["study_sha256"][0] == study_for(study(method="moments"), "moments", 1.0).digest()
        assert {"variant", "computes", "parties", "repeat", "split", "train_sha256", "test_sha256"} <= set(rows)
        with pytest.raises(UnspokenError, match="exists already"):
            write_table(path, rows_of(runs, facts))


def test_an_epsilon_that_is_not_proven_is_said_not_to_be_shown() -> None:
    points = points_of(run_comparison(small(epsilons=(30.0, 100.0), repeats=1)))
    assert [point.epsilon and round(point.epsilon) for point in points] == [30, 30, None]
    (said,) = remarks(points)
    assert said == (
        "Asked for epsilon = 100, moments ran at 30: for more, the cost of drawing whole numbers is not proven, and "
        "nothing is shown."
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "all on the same split"),
        ({"resplit": True}, "each on a split of its own"),
        ({"test": None, "hold_out": 0.2, "parties": (4,)}, "each on a split of its own"),
    ],
)
def test_an_interval_is_said_to_be_over_the_splits_that_there_were(options: dict[str, Any], words: str) -> None:
    points = points_of(run_comparison(replace(small(epsilons=(30.0,), repeats=3), **options)))
    assert remarks(points)[-1] == f"± is the 95 % confidence interval of the mean over runs with fresh noise, {words}."


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    """Of 2,000 intervals 95 % have the mean; 93.5 % or less would be 3 deviations away."""
    draws = np.random.default_rng(0).normal(size=(2000, 3))
    found = [interval(draw.tolist()) for draw in draws]
    assert 0.935 < np.mean([ends is not None and ends[0] < 0.0 < ends[1] for ends in found]) < 0.965
    assert interval([1.0, 2.0]) is None


@pytest.mark.parametrize("by", ["epsilon", "parties", "upload"])
def test_a_plot_takes_nobody_s_place(tmp_path: Path, by: str) -> None:
    points = [
        Point("moments", epsilon, {"mse": [1.0, 2.0, 3.0]}, "moments", "softmax", epsilon, parties, 1000 * parties)
        for epsilon in (1.0, 2.0)
        for parties in (10, 100)
    ]
    points.append(Point("none", None, {"mse": [1.0]}, "none", "softmax", None, 10, 100))
    path = tmp_path / "plot.svg"
    plot(points, "mse", path, by)  # type: ignore[arg-type]
    drawn = path.read_bytes()
    assert b"</svg>" in drawn
    with pytest.raises(UnspokenError, match="exists already"):
        plot(points, "mse", path, by)  # type: ignore[arg-type]
    plot(points[:1], "mse", path, by, replace=True)  # type: ignore[arg-type]
    assert path.read_bytes() != drawn
    assert [file.name for file in tmp_path.iterdir()] == ["plot.svg"]


@pytest.mark.parametrize(
    ("metric", "runs", "ends"),
    [
        ("mse", [0.1, 0.1, 2.0], (0.0, None)),
        ("relative_error", [0.1, 0.1, 2.0], (0.0, None)),
        ("accuracy", [0.5, 1.0, 1.0], (None, 1.0)),
        ("balanced_accuracy", [0.0, 0.0, 0.5], (0.0, None)),
        ("r2", [-1.0, 0.9, 0.9], (None, 1.0)),
        ("r2", [-1.0, -1.0, -1.3], (None, None)),
    ],
)
def test_intervals_are_drawn_where_a_metric_can_be(
    metric: str, runs: list[float], ends: tuple[float | None, float | None], tmp_path: Path, drawings: list[Any]
) -> None:
    """The mean's own interval stays as it is, and so does what is not at its limit."""
    plot([Point("moments", 1.0, {metric: runs}, "moments", "auto", 1.0, 10, 1000)], metric, tmp_path / "plot.svg")
    ((_, low), (_, high)) = drawings[0].axes[0].containers[0].lines[2][0].get_segments()[0]
    found = interval(runs)
    assert found is not None
    least, most = ends
    assert (low, high) == pytest.approx((found[0] if least is None else least, found[1] if most is None else most))


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The figures that were drawn."""
    import matplotlib.pyplot as plt

    drawn: list[Any] = []
    close = plt.close
    monkeypatch.setattr(plt, "close", drawn.append)
    yield drawn
    for figure in drawn:
        close(figure)


def test_what_is_true_of_some_runs_only_is_said_with_their_number() -> None:
    run = run_comparison(small(epsilons=(1.0,), repeats=1))[0]
    first = replace(run, remarks=["the noise hides: all", "the model predicts: this"])
    second = replace(run, repeat=1, remarks=["the noise hides: all"])
    (point,) = points_of([first, second])
    assert point.remarks == ("the noise hides: all", "in 1 of 2 runs the model predicts: this")


def test_a_metric_that_a_run_has_not_is_not_summarised() -> None:
    """Held out records may all have the same label, and then there is no R²: the runs are over by that time."""
    run = run_comparison(small(epsilons=(1.0,), repeats=1))[0]
    first = replace(run, metrics={"mse": 0.25, "r2": 0.5})
    second = replace(run, repeat=1, metrics={"mse": 0.75})
    for group in ([first, second], [second, first]):
        (point,) = points_of(group)
        assert list(point.metrics) == ["mse"]
        assert sorted(point.metrics["mse"]) == [0.25, 0.75]
