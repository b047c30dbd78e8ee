"""The demo: handwritten digits split over many parties, one private model, and its alternatives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unspoken import writing
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records, read_records
from unspoken.data.splits import split
from unspoken.engines.conditions import Progress
from unspoken.errors import UnspokenError
from unspoken.report.evaluation import mean_alone_accuracy, pooled_accuracy
from unspoken.simulation import Simulation, simulate_records
from unspoken.study import Study, read_study
from unspoken.templates import StudyNumbers, study_text
from unspoken.types import Floats, Integers

PARTIES = 100
_TRAINING = 1400
_PIXELS = 64


@dataclass(frozen=True)
class Demo:
    simulation: Simulation
    comparison: dict[str, float]


def write_files(folder: Path) -> bool:
    """Write the demo's study and data: scikit-learn's 1,797 scanned digits, 1,400 of them to learn from.

    What is there stays as it is. Returns whether the study is another one.
    """
    with writing.staged(folder, make=True, option="--output") as hidden:
        _make_files(folder, hidden)
        study = (hidden / "study.toml").read_bytes()
        for file in sorted(hidden.iterdir()):
            writing.keep({file: folder / file.name})
        return (folder / "study.toml").read_bytes() != study


def _make_files(folder: Path, hidden: Path) -> None:
    """Write the files of a demo in `folder` into another folder."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    features, labels = _centred(pixels[order]), labels[order]
    np.savez_compressed(hidden / "train.npz", X=features[:_TRAINING], y=labels[:_TRAINING])
    np.savez_compressed(hidden / "test.npz", X=features[_TRAINING:], y=labels[_TRAINING:])
    text = study_text(
        str(folder / "study.toml"),
        "digits",
        matrix=True,
        numbers=StudyNumbers(PARTIES, _TRAINING // PARTIES, epsilon=2.0, delta="1e-5", colluding=0.1),
    )
    (hidden / "study.toml").write_text(text, encoding="utf-8")


def run(folder: Path, progress: Progress | None = None) -> Demo:
    """Run the demo's study on its files."""
    study = read_study(folder / "study.toml")
    if study.task != "classification" or study.data.features != _PIXELS:
        raise UnspokenError(
            f"{study.source}: is no longer a study of the demo's digits, and is left as it is; choose another --output."
        )
    train, test = (read_records(folder / name, study) for name in ("train.npz", "test.npz"))
    groups = split("iid", train.labels, study.parties.count, seed=0)
    simulation = simulate_records(study, train, groups, test, progress=progress)
    return Demo(simulation, _comparison(study, train, test, groups))


def _comparison(study: Study, train: Records, test: Records, groups: Integers) -> dict[str, float]:
    return {
        "accuracy, not private, all data in one place": pooled_accuracy(study, train, test),
        "accuracy of a party alone (average)": mean_alone_accuracy(study, ArrayFederation(study, train, groups), test),
    }


def _centred(pixels: Floats) -> Floats:
    """Each image minus its own mean, scaled to length 1; each record on its own."""
    centred = pixels - pixels.mean(axis=1, keepdims=True)
    unit: Floats = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return unit
