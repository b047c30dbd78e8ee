"""Settings of a method, chosen on public labelled records: no private record is looked at, so it costs no privacy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unspoken.data.files import DataError, Records, read_records
from unspoken.methods.base import Choice, Settings, Trials
from unspoken.methods.registry import method_for
from unspoken.simulation.arrays import records_of, warn
from unspoken.study import LARGEST_EPSILON, LEAST_EPSILON, Study, StudyError, make_study, study_of

if TYPE_CHECKING:
    import pandas as pd

_NAMED = 10
"""The most classes that a remark names"""


@dataclass(frozen=True)
class Tuned:
    """The choices for each ε, on how many public records they were made."""

    study: Study
    choices: tuple[Choice, ...]
    records: int
    remarks: tuple[str, ...] = ()
    """What the public records cannot tell"""

    def to_json(self) -> dict[str, Any]:
        choices = [choice.to_json() for choice in self.choices]
        told = {"study": self.study.name, "method": self.study.method.name, "records": self.records}
        return {**told, "choices": choices, "remarks": list(self.remarks)}


def tune(
    study: Study | dict[str, Any] | str | Path,
    X: npt.ArrayLike | pd.DataFrame | str | Path,  # noqa: N803 (the name that everyone expects)
    y: npt.ArrayLike | None = None,
    *,
    epsilons: Sequence[float] | None = None,
    split: str = "iid",
    repeats: int = 3,
    seed: int = 0,
) -> Tuned:
    """Choose a method's settings for each ε from public or made-up labelled records, never from private ones.

    X and y are such records, given as for `unspoken.simulate`, or X is the path of their file (CSV, Parquet or NPZ, as
    the study says). Of `helmet` these are Λ, the radius and the norm. Records are split `repeats` times into some to
    learn from and others to measure on, and dealt to parties by `split`. The noise is what the study's own parties
    would add for each ε.
    """
    tuned = tune_records(*_asked(study, X, y, epsilons, Trials((), split, repeats, seed)))
    warn(tuned.remarks, stacklevel=2)
    return tuned


def tune_file(study: Study, file: Path, epsilons: Sequence[float] | None, trials: Trials) -> Tuned:
    """The same for a file, without Python's warnings."""
    return tune_records(*_asked(study, file, None, epsilons, trials))


def _asked(
    study: Study | dict[str, Any] | str | Path, features: Any, labels: Any, epsilons: Any, trials: Trials
) -> tuple[Study, Records, Trials]:
    """The study, its public records, and how settings are tried on them."""
    agreed = study_of(study)
    if isinstance(features, str | Path):
        if labels is not None:
            raise DataError("X is a file's path, which has the labels, too; leave y out.")
        public = read_records(Path(features), agreed)
    else:
        public = records_of(features, labels, agreed, "public")
    if epsilons is None:
        if agreed.privacy.epsilon is None:
            problem = "lacks epsilon, for which settings are chosen; name values (--epsilons 1, or epsilons=[1])"
            raise agreed.error("privacy", problem)
        epsilons = (agreed.privacy.epsilon,)
    if isinstance(epsilons, str) or not hasattr(epsilons, "__iter__"):
        raise DataError(f"epsilons is {epsilons!r}, but should be a list of numbers, such as [0.1, 1].")
    return agreed, public, replace(trials, epsilons=tuple(epsilons))


def tune_records(study: Study, public: Records, trials: Trials) -> Tuned:
    """The same for records that were read already."""
    if study.data.public is not None:
        raise study.error(
            "data.public", "maps records before they are learnt from; leave it out while settings are chosen"
        )
    _check(trials)
    kind = type(method_for(study))
    trials = replace(
        trials, epsilons=tuple(map(float, trials.epsilons)), repeats=int(trials.repeats), seed=int(trials.seed)
    )
    return Tuned(study, tuple(kind.tuned(study, public, trials)), len(public), tuple(_remarks(study, public)))


def _check(trials: Trials) -> None:
    """Refuse what cannot be tried."""
    wanted = trials.epsilons
    for epsilon in wanted:
        is_number = isinstance(epsilon, Real) and not isinstance(epsilon, bool)
        if not (is_number and LEAST_EPSILON <= float(epsilon) <= LARGEST_EPSILON):
            raise DataError(f"epsilons has {epsilon!r}, but should have numbers from 1e-4 to 1000.")
    for name, value in (("repeats", trials.repeats), ("seed", trials.seed)):
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise DataError(f"{name} is {value!r}, but should be a whole number.")
    if trials.seed < 0:
        raise DataError(f"seed is {trials.seed}, but should be 0 or more.")
    if trials.repeats < 1:
        raise DataError(f"repeats is {trials.repeats}, but should be 1 or more.")
    if not wanted:
        raise DataError("epsilons has no number, but should have one or more.")


def _remarks(study: Study, public: Records) -> list[str]:
    """A remark on classes that settings were not chosen for."""
    if study.task != "classification":
        return []
    names = study.data.class_names
    missing = [str(names[label]) for label in np.setdiff1d(np.arange(len(names)), public.labels)]
    if not missing:
        return []
    listed = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
    return [
        f"no public record has {'the class' if len(missing) == 1 else 'one of the classes'} {listed}, so the settings, "
        "and the accuracy, are those of a study without"
    ]


def with_settings(text: str, settings: Settings, source: str) -> str:
    """A study file's text with these keys, and without those that are None; comments and all else stay as they are."""
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


def _with_key(lines: list[str], header: int, key: str, value: float | None) -> list[str]:
    """The lines with this key in the section that begins at `header`: in place of the old one, or first. None: without
    it."""
    end = next(
        (number for number in range(header + 1, len(lines)) if lines[number].lstrip().startswith("[")), len(lines)
    )
    said = f"{key} = {value!r}"
    for number in range(header + 1, end):
        if match := re.match(rf"\s*{key}\s*=[^#]*(#.*)?$", lines[number]):
            comment = f"  {match.group(1)}" if match.group(1) else ""
            kept = [] if value is None else [said + comment]
            return [*lines[:number], *kept, *lines[number + 1 :]]
    return lines if value is None else [*lines[: header + 1], said, *lines[header + 1 :]]
