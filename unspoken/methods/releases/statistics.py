"""Released numbers instead of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unspoken.data.files import Records
from unspoken.errors import UnspokenError
from unspoken.methods.releases.base import Release
from unspoken.study import Study
from unspoken.types import Floats


class NoModel(UnspokenError):
    """A prediction was asked of statistics, which have none."""

    def __init__(self) -> None:
        super().__init__("the release has statistics and no model: nothing can be predicted from it.")


@dataclass(frozen=True)
class Statistics(Release):
    """Numbers by the names of columns. There is no model: whoever asks for one is told so."""

    kind = "statistics"
    suffix = "json"
    statistics: dict[str, Any]
    details: dict[str, Any]
    link = None

    def scores(self, study: Study, features: Floats) -> Floats:
        raise NoModel

    def estimator(self, study: Study) -> Any:
        raise NoModel

    def metrics(self, study: Study, test: Records, train: Records | None = None) -> dict[str, float]:
        return {}

    def save(self, study: Study, path: Path) -> None:
        path.write_text(json.dumps(self.statistics, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def to_json(self) -> dict[str, Any]:
        return {"statistics": self.statistics}

    def rows(self) -> list[tuple[str, str, str, str]]:
        return [(name, *row) for name, found in self.statistics.items() for row in _rows(found)]


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """A row for each number of a column, or for each of its bins or categories: the statistic, its value, the deviation
    of the noise in it."""
    noise = f"{found['noise_std']:.3g}" if "noise_std" in found else ""
    if "edges" in found:
        for low, high, count in zip(found["edges"], found["edges"][1:], found["counts"], strict=False):
            yield f"{low:.4g} to {high:.4g}", f"{count:.1f}", noise
    elif "shares" in found:
        for value, share in found["shares"].items():
            yield value, f"{100 * share:.2f} %", f"{100 * found['noise_std']:.3g} %"
    elif "counts" in found:
        for value, count in found["counts"].items():
            yield value, f"{count:.1f}", noise
    else:
        for name, value in found.items():
            if name != "noise_std":
                yield name, f"{value:.6g}", noise
