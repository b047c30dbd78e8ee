"""What every method in the registry must do, ours and other packages': found there, and known by no name here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

from factories import make
from small_studies import KEY, federation_of, method_of, methods_and_tasks, public_file, records_of, small
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.base import Collect, PartyContext, PartyRequest, Sum
from unspoken.methods.planning import PlannedSum
from unspoken.methods.registry import METHODS, method_for
from unspoken.methods.releases import Release
from unspoken.noise.stream import SecretStream
from unspoken.privacy import accounting
from unspoken.report.certificate import certificate, check_details
from unspoken.report.happened import cannot_be
from unspoken.study import Study, StudyError, plain
from unspoken.study.reading import read_study
from unspoken.study.sections import Task
from unspoken.templates import study_text

CASES = list(methods_and_tasks())
CASE = pytest.mark.parametrize(("name", "task"), CASES, ids=[f"{name}-{task}" for name, task in CASES])
NAME = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_file(tmp_path_factory.mktemp("public"))


@cache
def study_of(public: Path, name: str, task: str) -> Study:
    return small(public, name, task, colluding=1, dropouts=2)


@NAME
def test_it_describes_itself(name: str) -> None:
    kind = METHODS[name]
    assert kind.name == name
    assert re.fullmatch(r"\S.{9,90}", kind.summary)
    assert kind.tasks
    assert set(kind.tasks) <= set(get_args(Task))
    assert set(kind.matrix_template) <= set(kind.template) <= set(kind.tasks)
    assert kind.__doc__


@NAME
def test_every_key_says_what_would_be_right(name: str) -> None:
    for key, field in METHODS[name].keys.model_fields.items():
        assert field.description, key
        untold = [value for value in _values(field.annotation) if f'"{value}"' not in field.description]
        assert not untold, key


def _values(annotation: Any) -> set[str]:
    """The texts that a key may have, where it may not have others."""
    if get_origin(annotation) is Literal:
        return {value for value in get_args(annotation) if isinstance(value, str)}
    return {value for part in get_args(annotation) for value in _values(part)}


@NAME
def test_its_templates_are_studies(name: str, tmp_path: Path) -> None:
    for task in METHODS[name].template:
        for matrix in (True, False):
            text = study_text("study.toml", "made", matrix=matrix, task=task, method=name)
            public = "public.npz" if matrix else "public.csv"
            (tmp_path / "study.toml").write_text(text.replace(public, str(_public_records(tmp_path, matrix))))
            study = read_study(tmp_path / "study.toml")
            assert (study.method.name, study.task) == (name, task)
            assert method_for(study).plan().guarantee.is_promise


def _public_records(folder: Path, matrix: bool) -> Path:
    """Public records that fit the templates' data."""
    rng = np.random.default_rng(0)
    if matrix:
        np.savez(folder / "given.npz", X=rng.normal(size=(300, 64)))
        return folder / "given.npz"
    rows = [f"{rng.integers(0, 110)},{rng.integers(0, 300)},{rng.choice(['f', 'm'])}" for _ in range(300)]
    (folder / "given.csv").write_text("\n".join(["age,weight,sex", *rows]) + "\n")
    return folder / "given.csv"


@CASE
def test_it_plans_without_data_and_always_the_same(name: str, task: str, public: Path) -> None:
    study = study_of(public, name, task)
    plans = [method_for(study).plan().to_json() for _ in range(2)]
    assert plans[0] == plans[1]


@CASE
def test_its_plan_has_the_fixed_fields(name: str, task: str, public: Path) -> None:
    plan = method_for(study_of(public, name, task)).plan()
    content = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    fields = {"method", "guarantee", "releases", "rounds", "upload_bytes", "summation_parameters"}
    assert fields <= content.keys()
    assert {"epsilon", "delta", "unit", "adjacency", "colluding", "dropouts"} <= content["guarantee"].keys()
    assert content["method"] == name
    assert content["rounds"] >= 1
    assert content["upload_bytes"] > 0
    for release in content["releases"]:
        assert {"name", "sensitivity", "noise_std", "count"} <= release.keys()
        assert release["sensitivity"] >= 0.0
        assert release["count"] >= 1


@CASE
def test_its_guarantee_is_what_accounting_makes_of_its_spend(name: str, task: str, public: Path) -> None:
    """No method states an ε of its own. Rounding up the noise may spend a little less than is promised."""
    study = study_of(public, name, task)
    plan = method_for(study).plan()
    spent = accounting.epsilon_of(plan.spend, plan.guarantee.delta)
    if plan.guarantee.is_promise:
        assert spent <= plan.guarantee.epsilon * (1.0 + 1e-9)
        assert spent == pytest.approx(plan.guarantee.epsilon, rel=0.02)
        assert plan.guarantee.epsilon <= study.epsilon
        assert plan.guarantee.delta <= study.privacy.delta
    else:
        assert math.isinf(spent)


@NAME
def test_unknown_keys_are_refused_in_a_good_sentence(name: str, public: Path) -> None:
    kind = METHODS[name]
    key = next(iter(kind.keys.model_fields), "rounds")
    wrong = key[:-1] + "x"
    with pytest.raises(StudyError) as caught:
        small(public, name, kind.tasks[0], keys={wrong: 1})
    sentence = str(caught.value)
    assert "[method]" in sentence
    assert wrong in sentence
    if kind.keys.model_fields:
        assert f"did you mean '{key}'?" in sentence


@NAME
def test_other_tasks_are_refused(name: str, public: Path) -> None:
    for task in set(get_args(Task)) - set(METHODS[name].tasks):
        with pytest.raises(StudyError, match="only"):
            small(public, name, task)


def extreme(study: Study) -> dict[str, np.ndarray]:
    """Features as large, as small and as alike as they come. The federation bounds them, as it does at a party."""
    count, width = study.parties.count * study.parties.records, study.data.features or 0
    rng = np.random.default_rng(2)
    return {
        "usual": rng.normal(size=(count, width)),
        "huge": np.full((count, width), 1e300) * rng.choice([-1.0, 1.0], (count, width)),
        "zero": np.zeros((count, width)),
        "tiny": np.full((count, width), 5e-324),
        "alike": np.ones((count, width)),
    }


def asked(method: Any, planned: PlannedSum, turn: int, value: float) -> PartyRequest:
    """A request that the method takes, with numbers at the end of their range, or at its middle."""
    kind: Any = Sum if planned.noise.summed else Collect
    bare = kind(planned.name, None, turn)
    parameters, indices = method.parameters(bare), method.indices(bare)
    numbers = parameters.nearest(np.full(parameters.size, value)) if parameters.ranges else None
    places = np.arange(indices.size) if indices.size else None
    request: PartyRequest = kind(planned.name, numbers, turn, places)
    method.check(request, turn)
    return request


@CASE
def test_contributions_are_finite_and_within_the_declared_bound(name: str, task: str, public: Path) -> None:
    """Whatever the records are and whatever numbers a request may carry. The bound is that of the plan's encoding:
    beyond it a vector would be clipped."""
    study = study_of(public, name, task)
    method, labels = method_of(study), records_of(study).labels
    plan = method.plan()
    if plan.is_pooled:
        pytest.skip("parties contribute their records, to one place")
    groups = np.repeat(np.arange(study.parties.count), study.parties.records)
    for features in extreme(study).values():
        ((_, block),) = ArrayFederation(study, Records(features, labels), groups).blocks()
        contexts = [PartyContext(SecretStream(KEY)) for _ in range(len(block))]
        for planned in plan.sums:
            for turn in {0, planned.count - 1}:
                for value in (0.0, 1e300):
                    made = method.contribute(asked(method, planned, turn, value), block, contexts)
                    assert made.noisy.shape == (len(block), planned.dimension)
                    assert made.exact.shape == (len(block), len(planned.exact))
                    assert np.isfinite(made.noisy).all()
                    norms = np.linalg.norm(made.noisy, axis=1)
                    assert norms.max() <= planned.encoding.bound * (1.0 + 1e-9)


UNITS = ("record", {"group": 2}, "party")


@CASE
def test_its_release_can_be_scored_and_saved(
    name: str, task: str, public: Path, tmp_path: Path, runs: Callable[[int, int], int]
) -> None:
    """For records and for parties, as far as it promises something for them, which is one of both at least; and for
    groups of records, which differ from single ones in the noise only, with --soak."""
    studies = []
    for unit in UNITS if runs(0, 1) else ("record", "party"):
        with suppress(StudyError):
            studies.append(small(public, name, task, colluding=1, dropouts=2, unit=unit))
    assert studies
    for number, study in enumerate(studies):
        method = method_of(study)
        plan = method.plan()
        outcome = local.run(method, plan, federation_of(study), Conditions(secrets=SecretStream(KEY)))
        check_release(study, outcome.release, tmp_path / f"release-{number}{outcome.release.suffix}")
        check_details(plan, outcome.release)
        assert cannot_be(plan, certificate(plan, outcome)) is None, "parties would not sign its certificate"


def check_release(study: Study, release: Release, path: Path) -> None:
    test = records_of(study, seed=9)
    metrics = release.metrics(study, test, records_of(study))
    assert all(math.isfinite(value) for value in metrics.values())
    release.save(study, path)
    assert path.stat().st_size
    if release.kind == "model":
        assert metrics
        scores = release.scores(study, test.features)
        assert scores.shape[0] == len(test.features)
        assert np.isfinite(scores).all()
    else:
        assert release.to_json()
    for said in (release.to_json(), release.details, getattr(release, "statistics", {})):
        assert json.dumps(plain(said), allow_nan=False)


@CASE
def test_it_reads_columns_that_the_study_has(name: str, task: str) -> None:
    keys = {"classes": ["no", "yes"], "label": "y"} if task == "classification" else {}
    keys = {"label_bounds": [0, 1], "label": "y"} if task == "regression" else keys
    columns = {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}, "weight": {"min": 2, "max": 9}}
    study = make(name, task=task, data={"columns": columns, **keys})
    read = METHODS[name].columns_read(study)
    assert set() < set(read) <= set(columns)
    assert len(set(read)) == len(read)
