"""A model file's description of itself: how a record becomes the vector that the model takes, and what its scores mean.

It is plain data, so that a few lines without unspoken can follow it (docs/cross_silo.md has them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unspoken.study import Column, Study

FORMAT = "unspoken model 1"


def description(study: Study, module: Mapping[str, Any]) -> dict[str, Any]:
    """What a table's columns, or a matrix, go through before the model; then what comes out of it.

    `module` is what `TorchModel.described` says. The study does not always say it: in a vote, its `model` is the
    parties' own, and the student's is released.
    """
    data = study.data
    columns = data.columns or {}
    labels: dict[str, Any] = {"classes": None, "label_bounds": list(data.label_bounds or ())}
    if study.task == "classification":
        labels = {"classes": data.class_names, "label_bounds": None}
    return {
        "format": FORMAT,
        "study": study.name,
        "task": study.task,
        **module,
        "features": [rule for name, column in columns.items() for rule in _rules(name, column)] or data.raw_dimension,
        "constant": data.constant if data.has_intercept else None,
        "norm": data.norm,
        **labels,
        "steps": [
            "make each feature of its column (scale: clip to [low, high], then map to [-1, 1]; equals, other, missing: "
            "1 or 0); a matrix is taken as it is",
            "append the constant, if there is one",
            "divide the vector by max(1, its L2 norm / norm)",
            "give it the shape, if there is one, and put it into the model",
            "the class is that of the highest score; a regression's score is multiplied by max(1, norm before / norm), "
            "clipped to [-1, 1] and mapped from there to label_bounds",
        ],
    }


def _rules(name: str, column: Column) -> list[dict[str, Any]]:
    """One rule for each feature that a column becomes, in their order."""
    own = [{"column": name, "missing": True}] if column.has_missing_feature else []
    if column.categories is None:
        scaled = {"column": name, "kind": column.kind, "scale": [column.low, column.high], "fill": column.fill}
        return [scaled, *own]
    fill = None if column.fill is None else column.categories[int(column.fill)]
    listed: list[dict[str, Any]] = [{"column": name, "equals": each, "fill": fill} for each in column.categories]
    other = [{"column": name, "other": list(column.categories)}] if column.other else []
    return [*listed, *other, *own]
