"""A model that is saved and the estimator in memory give the same numbers, by every method that releases a model.

Rows are far longer than the study's norm: what is clipped in one place only shows.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch

from factories import make
from unspoken.data.bounding import clip_rows
from unspoken.data.files import read_records
from unspoken.data.tables import Table
from unspoken.estimators import PrivateClassifier, PrivateRegressor
from unspoken.methods.registry import METHODS
from unspoken.methods.releases import LinearModel, Release
from unspoken.simulation import simulate_records
from unspoken.study import Study

PARTIES, EACH = 4, 30
SVC, BAYES = "sklearn.svm:SVC", "sklearn.naive_bayes:GaussianNB"
TRAINED = {"rounds": 2, "rate": 1.0}
VOTES = {"queries": 60, "spreading": False}

CLASSIFIERS: list[tuple[str, dict[str, Any]]] = [
    ("helmet", {"learner": "softmax"}),
    ("helmet", {"learner": "logistic"}),
    ("helmet", {"learner": "svm"}),
    ("independent-models", {}),
    ("moments", {}),
    ("moments", {"function": "discriminant"}),
    ("moments", {"function": "network", "hidden": 3, "steps": 2}),
    ("cape", {}),
    ("conv", {}),
    ("local", {}),
    ("local", {"model": "linear", **TRAINED}),
    ("central", {}),
    ("central", {"model": "linear", **TRAINED}),
    ("none", {}),
    ("none", {"model": "linear", "rounds": 2}),
    ("dp-fm", {}),
    ("objective-perturbation", {}),
    ("cross-silo", {"model": "mlp", "hidden": [3], **TRAINED}),
    ("fedavg", TRAINED),
    ("fedsgd", TRAINED),
    ("multiparty", {"labels": "average", "noise": "gaussian"}),
    ("multiparty", {"labels": "average", "noise": "gaussian", "learner": "svm"}),
    ("voting", VOTES),
    ("voting", {**VOTES, "student": BAYES}),
    ("voting", {**VOTES, "student": SVC}),
    ("voting", {**VOTES, "student": "mlp", "hidden": [3]}),
]
REGRESSORS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("moments", "cape", "conv", "local", "central", "none", "dp-fm")),
    ("objective-perturbation", {}),
    ("cross-silo", {"model": "mlp", "hidden": [3], **TRAINED}),
    ("fedavg", TRAINED),
    ("fedsgd", TRAINED),
]
FOR_PARTIES = ("fedavg", "multiparty", "voting")
"""They protect whole parties here."""


def test_no_method_is_left_out() -> None:
    assert {name for name, _ in CLASSIFIERS} == METHODS.keys()


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=3.0, size=(count, 3))


def keys_of(name: str, keys: dict[str, Any], public: Path) -> dict[str, Any]:
    return keys if name != "voting" else {**keys, "public": str(public)}


def module_of(release: Release, study: Study, path: Path) -> Any:
    """The module with the weights of the file, as plain PyTorch loads them, and with nothing of its own."""
    module = release.estimator(study)
    for tensor in module.state_dict().values():
        tensor.fill_(float("nan"))
    with np.load(path) as saved:
        module.load_state_dict({name: torch.from_numpy(saved[name]) for name in saved.files if name != "unspoken"})
    return module


def module_scores(module: Any, study: Study, features: np.ndarray) -> np.ndarray:
    """Of bounded rows, which is what a module takes."""
    with torch.no_grad():
        scores: np.ndarray = module(torch.from_numpy(clip_rows(features, study.data)).float()).double().numpy()
    return scores


def loaded(path: Path) -> Any:
    assert skops.io.get_untrusted_types(file=path) == []
    return skops.io.load(path, trusted=[])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("name", "keys"), CLASSIFIERS)
def test_a_saved_classifier_is_the_one_in_memory(
    name: str, keys: dict[str, Any], classes: int, tmp_path: Path, runs: Callable[[int, int], int]
) -> None:
    if CLASSIFIERS.index((name, keys)) % 2 == classes % 2 and not runs(0, 1):
        pytest.skip("two and three classes in turn; all with --soak")
    features = rows(PARTIES * EACH, 0)
    labels = (np.abs(features).argmax(axis=1) if classes == 3 else features[:, 0] > 0).astype(int)
    np.savez(tmp_path / "public.npz", X=rows(200, 1))
    own = {"learner": keys["learner"]} if name == "helmet" else {}
    options = {} if own else keys_of(name, keys, tmp_path / "public.npz")
    model = PrivateClassifier(
        method=name,
        **own,
        options=options,
        classes=range(classes),
        epsilon=2.0,
        delta=1e-3,
        unit="party" if name in FOR_PARTIES else "record",
        protocol="ideal",
    ).fit(features, labels, np.arange(len(labels)) % PARTIES)
    study, release, path = model.plan_.study, model._release, tmp_path / f"model.{model._release.suffix}"
    release.save(study, path)
    raw = rows(200, 2)
    if path.suffix == ".npz":
        scores = module_scores(module_of(release, study, path), study, raw)
        expected = scores if classes > 2 else scores[:, 1] - scores[:, 0]
        np.testing.assert_allclose(model.decision_function(raw), expected, rtol=1e-4, atol=1e-5)
        proba = torch.softmax(torch.from_numpy(scores), dim=1).numpy()
        np.testing.assert_allclose(model.predict_proba(raw), proba, rtol=1e-4, atol=1e-5)
        return
    saved = loaded(path)
    np.testing.assert_array_equal(model.predict(raw), saved.predict(raw))
    assert hasattr(model, "predict_proba") == hasattr(saved, "predict_proba")
    if hasattr(saved, "predict_proba"):
        np.testing.assert_allclose(model.predict_proba(raw), saved.predict_proba(raw), rtol=1e-9, atol=1e-12)
    if hasattr(saved, "decision_function"):
        np.testing.assert_allclose(model.decision_function(raw), saved.decision_function(raw), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "keys"), REGRESSORS)
def test_a_saved_regressor_is_the_one_in_memory(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    features = rows(PARTIES * EACH, 0)
    model = PrivateRegressor(
        method=name,
        options=keys,
        label_bounds=(10.0, 30.0),
        epsilon=2.0,
        delta=1e-3,
        unit="party" if name in FOR_PARTIES else "record",
        protocol="ideal",
    ).fit(features, 20.0 + features[:, 0], np.arange(len(features)) % PARTIES)
    study, release, path = model.plan_.study, model._release, tmp_path / f"model.{model._release.suffix}"
    release.save(study, path)
    raw = rows(200, 2)
    if path.suffix == ".skops":
        np.testing.assert_allclose(model.predict(raw), loaded(path).predict(raw), rtol=1e-9)
        return
    # A label was shortened with its record, constant included; and it was scaled from its bounds to [−1, 1].
    length = np.maximum(np.linalg.norm(np.column_stack([raw, np.ones(len(raw))]), axis=1), study.data.norm)
    scaled = module_scores(module_of(release, study, path), study, raw)[:, 0] * length / study.data.norm
    np.testing.assert_allclose(model.predict(raw), 20.0 + 10.0 * np.clip(scaled, -1.0, 1.0), rtol=1e-4, atol=1e-4)


COLUMNS = {"dose": {"min": -3, "max": 3}, "sex": {"categories": ["m", "f"]}, "age": {"min": 0, "max": 110}}


def people(count: int, seed: int, classes: list[str]) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"dose": rng.normal(scale=2.0, size=count), "sex": rng.choice(["f", "m"], count)})
    frame["age"] = rng.uniform(-10, 120, count)
    older = (frame["age"] > 80) if len(classes) > 2 else 0
    numbers = (frame["dose"] > 0).astype(int) + older
    return frame.assign(died=np.array(classes)[numbers])


@pytest.mark.parametrize("classes", [["yes", "no"], ["none", "mild", "fatal"]])
@pytest.mark.parametrize(("name", "keys"), CLASSIFIERS)
def test_what_the_command_line_saves_of_a_table_is_the_model_of_the_simulation(
    name: str, keys: dict[str, Any], classes: list[str], tmp_path: Path, runs: Callable[[int, int], int]
) -> None:
    if CLASSIFIERS.index((name, keys)) % 2 != len(classes) % 2 and not runs(0, 1):
        pytest.skip("two and three classes in turn; all with --soak")
    people(200, 1, classes).drop(columns="died").to_csv(tmp_path / "public.csv", index=False)
    people(PARTIES * EACH, 0, classes).to_csv(tmp_path / "train.csv", index=False)
    frame = people(200, 2, classes)
    frame.to_csv(tmp_path / "test.csv", index=False)
    study = make(
        name,
        data={"label": "died", "classes": classes, "columns": COLUMNS, "norm": 1.0},
        parties={"count": PARTIES, "records": EACH, "max_records": EACH},
        method=keys_of(name, keys, tmp_path / "public.csv"),
        summation="ideal",
        epsilon=2.0,
        delta=1e-3,
        unit="party" if name in FOR_PARTIES else "record",
    )
    train, test = (read_records(tmp_path / file, study) for file in ("train.csv", "test.csv"))
    done = simulate_records(study, train, np.arange(len(train)) % PARTIES, test)
    release = done.outcome.release
    path = Path(done.save(tmp_path)["model"])
    assert release.to_bytes(study) == path.read_bytes(), "a model has one file"
    assert done.certificate["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    expected = np.array(classes)[release.predict(study, test.features)]
    if path.suffix == ".npz":
        saved_scores = module_scores(module_of(release, study, path), study, test.features)
        np.testing.assert_allclose(release.scores(study, test.features), saved_scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(module_scores(done.model, study, test.features), saved_scores)
        return
    saved, held = loaded(path), done.model
    table = frame.drop(columns="died")
    for model in (saved, held):
        np.testing.assert_array_equal(model.predict(table), expected)
        assert hasattr(model, "predict_proba") == release.has_probabilities
        if release.has_probabilities:
            columns = [list(model.classes_).index(name) for name in classes]
            found = release.probabilities(study, test.features)
            np.testing.assert_allclose(model.predict_proba(table)[:, columns], found, rtol=1e-9, atol=1e-9)
    if hasattr(saved, "decision_function"):
        np.testing.assert_array_equal(saved.decision_function(table), held.decision_function(table))
    assert done.metrics["accuracy"] == (expected == frame["died"]).mean()


def test_the_file_of_a_model_has_neither_times_nor_places_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever makes it again gets the file that the certificate names."""
    data = {"label": "died", "classes": ["no", "yes"], "columns": COLUMNS, "norm": 1.0}
    study = make("helmet", data=data, parties={"count": PARTIES, "records": EACH}, summation="ideal")
    model = LinearModel(np.arange(2.0 * study.data.dimension).reshape(2, -1), "softmax", {})
    now, kept, made = time.localtime, [], set()
    for year in range(3):
        monkeypatch.setattr(time, "localtime", lambda *_, year=year: now(1e9 + 4e7 * year))
        kept.append(model.estimator(study))  # takes places in memory
        made.add(model.to_bytes(study))
    assert len(made) == 1


@pytest.mark.parametrize("unit", ["ns", *(pytest.param(unit, marks=pytest.mark.long) for unit in ("us", "s"))])
@pytest.mark.parametrize("missing", [None, "indicator", "2020-01-01"])
def test_days_of_a_data_frame_are_the_same_days_as_text(unit: str, missing: str | None) -> None:
    """A study takes a frame's datetime64 as it is, and so does the scikit-learn model, saved or not."""
    days = pd.to_datetime("2018-06-01") + pd.to_timedelta(np.arange(60) * 45.3, unit="D")
    frame = pd.DataFrame({"visited": days, "died": ["no", "yes", "yes"] * 20}).astype(
        {"visited": f"datetime64[{unit}]"}
    )
    frame.loc[7, "visited"] = days[8] if missing is None else pd.NaT
    column = {"min": "2019-01-01", "max": "2024-12-31", **({} if missing is None else {"missing": missing})}
    data = {"label": "died", "classes": ["no", "yes"], "columns": {"visited": column}}
    study = make("moments", data=data, parties={"count": 3, "records": 20}, summation="ideal", delta=1e-3)
    records = Table(frame, "the frame").records(study)
    done = simulate_records(study, records, np.arange(60) % 3)
    expected = done.outcome.release.probabilities(study, records.features)
    text = frame.assign(visited=frame["visited"].dt.strftime("%Y-%m-%d").fillna(""))
    saved = skops.io.loads(done.outcome.release.to_bytes(study), trusted=[])
    for model in (done.model, saved):
        for days_in in (text, frame):
            np.testing.assert_allclose(model.predict_proba(days_in), expected, rtol=1e-9, atol=1e-9)
