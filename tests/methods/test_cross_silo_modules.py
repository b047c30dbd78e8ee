"""Modules of one's own in a run: what they do at some records, or with many at once, ends no run."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unspoken
from factories import make
from unspoken.data.files import Records
from unspoken.errors import DataWarning
from unspoken.methods.registry import method_for, plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.study import Study, StudyError

HERE = "found_in_runs"
FEATURES, OUTPUTS = 4, 3


class Words(nn.Module):
    """Numbers of words: it has 2, and no place for others."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.places, self.last = nn.Embedding(2, 5), nn.Linear(5, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.last(self.places(rows.long()).mean(1))
        return scores


class FewAtOnce(nn.Linear):
    """Works with the batches that its author tried."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.offsets = nn.Parameter(torch.zeros(2, outputs))

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) + self.offsets[: len(rows)]


class Squeezed(nn.Linear):
    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows).squeeze()


sys.modules[HERE] = sys.modules[__name__]


def study(model: Any, **keys: Any) -> Study:
    return make(
        "cross-silo",
        data={"features": FEATURES, "norm": 100.0, "classes": OUTPUTS},
        parties={"count": 2, "records": 6, "max_records": 6},
        method={"model": model if isinstance(model, str) else f"{HERE}:{model.__name__}", "rounds": 2, "rate": 1.0}
        | keys,
        summation="ideal",
        noise_multiplier=1.0,
    )


def some_words(unknown: int, count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Records of the words 0 and 1, but for some with a word that the module does not have."""
    rng = np.random.default_rng(0)
    features = rng.integers(2, size=(count, FEATURES)).astype(float)
    features[:unknown, 0] = 2.0
    return features, rng.integers(OUTPUTS, size=count)


def test_records_that_a_module_does_not_take_end_no_run_and_are_told() -> None:
    (features, labels), (test, truth) = some_words(1), some_words(3, 8)
    with pytest.warns(DataWarning, match=r"cannot score 3 of these 8 records \(index out of range in self\)"):
        done = unspoken.simulate(study(Words), features, labels, np.arange(12) % 2, X_test=test, y_test=truth)
    release = done.outcome.release
    scores = release.scores(done.plan.study, test)
    assert not scores[:3].any()
    assert scores[3:].all()
    alone = np.concatenate([release.scores(done.plan.study, row[None]) for row in test])
    np.testing.assert_allclose(scores, alone, rtol=1e-6)
    assert release.failures(done.plan.study, test[3:]) == (0, "")


class Logarithmic(nn.Linear):
    """Gives no numbers for records that begin with a negative one."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) + 0.0 * rows[:, :1].log()


def test_scores_that_are_no_numbers_end_no_run(tmp_path: Path) -> None:
    """Also where training has gone beyond floating point: the error on validation records is a number all the same."""
    features = np.random.default_rng(0).uniform(0.1, 1.0, size=(12, FEATURES))
    np.savez(tmp_path / "public.npz", X=features[:5], y=np.linspace(-1.0, 1.0, 5))
    test = np.concatenate([-features[:2], features[2:]])
    agreed = make(
        "cross-silo",
        task="regression",
        data={"features": FEATURES, "norm": 100.0, "label_bounds": [-1, 1]},
        parties={"count": 2, "records": 6, "max_records": 6},
        method={"model": f"{HERE}:Logarithmic", "rounds": 3, "rate": 1.0, "learning_rate": 1e300}
        | {"validation": str(tmp_path / "public.npz"), "validate_every": 1},
        summation="ideal",
        noise_multiplier=1.0,
    )
    labels = features[:, 0]
    with pytest.warns(DataWarning, match=r"cannot score \d+ of these 12 records \(its scores are no numbers\)"):
        done = unspoken.simulate(agreed, features, labels, np.arange(12) % 2, X_test=test, y_test=labels)
    assert np.isfinite(done.metrics["mse"])
    assert np.isfinite(done.certificate["happened"]["validation_mse"])
    first: Any = done.outcome.release
    fresh = type(first)(first.model, first.model.initial(), {})
    assert fresh.failures(agreed, test) == (2, "its scores are no numbers")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(FewAtOnce, "cannot take rows of 4 features, five at once"), (Squeezed, r"of shape \(3,\) for one record")],
)
def test_a_module_for_some_sizes_of_batches_only_is_refused(kind: type[nn.Module], problem: str) -> None:
    with pytest.raises(StudyError, match=problem):
        plan_for(study(kind))


def validated(folder: Path, unknown: int) -> Study:
    features, labels = some_words(unknown, 8)
    np.savez(folder / "public.npz", X=features, y=labels)
    return study(Words, validation=str(folder / "public.npz"), validate_every=1)


def test_validation_records_that_are_missing_or_not_taken_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    for agreed, problem in (
        (study("linear", validation=str(tmp_path / "absent.npz")), "there is no such file"),
        (validated(tmp_path, 3), r"of whose 8 records the model cannot score 3 \(index out of range in self\)"),
    ):
        ledger, (features, labels) = Ledger(tmp_path / "ledger.db", "words"), some_words(0)
        with pytest.raises(StudyError, match=rf"\[method\] validation is .*{problem}"):
            unspoken.simulate(agreed, features, labels, np.arange(12) % 2, ledger=ledger)
        assert not ledger.account().charges


def test_the_plan_says_that_validation_records_count_as_public(tmp_path: Path) -> None:
    agreed = validated(tmp_path, 0)
    assert any("validation records count as public" in note for note in plan_for(agreed).notes)
    method_for(agreed).check_coordinator()


def test_a_weight_s_name_may_be_any(tmp_path: Path) -> None:
    """Also one that NumPy's functions have among their arguments."""
    features, labels = some_words(0)
    done = unspoken.simulate(study(Named), features, labels, np.arange(12) % 2)
    with np.load(done.save(tmp_path)["model"]) as saved:
        assert {"file", "args", "allow_pickle"} < set(saved.files)


def test_the_reader_of_model_files_takes_images_as_a_study_does(tmp_path: Path) -> None:
    (features, labels), agreed = some_words(0), study("mlp")
    done = unspoken.simulate(agreed, features, labels, np.arange(12) % 2)
    np.savez(tmp_path / "images.npz", X=features.reshape(-1, 2, 2))
    predict = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "read_model.py"))["predict"]
    found = predict(done.save(tmp_path)["model"], str(tmp_path / "images.npz"))
    assert found == done.outcome.release.predict(agreed, features).tolist()


@pytest.mark.parametrize("name", ["linear", "mlp", "cnn"])
def test_a_model_file_says_the_sizes_of_hidden_layers_that_a_study_leaves_out(tmp_path: Path, name: str) -> None:
    features = np.random.default_rng(0).normal(size=(12, 64))
    agreed = study(name).model_copy(update={"data": study(name).data.model_copy(update={"features": 64})})
    done = unspoken.simulate(agreed, features, np.arange(12) % OUTPUTS, np.arange(12) % 2)
    with np.load(done.save(tmp_path)["model"]) as saved:
        told = json.loads(str(saved["unspoken"]))["hidden"]
        arrays = [saved[each] for each in saved.files if each != "unspoken" and "convolutions" not in each]
    assert told == [len(each) for each in arrays if each.ndim == 1][:-1]
    assert len(told) == {"linear": 0, "mlp": 1, "cnn": 2}[name]


class Named(nn.Linear):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.file, self.args, self.allow_pickle = (nn.Parameter(torch.zeros(1)) for _ in range(3))


class Extra(nn.Linear):
    """Keeps more in its state than tensors."""

    def get_extra_state(self) -> Any:
        return {"version": 2}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_a_state_that_is_not_of_tensors_is_refused() -> None:
    with pytest.raises(StudyError, match="keeps '_extra_state' in its state, which is a dict"):
        plan_for(study(Extra))


def test_scores_of_no_records_are_none() -> None:
    model: Any = method_for(study(Words)).workload.model  # type: ignore[attr-defined]
    assert model.scores(model.initial(), np.zeros((0, FEATURES))).shape == (0, OUTPUTS)
    assert Records(np.zeros((0, FEATURES)), np.zeros(0)).features.shape == (0, FEATURES)
