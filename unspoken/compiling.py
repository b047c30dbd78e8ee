"""Machine code from the loops that NumPy has no words for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """Compile a function when it is first called, and keep the machine code for the next time, if there is a place.

    Numba keeps it beside the package or in the user's cache. A service may be allowed to write to neither: then it
    compiles anew each time.
    """
    compiler: Any = numba.njit  # to its callers, a compiled function is what it was
    try:
        made: Loop = compiler(cache=True, nogil=True)(loop)
    except RuntimeError:  # Numba's answer where it finds no folder to write to.
        made = compiler(nogil=True)(loop)
    return made
