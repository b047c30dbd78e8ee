"""Settings of a method, chosen on public labelled records: no private record is looked at, so it costs no privacy."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy.typing as npt

from unspoken.data.files import DataError, Records, check_arrays, read_records
from unspoken.methods.base import Choice, Trials
from unspoken.methods.registry import method_for
from unspoken.study import Study, StudyError, make_study, study_of

_LARGEST_EPSILON = 1000.0


@dataclass(frozen=True)
class Tuned:
    """The choices for each ε, on how many public records they were made."""

    study: Study
    choices: tuple[Choice, ...]
    records: int

    def to_json(self) -> dict[str, Any]:
        choices = [choice.to_json() for choice in self.choices]
        return {"study": self.study.name, "method": self.study.method.name, "records": self.records, "choices": choices}


def tune(
    study: Study | dict[str, Any] | str | Path,
    X: npt.ArrayLike | str | Path,  # noqa: N803 (the name that everyone expects)
    y: npt.ArrayLike | None = None,
    *,
    epsilons: Sequence[float] | None = None,
    split: str = "iid",
    repeats: int = 3,
    seed: int = 0,
) -> Tuned:
    """Choose a method's settings for each ε from public or made-up labelled records, never from private ones.

    X and y are such records, or X is the path of their file (CSV, Parquet or NPZ, as the study says). Of `helmet` these
    are Λ, the radius and the norm. Records are split `repeats` times into some to learn from and others to measure on,
    and dealt to parties by `split`. The noise is what the study's own parties would add for each ε.
    """
    agreed = study_of(study)
    if isinstance(X, str | Path) and y is not None:
        raise DataError("X is a file's path, which has the labels, too; leave y out.")
    public = read_records(Path(X), agreed) if isinstance(X, str | Path) else check_arrays(X, y, agreed, "X")
    wanted = (agreed.epsilon,) if epsilons is None else tuple(epsilons)
    return tune_records(agreed, public, Trials(wanted, split, repeats, seed))


def tune_records(study: Study, public: Records, trials: Trials) -> Tuned:
    """The same for records that were read already."""
    if study.data.public is not None:
        raise study.error(
            "data.public", "maps records before they are learnt from; leave it out while settings are chosen"
        )
    wanted = trials.epsilons
    for epsilon in wanted:
        if not (isinstance(epsilon, Real) and 0.0 < float(epsilon) <= _LARGEST_EPSILON and math.isfinite(epsilon)):
            raise DataError(f"epsilons has {epsilon!r}, but should have numbers above 0 and up to 1000.")
    if not wanted or trials.repeats < 1:
        raise DataError(
            f"repeats is {trials.repeats} and there are {len(wanted)} epsilons, but both should be 1 or more."
        )
    kind = type(method_for(study))
    return Tuned(study, tuple(kind.tuned(study, public, trials)), len(public))


def with_settings(text: str, settings: Mapping[str, Mapping[str, float]], source: str) -> str:
    """A study file's text with these keys; comments and all else stay as they are."""
    lines = text.splitlines()
    for section, keys in settings.items():
        header = next(
            (number for number, line in enumerate(lines) if line.split("#")[0].strip() == f"[{section}]"), None
        )
        if header is None:
            raise StudyError(f"{source}: has no line [{section}] to put {', '.join(keys)} under; set them by hand.")
        for key, value in keys.items():
            lines = _with_key(lines, header, key, value)
    changed = "\n".join(lines) + "\n"
    found = tomllib.loads(changed)
    if any(found[section].get(key) != value for section, keys in settings.items() for key, value in keys.items()):
        raise StudyError(f"{source}: cannot be changed safely; set the keys by hand.")
    make_study(found, source)
    return changed


def _with_key(lines: list[str], header: int, key: str, value: float) -> list[str]:
    """The lines with this key in the section that begins at `header`: in place of the old one, or first."""
    end = next(
        (number for number in range(header + 1, len(lines)) if lines[number].lstrip().startswith("[")), len(lines)
    )
    said = f"{key} = {value!r}"
    for number in range(header + 1, end):
        if match := re.match(rf"\s*{key}\s*=[^#]*(#.*)?$", lines[number]):
            comment = f"  {match.group(1)}" if match.group(1) else ""
            return [*lines[:number], said + comment, *lines[number + 1 :]]
    return [*lines[: header + 1], said, *lines[header + 1 :]]
