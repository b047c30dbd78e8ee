"""The error of released statistics, against the same function of all records without noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.methods.releases import Release
from unspoken.study import Study, day_of


def pooled(study: Study, records: Records) -> Block:
    """All records in one place, bounded as the study says."""
    one = study.parties.model_copy(update={"count": 1, "records": 1, "max_records": len(records)})
    alone = study.model_copy(update={"parties": one})
    ((_, block),) = ArrayFederation(alone, records, np.zeros(len(records), dtype=np.int64)).blocks()
    return block


def relative_error(study: Study, released: Release, exact: Release, records: int) -> float:
    """The root mean square of all errors: of a mean as a share of its column's range, of a count as one of all records,
    of a share as it is."""
    found, true = released.to_json()["statistics"], exact.to_json()["statistics"]
    errors = [
        (number - right) / _range(study, column, name, records)
        for column in true
        for (name, number), (_, right) in zip(_numbers(found[column]), _numbers(true[column]), strict=True)
    ]
    return float(np.sqrt(np.mean(np.square(errors))))


def _numbers(statistic: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in statistic.items():
        if name in ("mean", "counts", "shares"):
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            days = [day_of(part) for part in parts]
            yield from ((name, float(day.toordinal() if day else part)) for day, part in zip(days, parts, strict=True))


def _range(study: Study, column: str, name: str, records: int) -> float:
    if name == "counts":
        return float(records)
    bounds = (study.data.columns or {}).get(column)
    if name == "shares" or bounds is None:
        return 1.0 if name == "shares" else 2.0 * study.data.norm
    return bounds.high - bounds.low
