"""Compares a plan that somebody states with one's own computation of it.

Every participant computes the plan on its own machine. Another processor or another version of SciPy may give other
last digits of fractions; everything else must be equal.
"""

from __future__ import annotations

import math
from typing import Any

from unspoken.errors import printable
from unspoken.study.explaining import shown

ROUNDING = 1e-6
"""The relative difference of two computations of ε, or of a deviation, on other machines"""


def difference(place: str, said: Any, own: Any) -> str | None:
    """The first place where what was said differs from one's own computation, in words; None if they agree.

    >>> difference("mu", 0.5000000000001, 0.5), difference("rounds", 2, 1)
    (None, '"rounds" is 2, but its study makes 1 of it')
    """
    if isinstance(own, dict) and isinstance(said, dict):
        return _first([(f"{place}.{key}", said.get(key), own.get(key)) for key in {**own, **said}])
    if isinstance(own, list | tuple) and isinstance(said, list) and len(said) == len(own):
        return _first([(f"{place}[{index}]", *pair) for index, pair in enumerate(zip(said, own, strict=True))])
    if isinstance(own, float) and _is_number(said):
        agrees = math.isclose(said, own, rel_tol=ROUNDING)
    else:
        agrees = said == own and isinstance(said, bool) == isinstance(own, bool)
    problem = f'"{place}" is {told(said)}, but its study makes {shown(own)} of it'
    return None if agrees else printable(problem)


def told(value: Any) -> str:
    """A value that was said, in words."""
    return "missing" if value is None else shown(value)


def _first(parts: list[tuple[str, Any, Any]]) -> str | None:
    found = (difference(*part) for part in parts)
    return next((problem for problem in found if problem is not None), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
