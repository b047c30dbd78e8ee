"""Every method plans and runs every task that it fits, for programs and for people."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import (
    GUARANTEE_FIELDS,
    KINDS,
    PLAN_FIELDS,
    RELEASE_FIELDS,
    SIMULATION_FIELDS,
    in_process,
    shown,
    strict,
    without_notes,
)

NAMES = ("helmet", "moments", "cape", "conv", "local", "central", "dp-fm", "objective-perturbation", "none")
FITTING = [
    (method, task)
    for method in NAMES
    for task in KINDS
    if not (method == "helmet" and task != "classification")
    and not (method in ("dp-fm", "objective-perturbation") and task == "statistics")
]


@pytest.mark.parametrize(("method", "task"), FITTING)
def test_every_method_plans_and_runs_every_task_that_it_fits(
    tasks: Callable[..., Path], method: str, task: str
) -> None:
    folder = tasks(task, method)
    planned = in_process(folder, "plan", "study.toml", "--json")
    assert (planned.returncode, planned.stderr) == (0, "")
    plan = strict(planned.stdout)
    assert plan.keys() >= PLAN_FIELDS
    assert plan["guarantee"].keys() >= GUARANTEE_FIELDS
    assert all(release.keys() >= RELEASE_FIELDS for release in plan["releases"])
    assert plan["method"] == method
    done = in_process(folder, "simulate", "study.toml", "--data", "train.csv", "--output", "out", "--json")
    assert (done.returncode, without_notes(done.stderr)) == (0, "")
    result = strict(done.stdout)
    assert result.keys() >= SIMULATION_FIELDS
    assert (result["guarantee"]["epsilon"] is None) == (method == "none")
    assert (
        result["metrics"].keys()
        == {
            "classification": {"training_accuracy", "training_balanced_accuracy"},
            "regression": {"training_mse", "training_r2", "training_coefficient_error"},
            "statistics": set(),
        }[task]
    )
    assert ("statistics" in result) == (task == "statistics")
    kind = "statistics" if task == "statistics" else "model"
    written = {path.name for path in (folder / "out").iterdir()}
    assert written == {"heart.certificate.json", f"heart.{kind}.{'json' if kind == 'statistics' else 'skops'}"}
    certificate = strict((folder / result["files"]["certificate"]).read_text(encoding="utf-8"))
    assert certificate["guarantee"] == result["guarantee"]
    assert certificate[f"{kind}_sha256"] == hashlib.sha256((folder / result["files"][kind]).read_bytes()).hexdigest()
    if task == "statistics":
        assert strict((folder / result["files"]["statistics"]).read_text(encoding="utf-8")) == result["statistics"]
        assert result["statistics"].keys() == {"age", "sex"}


@pytest.mark.parametrize(("method", "task"), FITTING)
@pytest.mark.long
def test_every_method_is_explained_to_people(tasks: Callable[..., Path], method: str, task: str) -> None:
    folder = tasks(task, method)
    told = shown(folder, "plan", "study.toml")
    ran = shown(folder, "simulate", "study.toml", "--data", "train.csv")
    promise = "No privacy is promised" if method == "none" else "Whoever sees the result"
    pooled = method in ("central", "dp-fm", "objective-perturbation", "none")
    for text in (told, ran):
        assert f"Guarantee. {promise}" in text
        assert ("SIMULATION: all parties ran on this machine, where all records were" in text) == (text is ran)
        assert ("needs all records in one place: it is a baseline" in text) == pooled
        # Nobody is told of a sum that does not take place.
        assert ("compute-nodes" in text) == (method in ("helmet", "moments", "cape"))
    assert ("epsilon" in ran) == (method != "none")
    assert {"local": "1 of 1"}.get(method, "20 of 20") + " took part to the end" in ran
    if task == "regression":
        assert re.search(r"training mse \d", ran)
    if task == "statistics":
        assert re.search(r"age mean -?\d+\.?\d* ", ran)
        assert re.search(r"sex f -?\d+\.\d+ % ", ran)
    assert told.count("the noise is sized for the 16 that then remain") == (method in ("helmet", "moments", "cape"))
