"""Methods and protocols by name, our own and those of other packages; and what a study names as "package.module:name".

Packages declare their classes as entry points, in the group `unspoken.methods` or `unspoken.protocols`; ours are in
pyproject.toml. Only the class that is asked for is imported.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, entry_points
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from unspoken.errors import UnspokenError, first_line

METHODS = "unspoken.methods"
PROTOCOLS = "unspoken.protocols"
_OURS = "unspoken"

Kind = TypeVar("Kind")


class PluginError(UnspokenError):
    """An installed package cannot be imported, or does not provide what it declares."""


class NotImportable(UnspokenError):
    """What a study names cannot be imported on this machine; `problem` says why and continues the name."""

    def __init__(self, name: str, why: str, remedy: str) -> None:
        self.problem = f"cannot be imported here ({why}); {remedy}"
        super().__init__(f'"{name}" {self.problem}.')


def imported(name: str, ready: tuple[str, ...] = ()) -> Any:
    """What "package.module:name" names on this machine; `ready` are names that need no import.

    A party runs only what it has installed, so the folder that a study came in is not looked at.
    """
    path, _, attribute = name.partition(":")
    instead = f", or use one of: {quoted(ready)}" if ready else ""
    try:
        module = import_module(path)
    except (Exception, SystemExit) as error:
        if not _is_absent(path, error):
            why = f'the module "{path}" fails{_raised_at(error)}: {_why(error)}'
            raise NotImportable(name, why, f"repair it{instead}") from None
        folder = "name its folder in PYTHONPATH (nothing is imported from the folder of a study)"
        remedy = f"install its package, {'' if ready else 'or '}{folder}{instead}"
        raise NotImportable(name, first_line(error), remedy) from None
    try:
        return getattr(module, attribute)
    except Exception as error:
        near = nearest(attribute, [known for known in vars(module) if not known.startswith("_")])
        remedy = f'the nearest name in it is "{near}"' if near else f"name what that module has{instead}"
        raise NotImportable(name, first_line(error), remedy) from None


def _is_absent(path: str, error: BaseException) -> bool:
    """Whether the module itself was not found, rather than one that it imports; a path may be none at all, too."""
    if isinstance(error, ModuleNotFoundError):
        return f"{path}.".startswith(f"{error.name}.")
    return not all(part.isidentifier() for part in path.split("."))


def _raised_at(error: BaseException) -> str:
    """Where an error was raised, in the words of a message. One of syntax says it itself."""
    if isinstance(error, SyntaxError):
        return ""
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f" at {frame.filename}, line {frame.lineno}"


class UnknownName(UnspokenError):
    """No class has this name. `problem` is the message without the place of the name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.problem = f'is "{name}", but should be one of: {quoted(known)}{suggestion(name, known)}'
        super().__init__(f"the name {self.problem}")


def quoted(names: tuple[str, ...] | list[str]) -> str:
    """Names in quotes, separated by commas.

    >>> quoted(["secagg", "ideal"])
    '"secagg", "ideal"'
    """
    return ", ".join(f'"{name}"' for name in names)


def suggestion(name: str, known: tuple[str, ...] | list[str]) -> str:
    """The end of a message about an unknown name: the most similar known one, if any.

    >>> suggestion("helmt", ["moments", "helmet"])
    '; did you mean "helmet"?'
    """
    near = nearest(name, known)
    return f'; did you mean "{near}"?' if near else ""


def nearest(name: str, known: tuple[str, ...] | list[str]) -> str | None:
    """The most similar known name, in capitals or not, if any is similar.

    >>> nearest("Cnn", ["GRU", "CNN"])
    'CNN'
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[close[0]] if close else None


def names(group: str) -> tuple[str, ...]:
    """All names declared in a group, sorted. Nothing is imported."""
    return tuple(_declared(group))


def find(group: str, name: str, base: type[Kind] = object) -> type[Kind]:  # type: ignore[assignment]
    """The class declared under this name in a group; it must be a subclass of `base`."""
    declared = _declared(group)
    if name not in declared:
        raise UnknownName(name, tuple(declared))
    entry, *others = declared[name]
    if others:
        raise PluginError(
            f'"{name}" is declared in {group} by the packages "{_package(entry)}" and "{_package(others[0])}"; '
            "uninstall one of them."
        )
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f'"{name}" of the package "{_package(entry)}" cannot be imported ({_why(error)}); repair, update or '
            "uninstall that package."
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise PluginError(
            f'"{name}" of the package "{_package(entry)}" is {entry.value}, which is not a subclass of '
            f"{base.__module__}.{base.__qualname__}; update or uninstall that package."
        )
    return found


@contextmanager
def answerable(group: str, name: str, mistakes: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Reports errors inside another package's class as that package's mistake, with the place in its code.

    Errors that a person can correct pass unchanged, except `mistakes`: those that only the class itself can have
    caused. Errors in our own classes pass unchanged too.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            raise  # standard output is closed or full
        entry = _declared(group).get(name, [None])[0]
        if entry is None or _package(entry) == _OURS:
            raise
        if isinstance(error, UnspokenError) and not isinstance(error, mistakes):
            raise
        raise PluginError(
            f'"{name}" of the package "{_package(entry)}" failed{_place(entry, error.__traceback__)} ({_why(error)}); '
            "repair, update or uninstall that package."
        ) from error


def _place(entry: EntryPoint, trace: TracebackType | None) -> str:
    """The innermost line of the package's own code in a traceback, in the words of a message."""
    top = sys.modules.get(entry.module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if file is None:
        return ""
    home = Path(file).parent if hasattr(top, "__path__") else Path(file)
    frames = [frame for frame in traceback.extract_tb(trace) if Path(frame.filename).is_relative_to(home)]
    return f" at {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def _why(error: BaseException) -> str:
    """The kind of an error and its message, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")


def package_of(group: str, name: str) -> tuple[str, str] | None:
    """The package that declares this name, and its version, if it is known."""
    entries = _declared(group).get(name, ())
    return next((_told(entry.dist) for entry in entries if entry.dist is not None), None)


class Group(Mapping[str, type[Kind]], Generic[Kind]):
    """The classes of a group by name, each imported on demand."""

    def __init__(self, group: str, base: type[Kind]) -> None:
        self._group, self._base = group, base

    def __getitem__(self, name: str) -> type[Kind]:
        if name not in self:
            raise KeyError(name)
        return find(self._group, name, self._base)

    def usable(self) -> Iterator[tuple[str, type[Kind]]]:
        """Names and classes, without those that cannot be imported."""
        for name in self:
            try:
                yield name, self[name]
            except PluginError:
                continue

    def __contains__(self, name: object) -> bool:
        return name in names(self._group)

    def __iter__(self) -> Iterator[str]:
        return iter(names(self._group))

    def __len__(self) -> int:
        return len(names(self._group))


@cache
def _declared(group: str) -> dict[str, list[EntryPoint]]:
    declared: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, _package(entry))):
        declared.setdefault(entry.name, []).append(entry)
    if not any(_package(entry) == _OURS for entries in declared.values() for entry in entries):
        raise PluginError(
            f"the installed {_OURS} does not declare its own {group.split('.')[-1]}, because it was installed from an "
            "older state of the code (or not at all); run `pip install -e .` again in the clone."
        )
    return declared


def _package(entry: EntryPoint) -> str:
    return _told(entry.dist)[0] if entry.dist is not None else "unknown"


@cache
def _told(package: Distribution) -> tuple[str, str]:
    """Its name and its version, for which its metadata is read: once."""
    return package.name, package.version
