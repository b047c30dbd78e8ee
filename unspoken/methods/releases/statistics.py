"""Released numbers instead of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unspoken.data.files import Records
from unspoken.errors import UnspokenError
from unspoken.methods.releases.base import Release
from unspoken.study import Study, plain
from unspoken.types import Floats
from unspoken.writing import finite


class NoModel(UnspokenError):
    """A prediction was asked of statistics, which have none."""

    def __init__(self) -> None:
        super().__init__("the release has statistics and no model: nothing can be predicted from it.")


@dataclass(frozen=True)
class Statistics(Release):
    """Numbers by the names of columns. There is no model: whoever asks for one is told so.

    A column has numbers by name, such as {"median": 41.5, "noise_std": 0.3}, where `noise_std` is the deviation of the
    noise in all the others; or {"edges": […], "counts": […]}, or "counts" or "shares" by category. Beside a mean,
    "missing" is a share, and its noise is `missing_noise_std`.
    """

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

    def to_bytes(self, study: Study) -> bytes:
        return (json.dumps(finite(plain(self.statistics)), indent=2, ensure_ascii=False) + "\n").encode()

    def to_json(self) -> dict[str, Any]:
        return {"statistics": finite(plain(self.statistics))}

    def rows(self) -> list[tuple[str, str, str, str]]:
        return [(name, *row) for name, found in plain(self.statistics).items() for row in _rows(found)]


def _rows(found: Any) -> Iterator[tuple[str, str, str]]:
    """A row for each number of a column, or for each of its bins or categories: the statistic, its value, the deviation
    of the noise in it."""
    if not isinstance(found, dict):
        found = {"": found}
    noise = f"{found['noise_std']:.3g}" if "noise_std" in found else ""
    if "edges" in found:
        for low, high, count in zip(found["edges"], found["edges"][1:], found["counts"], strict=False):
            yield f"{_edge(low)} to {_edge(high)}", f"{count:.1f}", noise
    elif "shares" in found:
        for value, share in found["shares"].items():
            yield _share(value, share, found["noise_std"])
    elif "counts" in found:
        for value, count in found["counts"].items():
            yield value, f"{count:.1f}", noise
    else:
        for name, value in found.items():
            if name == "missing" and "missing_noise_std" in found:
                yield _share(name, value, found["missing_noise_std"])
            elif name not in ("noise_std", "missing_noise_std"):
                yield from ((told, shown, noise) for told, shown in _numbers(name, value))
        return
    if "missing" in found:
        yield "missing", f"{found['missing']:.1f}", noise


def _share(name: str, share: float, noise: float) -> tuple[str, str, str]:
    """
    >>> _share("missing", 0.25, 0.01)
    ('missing', '25.00 %', '1 %')
    """
    return name, f"{100 * share:.2f} %", f"{100 * noise:.3g} %"


def _edge(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _numbers(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A number with its name; of a list, each of its numbers.

    >>> list(_numbers("centre", [0.25, 4]))
    [('centre[0]', '0.25'), ('centre[1]', '4')]
    """
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _numbers(f"{name}[{place}]", item)
    else:
        yield name, f"{value:.6g}" if isinstance(value, int | float) else str(value)
