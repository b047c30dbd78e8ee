"""The methods by the names that a study uses: ours, and those of other packages (see `unspoken.plugins`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from unspoken import plugins
from unspoken.data.public import check_public
from unspoken.methods.base import Method
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.study import Section, Study, Task, study_of
from unspoken.study.explaining import shown

METHODS = plugins.Group[Method](plugins.METHODS, Method)  # type: ignore[type-abstract]


def method_for(study: Study) -> Method:
    """The study's method, set up and checked."""
    kind = study.described
    if not issubclass(kind, Method):
        raise plugins.PluginError(f'"{study.method.name}" is no subclass of unspoken.methods.base.Method.')
    check_description(kind, study.method.name)
    with answerable(study):
        method = kind(study)
        for key, reason in kind.unused_keys(study).items():
            raise study.error(f"method.{key}", f"is {shown(study.method.own_keys[key])}, but {reason}")
        return method


def plan_for(study: Study) -> Plan:
    """The plan of the study's method, once its public records were read."""
    return checked_plan(method_for(study))


def plan(study: Study | dict[str, Any] | str | Path) -> Plan:
    """What a study promises and costs, before any data: `guarantee`, `notes`, `upload_bytes`, `to_json()`.

    The study is a file, a dictionary as its TOML would give, or a `Study`.
    """
    return plan_for(study_of(study))


def checked_plan(method: Method) -> Plan:
    """The plan of a method, once its study's public records were read."""
    with answerable(method.study):
        plan = method.agreed_plan
        if method.directions is None and not method.votes_on_public:
            check_public(method.study)
        return plan


@contextmanager
def answerable(study: Study) -> Iterator[None]:
    """Reports mistakes of another package's method or protocol as that package's, in one sentence.

    A request that is refused in a simulation counts as the method's own mistake, since the method made it.
    """
    with (
        plugins.answerable(plugins.PROTOCOLS, study.summation.protocol),
        plugins.answerable(plugins.METHODS, study.method.name, (Refused,)),
    ):
        yield


def check_description(kind: type[Method], declared: str) -> None:
    """Refuse a class whose attributes are not what a description has."""
    who = f'the method that is declared as "{declared}"'
    where = f"({kind.__module__}:{kind.__qualname__})"
    if (name := getattr(kind, "name", None)) != declared:
        raise plugins.PluginError(
            f"{who} has name = {name!r} {where}; its entry point and its name should be the same."
        )
    if not (isinstance(kind.tasks, tuple) and set(kind.tasks) <= set(get_args(Task))):
        known = plugins.quoted(get_args(Task))
        raise plugins.PluginError(
            f"{who} has tasks = {kind.tasks!r} {where}; it should be a tuple of some of: {known}."
        )
    if not (isinstance(kind.keys, type) and issubclass(kind.keys, Section)):
        raise plugins.PluginError(
            f"{who} has keys = {kind.keys!r} {where}; it should be a subclass of unspoken.study.Section."
        )
