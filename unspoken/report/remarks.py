"""Remarks for whoever holds the records: on records that hardly fit their study and noise that hides what they say,
before a run, and on a model that says nothing, after it. Those on records are in no certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from unspoken.data.bounding import lengths_of, too_long
from unspoken.data.checking import MANY, wide_bounds
from unspoken.data.clipped import Clipped, Holders, on_clipped
from unspoken.data.columns import percent
from unspoken.data.records import Records
from unspoken.methods.planning import Plan
from unspoken.methods.releases import Release
from unspoken.study import Column, Study
from unspoken.types import Floats, Labels

_RANGED = ("number", "date")


def before_a_run(plan: Plan, train: Records | None, holders: Holders | None = None) -> list[str]:
    """What is known before anything is spent: about the records, if they are in memory, and by public facts."""
    return [*plan.doubts, *(() if train is None else on_records(plan.study, train, holders))]


def on_records(study: Study, records: Records, holders: Holders | None = None) -> Iterator[str]:
    """Remarks on records that are clipped, or hidden by noise that bounds far away ask for.

    `holders` are the parties, where somebody has said whose the records are.
    """
    columns = study.data.columns or {}
    found = [Clipped(f"column {name!r}", flags, _bounds(columns[name])) for name, flags in records.clipped.items()]
    remedy = "correct the values or agree on other bounds (`unspoken check` says which)"
    yield from on_clipped(found, holders, "the study's bounds", remedy)
    if study.task == "regression" and study.data.label_bounds is not None:
        yield from _on_labels(study.data.label_bounds, records.labels, holders)
    if study.data.columns is not None:
        yield from _on_wide_bounds(study.data.columns, records)
    yield from _on_lengths(study, records)


def on_drops(plan: Plan, drop: int, option: str) -> Iterator[str]:
    """A remark on a simulation in which more parties vanish than the study allows."""
    if drop > plan.trust.dropouts and not plan.is_pooled:
        yield (
            f"{option} is {drop}, more than the study's dropouts = {plan.trust.dropouts} allows, so that nothing will "
            "be released; raise dropouts in [privacy], unless that is what you want to see"
        )


def _bounds(column: Column) -> str:
    return f"{column.shown(column.low)} to {column.shown(column.high)}"


def _on_labels(bounds: tuple[float, float], labels: Labels, holders: Holders | None) -> Iterator[str]:
    """A regression's labels of which many are clipped, or that use a small part of their bounds."""
    low, high = bounds
    found = Clipped("the label", (labels < low) | (labels > high), f"{low:g} to {high:g}")
    yield from on_clipped([found], holders, "the study's label_bounds", "correct the labels or agree on other bounds")
    scaled: Floats = (np.clip(labels.astype(np.float64), low, high) - low) / (high - low) * 2.0 - 1.0
    if text := wide_bounds(["the label"], scaled[:, None], f"the study's label_bounds {low:g} to {high:g}"):
        yield f"{text}; agree on closer ones, if they are publicly known"


def _on_wide_bounds(columns: Mapping[str, Column], records: Records) -> Iterator[str]:
    """Columns of whose bounds the values use a small part."""
    places = np.cumsum([0, *(column.width for column in columns.values())]).tolist()
    ranged = {
        name: place for (name, column), place in zip(columns.items(), places, strict=False) if column.kind in _RANGED
    }
    used = records.features[:, list(ranged.values())]
    if text := wide_bounds([f"column {name!r}" for name in ranged], used, "the study's bounds"):
        yield f"{text}; agree on closer ones (`unspoken check` says which)"


def _on_lengths(study: Study, records: Records) -> Iterator[str]:
    """Records that are longer than the norm, or far shorter."""
    lengths = lengths_of(records.features, study.data)
    share, middle = float(too_long(lengths, study.data.norm).mean()), float(np.median(lengths))
    if share >= MANY:
        yield (
            f"{percent(share)} of the records are longer than the study's norm = {study.data.norm:.6g} and are "
            f"clipped to it (half of all are longer than {middle:.3g}); scale features by public "
            "bounds (estimators do so: bounds=(low, high)), or raise the norm"
        )
    is_chosen = study.task != "statistics" and not study.data.is_table and study.described.needs_norm(study)
    if is_chosen and middle < MANY * study.data.norm:
        yield (
            f"half of the records are no longer than {middle:.3g}, but the noise is that of records of the study's "
            f"norm = {study.data.norm:.6g}; agree on a smaller norm, or scale features by public bounds"
        )


def on_predictions(
    study: Study, release: Release, records: Records, classes: Sequence[object] | None = None
) -> Iterator[str]:
    """A remark on a model that is no better than one that always says the same."""
    if study.task == "statistics":
        return
    failed, said = release.failures(study, records.features)
    if failed:
        yield (
            f"the model cannot score {failed:,} of these {len(records):,} records ({said}), which count as scores of "
            "zero, and it learns nothing from records like these either: let the module take all within the bounds"
        )
    if len(np.unique(records.labels)) < 2:
        return
    predicted = release.predict(study, records.features)
    advice = "check the bounds, or allow it more records or a larger epsilon"
    if study.task == "regression":
        labels = np.clip(records.labels, *(study.data.label_bounds or (-np.inf, np.inf)))
        error, spread = float(((predicted - labels) ** 2).mean()), float(np.var(labels))
        if error >= spread:
            yield (
                "the model is no better than always saying the mean label: its mean squared error on these records is "
                f"{error:.4g}, and the mean's is {spread:.4g}; {advice}"
            )
    elif len(found := np.unique(predicted)) == 1:
        name = (study.data.class_names if classes is None else classes)[int(found[0])]
        yield f"the model predicts the class {str(name)!r} for every record: it has learnt nothing else; {advice}"
