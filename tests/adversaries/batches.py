"""A study whose batches have a fixed number of records."""

from __future__ import annotations

from factories import make
from unspoken.study import Study


def fixed_batches(rounds: int = 2, attempts: int = 1, **section: int) -> Study:
    """Four parties, of which one may collude; a batch has three in ten of all records."""
    section = {"count": 4, "records": 5, "max_records": 5} | section
    method = {"name": "cross-silo", "sampling": "without-replacement", "rounds": rounds, "rate": 0.3}
    promise = {"delta": 1e-2, "colluding": 1, "attempts": attempts}
    return make(task="regression", parties=section, method=method, **promise)
