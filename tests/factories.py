"""Studies for tests: the smallest that can be planned, with what a test says on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unspoken.study import Study, make_study

_LABELS: dict[str, dict[str, Any]] = {
    "classification": {"classes": 3},
    "regression": {"label_bounds": [-1, 1]},
    "statistics": {},
}
_SHORT = {"parties": "count", "method": "name", "summation": "protocol"}
"""What a section is meant to say if all that is given for it is one value."""


def make(method: str | None = None, /, **said: Any) -> Study:
    """A study of five parties with four features and three classes, by `helmet`, for ε = 1 and δ = 1e-6.

    Each keyword is a section: `parties={"count": 9, "records": 5}`, or `parties=9` for its first key, and likewise
    `method="cape"` (or first of all, without its name) and `summation="ideal"`. `task="regression"` is the study's
    task, and any other keyword is a key of [privacy]: `epsilon=2.0`. What is said is merged into what holds otherwise,
    but `data` replaces it, and `noise_multiplier` takes epsilon's place.
    """
    return maker()(method, **said)


def maker(method: str | None = None, /, **held: Any) -> Callable[..., Study]:
    """`make`, in which all that is said here holds otherwise."""
    before = _sections(method, held)

    def make(method: str | None = None, /, **said: Any) -> Study:
        content = _sections("helmet", {"parties": 5, "epsilon": 1.0, "delta": 1e-6})
        for sections in (before, _sections(method, said)):
            for name, section in sections.items():
                content[name] = section if name == "data" else content.get(name, {}) | section
            promise = sections.get("privacy", {})
            if "noise_multiplier" in promise and "epsilon" not in promise:
                content["privacy"].pop("epsilon", None)
        content["study"] = {"name": "test", "task": "classification", **content.get("study", {})}
        content.setdefault("data", {"features": 4, **_LABELS[content["study"]["task"]]})
        return make_study(content)

    return make


def _sections(method: str | None, said: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Everything in the section that it belongs to."""
    found: dict[str, dict[str, Any]] = {} if method is None else {"method": {"name": method}}
    for name, value in said.items():
        if name == "task":
            found.setdefault("study", {})["task"] = value
        elif name in Study.model_fields:
            found.setdefault(name, {}).update(value if isinstance(value, Mapping) else {_SHORT[name]: value})
        else:
            found.setdefault("privacy", {})[name] = value
    return found
