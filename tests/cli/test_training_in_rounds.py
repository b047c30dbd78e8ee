"""Training in rounds from the command line: plans, networks, checkpoints, and what cannot be trained."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from commands import (
    METHOD,
    PLAN_FIELDS,
    SIMULATION_FIELDS,
    STUDY,
    answer,
    changed,
    complaint,
    in_process,
    shown,
    strict,
)

TRAINING = """\
[study]
name = "shapes"
task = "classification"

[data]
features = 6
classes = 3
norm = 2.0

[parties]
count = 4
records = 50
max_records = 50

[privacy]
noise_multiplier = 2.0
delta = 1e-5
colluding = 1

[method]
name = "cross-silo"
model = "mlp"
hidden = [8]
rounds = 15
rate = 0.5
learning_rate = 1.0
"""
SILOS = STUDY.replace(METHOD, '[method]\nname = "cross-silo"\nrounds = 5\nrate = 0.5\n')


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """A study that trains a network on a matrix, with labels of one byte."""
    (tmp_path / "study.toml").write_text(TRAINING, encoding="utf-8")
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        labels = rng.integers(3, size=200).astype(np.uint8)
        np.savez(tmp_path / f"{name}.npz", X=np.eye(6)[labels] + 0.1 * rng.normal(size=(200, 6)), y=labels)
    return tmp_path


def test_a_plan_reads_the_validation_records_or_says_that_they_are_not_here(shapes: Path) -> None:
    def planned(file: str) -> subprocess.CompletedProcess[str]:
        text = TRAINING + f'validation = "{file}"\n'
        (shapes / "study.toml").write_text(text, encoding="utf-8")
        return in_process(shapes, "plan", "study.toml", "--json")

    there, absent = planned("test.npz"), planned("absent.npz")
    np.savez(shapes / "wrong.npz", X=np.zeros((3, 5)), y=np.zeros(3, dtype=int))
    wrong = planned("wrong.npz")
    assert (there.returncode, there.stderr, absent.returncode) == (0, "", 0)
    agreed = {"study_sha256": mock.ANY}
    assert json.loads(absent.stdout) == json.loads(there.stdout) | agreed
    assert 'note: validation = "absent.npz" is not on this machine; the coordinator must have it' in absent.stderr
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "wrong.npz" in wrong.stderr


def test_a_plan_of_training_in_rounds_says_how_records_are_sampled(shapes: Path) -> None:
    plan = answer(shapes, "plan", "study.toml", "--weakening")
    assert plan.keys() >= PLAN_FIELDS
    assert plan["sampling"] == {"kind": "poisson", "rate": 0.5}
    assert plan["noise_multiplier"] == pytest.approx(2.0)
    assert plan["rounds"] == plan["releases"][0]["count"] == 15
    assert plan["releases"][0]["dimension"] == 6 * 8 + 8 + 8 * 3 + 3
    assert [row["colluding"] for row in plan["weakening"]] == [1, 2, 3]
    found = [row["epsilon"] for row in plan["weakening"]]
    assert found == sorted(found)
    assert found[0] == pytest.approx(plan["guarantee"]["epsilon"], rel=0.02)
    text = shown(shapes, "plan", "study.toml", "--weakening")
    assert "83 numbers, 15 times" in text
    assert f"epsilon = {plan['guarantee']['epsilon']:.4g}, delta = 1e-05" in text
    assert re.search(r"colluding parties epsilon 1 [\d.]+ 2 [\d.]+ 3 [\d.]+$", text)


def test_a_network_is_trained_and_its_weights_load_anywhere(shapes: Path) -> None:
    import torch

    from unspoken.learners.torch_modules import make_module

    options = ["--data", "train.npz", "--test", "test.npz", "--output", "out"]
    result = answer(shapes, "simulate", "study.toml", *options)
    assert result.keys() >= SIMULATION_FIELDS
    assert sorted(path.name for path in (shapes / "out").iterdir()) == ["shapes.certificate.json", "shapes.model.npz"]
    path = shapes / result["files"]["model"]
    certificate = strict((shapes / result["files"]["certificate"]).read_text(encoding="utf-8"))
    assert certificate["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert certificate["happened"]["epsilon"] <= certificate["guarantee"]["epsilon"]
    with np.load(path, allow_pickle=False) as weights:
        state = {name: torch.from_numpy(weights[name]) for name in weights if name != "unspoken"}
    module = make_module("mlp", 6, 3, [8])
    module.load_state_dict(state)
    with np.load(shapes / "test.npz") as test:
        rows, labels = test["X"], test["y"]
    rows *= np.minimum(1.0, 2.0 / np.linalg.norm(rows, axis=1))[:, None]
    guesses = module(torch.from_numpy(rows).float()).argmax(1).numpy()
    assert result["metrics"]["accuracy"] == pytest.approx((guesses == labels).mean())
    assert result["metrics"]["accuracy"] > 0.6


def test_a_run_with_a_checkpoint_is_not_done_twice(shapes: Path) -> None:
    options = ["--data", "train.npz", "--test", "test.npz", "--checkpoint", "run.checkpoint"]
    first, again = (answer(shapes, "simulate", "study.toml", *options) for _ in range(2))
    assert first["metrics"] == again["metrics"]
    assert first["bytes"] == again["bytes"]
    assert complaint(shapes, "simulate", "study.toml", *options, "--drop", "1") == (
        "run.checkpoint: is the checkpoint of a run with drop 0, seed 0, but this run has drop 1, seed 0; "
        "choose another file."
    )
    changed(shapes, "rate = 0.5", "rate = 0.4")
    assert complaint(shapes, "simulate", "study.toml", *options) == (
        "run.checkpoint: is the checkpoint of another study or other data; choose another file."
    )


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
def test_a_table_is_trained_on(folder: Path, sampling: str) -> None:
    (folder / "study.toml").write_text(f'{SILOS}sampling = "{sampling}"\n', encoding="utf-8")
    options = ["--data", "train.csv", "--test", "test.parquet", "--parties", "5", "--drop", "1"]
    result = answer(folder, "simulate", "study.toml", *options)
    assert (result["survivors"], result["sampling"]["kind"]) == (4, sampling)
    assert result["guarantee"]["epsilon"] <= 3.0
    if sampling == "poisson":
        text = shown(folder, "simulate", "study.toml", *options)
        assert "cross-silo over compute-nodes" in text
        assert "4 of 5 took part to the end" in text
        assert "heart-2.model.npz" in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "noise_multiplier = 2.0",
            "noise_multiplier = 2.0\nepsilon = 1.0",
            "has both epsilon and noise_multiplier, but",
        ),
        ("noise_multiplier = 2.0\n", "", "[privacy] epsilon is missing; it should be a number from 1e-4"),
        ('"mlp"', '"mpl"', 'line 22: [method] model is "mpl", which is unknown; use "linear", "mlp", "cnn" or'),
        (
            '"mlp"\nhidden = [8]',
            '"no_such:Net"',
            'line 22: [method] model is "no_such:Net", which cannot be imported here (No module',
        ),
        (
            '"mlp"',
            '"cnn"',
            "takes square images of one or three channels, of 8 by 8 pixels at least, but records have 6 features",
        ),
        ("delta = 1e-5", 'delta = 1e-5\nunit = "party"', '[privacy] unit should be "record" with "cross-silo"'),
        ("rate = 0.5", "rate = 2", "[method] rate is 2, but should be the expected share of all records in a batch"),
        ('"cross-silo"', '"fedavg"', '[privacy] unit should be "party" with "fedavg"'),
        ('"cross-silo"', '"helmet"', "[method] model is an unknown key; known here: "),
    ],
)
def test_a_study_that_cannot_be_trained_is_told_in_one_sentence(
    shapes: Path, old: str, new: str, expected: str
) -> None:
    changed(shapes, old, new)
    assert expected in complaint(shapes, "plan", "study.toml")
    assert expected in complaint(shapes, "simulate", "study.toml", "--data", "train.npz")


WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from unspoken.cli import app
app(sys.argv[1:], prog_name="unspoken")
"""


def test_without_torch_the_extra_is_named(shapes: Path) -> None:
    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)

    assert complaint(shapes, "simulate", "study.toml", "--data", "train.npz", run=run) == (
        "training a PyTorch model needs PyTorch, which is not installed; in a clone, install it with pip install "
        "'.[torch]' (or, once it is published, with pip install 'unspoken[torch]')."
    )
