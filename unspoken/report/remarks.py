"""Remarks on records that hardly fit their study, for whoever holds the records. They are in no certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from unspoken.data.bounding import lengths_of
from unspoken.data.checking import MANY
from unspoken.data.columns import percent
from unspoken.data.records import Records
from unspoken.methods.planning import Plan
from unspoken.methods.planning.expectation import doubt
from unspoken.methods.releases import Release
from unspoken.study import Study


def remarks(
    plan: Plan,
    train: Records | None,
    release: Release,
    scored: Records | None = None,
    classes: Sequence[object] | None = None,
) -> list[str]:
    """All remarks on a run: on its records, if they are in memory, on its noise, and on its model, by what it predicts
    for `scored` (by default the records it learnt from). `classes` are the labels if the study has their number only.
    """
    scored = train if scored is None else scored
    return [
        *(() if train is None else on_records(plan.study, train)),
        *on_noise(plan),
        *(() if scored is None else on_predictions(plan.study, release, scored, classes)),
    ]


def on_records(study: Study, records: Records) -> Iterator[str]:
    """Remarks on records that were clipped."""
    for name, share in records.outside.items():
        if share >= MANY:
            column = (study.data.columns or {})[name]
            bounds = f"{column.shown(column.low)} to {column.shown(column.high)}"
            yield (
                f"column {name!r}: {percent(share)} of the values lie outside the study's bounds {bounds} and were "
                "clipped to them; correct the values or agree on other bounds (`unspoken check` says which)"
            )
    if study.task == "regression" and study.data.label_bounds is not None:
        low, high = study.data.label_bounds
        share = float(((records.labels < low) | (records.labels > high)).mean())
        if share >= MANY:
            yield (
                f"{percent(share)} of the labels lie outside the study's label_bounds {low:g} to {high:g} and were "
                "clipped to them; correct the labels or agree on other bounds"
            )
    lengths = lengths_of(records.features, study.data)
    share = float((lengths > study.data.norm * (1.0 + 1e-9)).mean())
    if share >= MANY:
        middle = float(np.median(lengths))
        yield (
            f"{percent(share)} of the records are longer than the study's norm = {study.data.norm:.6g} and were "
            f"clipped to it (half of all are longer than {middle:.3g}); scale features by public "
            "bounds (estimators do so: bounds=(low, high)), or raise the norm"
        )


def on_noise(plan: Plan) -> Iterator[str]:
    """A remark on noise that leaves hardly anything to be learnt, by public facts: the plan says so, too."""
    if (found := doubt(plan)) is not None:
        yield found


def on_predictions(
    study: Study, release: Release, records: Records, classes: Sequence[object] | None = None
) -> Iterator[str]:
    """A remark on a model that is no better than one that always says the same."""
    if study.task == "statistics" or len(np.unique(records.labels)) < 2:
        return
    predicted = release.predict(study, records.features)
    advice = "check the bounds, or allow it more records or a larger epsilon"
    if study.task == "regression":
        error, spread = float(((predicted - records.labels) ** 2).mean()), float(np.var(records.labels))
        if error >= spread:
            yield (
                "the model is no better than always saying the mean label: its mean squared error on these records is "
                f"{error:.4g}, and the mean's is {spread:.4g}; {advice}"
            )
    elif len(found := np.unique(predicted)) == 1:
        name = (study.data.class_names if classes is None else classes)[int(found[0])]
        yield f"the model predicts the class {str(name)!r} for every record: it has learnt nothing else; {advice}"
