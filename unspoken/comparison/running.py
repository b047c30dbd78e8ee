"""All runs of a comparison: one after another, in processes of their own, or on a cluster."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import NamedTuple

from unspoken.comparison.cells import Cell, ComparedRun, Comparison, Worker, cells_of
from unspoken.engines.cluster import engine as cluster
from unspoken.engines.cluster.each import each
from unspoken.engines.environment import environment
from unspoken.engines.threads import cores
from unspoken.errors import UnspokenError
from unspoken.interrupts import unheard
from unspoken.simulation import RAY, check_engine
from unspoken.summation.base import Aborted

Progress = Callable[[str, int, int], None]
"""Called with the present run, the number of runs that are done, and the number of all runs"""
_WORTHWHILE = 10.0
"""The seconds of work for which processes are worth their start"""
_THREADS = ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA")


def run_comparison(
    comparison: Comparison,
    *,
    jobs: int | None = 1,
    done: Iterable[ComparedRun] = (),
    keep: Callable[[ComparedRun], None] | None = None,
    progress: Progress | None = None,
    engine: str = "local",
    address: str | None = None,
) -> list[ComparedRun]:
    """Do all runs, with fresh noise each, in as many processes as `jobs` says. None: one for each core, if it pays.

    Runs that are `done` already are not done again. `keep` is called with each of the others as soon as it is over.
    In a script with more than one job, call this below `if __name__ == "__main__"`, as for any process pool.
    With the engine "ray" each run is a task on a cluster: the one at `address`, or one that is started for them.
    """
    check_engine(engine, address)
    if on_cluster := engine == RAY:
        cluster.check_study(comparison.study)
    cells = cells_of(comparison)
    found = {run.cell: run for run in done}
    found = {cell: found[cell] for cell in cells if cell in found}
    left = [cell for cell in cells if cell not in found]
    counting = _Counting(progress, len(cells), len(found))
    new = _on_cluster(comparison, left, address, counting) if on_cluster else _runs(comparison, left, jobs, counting)
    for run in new:
        found[run.cell] = run
        if keep:
            keep(run)
    return [found[cell] for cell in cells]


class _Counting:
    """Tells how many runs are done."""

    def __init__(self, progress: Progress | None, total: int, done: int) -> None:
        self._progress, self._total, self._done = progress, total, done

    def begin(self, cell: Cell) -> None:
        if self._progress:
            self._progress(f"{cell.variant} at epsilon {cell.epsilon:g}", self._done, self._total)

    def end(self, cell: Cell) -> None:
        self._done += 1
        self.begin(cell)


def _runs(
    comparison: Comparison, cells: Sequence[Cell], jobs: int | None, counting: _Counting
) -> Iterator[ComparedRun]:
    worker, usual = Worker(comparison), math.inf
    for number, cell in enumerate(cells):
        left = len(cells) - number
        # The first run takes longer than others: much is imported and compiled for it.
        pays = jobs is None and usual * left > _WORTHWHILE and (number > 1 or usual > _WORTHWHILE) and number > 0
        if left > 1 and (pays or (jobs or 1) > 1):
            yield from _in_processes(comparison, cells[number:], min(jobs or cores(), left), counting)
            return
        counting.begin(cell)
        began = time.monotonic()
        run = worker.run(cell)
        usual = time.monotonic() - began
        counting.end(cell)
        yield run


def _in_processes(
    comparison: Comparison, cells: Sequence[Cell], jobs: int, counting: _Counting
) -> Iterator[ComparedRun]:
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, (comparison,))
    try:
        counting.begin(cells[0])
        # An interrupt is for this process, which ends the others.
        with _one_thread_each(), unheard():
            futures = {pool.submit(_run, cell): cell for cell in cells}
        for future in as_completed(futures):
            yield _checked(future.result(), counting)
    except BrokenProcessPool:
        raise UnspokenError(
            "a process of the comparison ended before its run did, perhaps for want of memory; try fewer --jobs."
        ) from None
    finally:
        # Whatever ended this, nobody waits for runs under way.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        pool.shutdown()


def _on_cluster(
    comparison: Comparison, cells: Sequence[Cell], address: str | None, counting: _Counting
) -> Iterator[ComparedRun]:
    """Each run as a task."""
    if cells:
        counting.begin(cells[0])
    for answer in each(_run_task, comparison, cells, address):
        yield _checked(answer, counting)


def _checked(answer: ComparedRun | _Failure, counting: _Counting) -> ComparedRun:
    if isinstance(answer, _Failure):
        raise Aborted(answer.text) if answer.aborted else UnspokenError(answer.text)
    counting.end(answer.cell)
    return answer


class _Failure(NamedTuple):
    """An error in a process, in words: not every error survives the way from there."""

    text: str
    aborted: bool


_workers: list[Worker] = []
"""The worker of this process"""


def _start(comparison: Comparison) -> None:
    _workers.append(Worker(comparison))


def _run_task(comparison: Comparison, cell: Cell) -> ComparedRun | _Failure:
    """Do a run in a process of a cluster, whose last one may have been of another comparison."""
    _workers[:] = [Worker(comparison)]
    return _run(cell)


def _run(cell: Cell) -> ComparedRun | _Failure:
    try:
        return _workers[0].run(cell)
    except UnspokenError as error:
        return _Failure(str(error), isinstance(error, Aborted))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that are started here compute with one thread each: there are as many of them as wanted."""
    wanted = {f"{name}_NUM_THREADS": "1" for name in _THREADS} | {"VECLIB_MAXIMUM_THREADS": "1"}
    with environment(wanted):
        yield
