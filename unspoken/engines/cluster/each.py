"""One task for each of several things, on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from unspoken.engines.cluster.connection import check_version, connected, ray

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    function: Callable[[Shared, Item], Result], shared: Shared, items: Sequence[Item], address: str | None = None
) -> Iterator[Result]:
    """A function's results for all items, in the order in which they are done.

    What is `shared` goes into the object store once. What a lost process did is done again.
    """
    if not items:
        return
    with connected(address) as cluster:
        task, given = cluster.task(_done), cluster.put(shared)
        waiting: list[Any] = [task.remote(version("unspoken"), function, given, item) for item in items]
        try:
            while waiting:
                (ready,), waiting = ray().wait(waiting, num_returns=1)
                yield cluster.got(ready)
        finally:
            for reference in waiting:
                ray().cancel(reference, force=True)


def _done(started_by: str, function: Callable[[Shared, Item], Result], shared: Shared, item: Item) -> Result:
    check_version(started_by)
    return function(shared, item)
