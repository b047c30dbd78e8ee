"""Compiled loops."""

from __future__ import annotations

import numba.core.dispatcher
import pytest

from unspoken.compiling import compiled


def test_a_loop_runs_where_no_folder_can_keep_its_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a service whose package and whose home are not its own to write to."""

    def nowhere(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(numba.core.dispatcher.Dispatcher, "enable_caching", nowhere)

    def twice(number: int) -> int:
        return 2 * number

    with pytest.raises(RuntimeError, match="no locator available"):
        numba.njit(cache=True)(twice)
    assert compiled(twice)(21) == 42
