"""What is compiled is ready before anybody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest

from small_studies import federation_of, method_of, small
from unspoken.engines import local
from unspoken.engines.network.loading import warm_up
from unspoken.noise import discrete_gaussian
from unspoken.summation import shamir

COMPILED = ((discrete_gaussian, "_add_draws"), (shamir, "_evaluate"), (shamir, "_weights"))


def kinds(monkeypatch: pytest.MonkeyPatch, play: Callable[[], object]) -> set[tuple[Any, ...]]:
    """The compiled functions that are called meanwhile, with the types that they are compiled for."""
    called: set[tuple[Any, ...]] = set()
    with monkeypatch.context() as patched:
        for module, name in COMPILED:
            original = getattr(module, name)

            def recorded(*given: Any, name: str = name, original: Any = original) -> Any:
                called.add((name, *map(numba.typeof, given)))
                return original(*given)

            patched.setattr(module, name, recorded)
        play()
    return called


def test_a_study_compiles_nothing_that_was_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = method_of(small(tmp_path / "public.npz", "helmet", "classification", summation="secagg+"))
    plan = method.plan()
    used = kinds(monkeypatch, lambda: local.run(method, plan, federation_of(plan.study)))
    assert {name for name, *_ in used} == {name for _, name in COMPILED}
    assert used <= kinds(monkeypatch, lambda: warm_up(plan))
