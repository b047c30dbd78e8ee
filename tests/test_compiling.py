"""Compiled loops."""

from __future__ import annotations

import subprocess
import sys

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


@compiled
def doubled(number: int) -> int:
    return 2 * number


@compiled
def quadrupled(number: int) -> int:
    return doubled(doubled(number))


def test_a_compiled_loop_calls_another() -> None:
    assert quadrupled(10) == 40
    assert quadrupled.__name__ == "quadrupled"


def test_who_only_plans_need_not_wait_for_the_compiler() -> None:
    program = "import sys, unspoken.methods.planning, unspoken.summation.secagg; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "False\n"
