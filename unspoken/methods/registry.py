"""The methods by the names that a study uses: ours, and those of other packages (see `unspoken.plugins`)."""

from __future__ import annotations

from unspoken import plugins
from unspoken.methods.base import Method
from unspoken.study import Study

METHODS = plugins.Group[Method](plugins.METHODS, Method)  # type: ignore[type-abstract]


def method_for(study: Study) -> Method:
    """The study's method, set up and checked."""
    kind = study.described
    if not issubclass(kind, Method):
        raise plugins.PluginError(f'"{study.method.name}" is no subclass of unspoken.methods.base.Method.')
    if (name := getattr(kind, "name", None)) != study.method.name:
        raise plugins.PluginError(
            f'the method that is declared as "{study.method.name}" has name = {name!r} ({kind.__module__}:'
            f"{kind.__qualname__}); its entry point and its name should be the same."
        )
    return kind(study)
