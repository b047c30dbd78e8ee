"""Machine code from the loops that NumPy has no words for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any, TypeVar, cast

Loop = TypeVar("Loop", bound=Callable[..., Any])

_MACHINE_CODE = "machine_code"


def compiled(loop: Loop) -> Loop:
    """Compile a function when it is first called, and keep the machine code for the next time, if there is a place.

    Numba keeps it beside the package or in the user's cache. A service may be allowed to write to neither: then it
    compiles anew each time. Numba itself is imported at the first call, too: it takes half a second, and a program that
    only plans a study calls no loop.
    """

    @cache
    def machine_code() -> Callable[..., Any]:
        import numba

        function = _with_machine_code_of_others(cast(FunctionType, loop))
        try:
            return cast(Callable[..., Any], numba.njit(cache=True, nogil=True)(function))
        except RuntimeError:  # Numba's answer where it finds no folder to write to.
            return cast(Callable[..., Any], numba.njit(nogil=True)(function))

    @wraps(loop)
    def call(*arguments: Any) -> Any:
        return machine_code()(*arguments)

    setattr(call, _MACHINE_CODE, machine_code)
    return cast(Loop, call)  # to its callers, a compiled function is what it was


def _with_machine_code_of_others(loop: FunctionType) -> FunctionType:
    """The same function, which calls other compiled ones of its module directly."""
    called = {name: loop.__globals__.get(name) for name in loop.__code__.co_names}
    direct = {name: getattr(value, _MACHINE_CODE)() for name, value in called.items() if hasattr(value, _MACHINE_CODE)}
    return FunctionType(loop.__code__, {**loop.__globals__, **direct}, loop.__name__, loop.__defaults__)
