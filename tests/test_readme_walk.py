"""The README's walk: from five hospitals' files to a good model, with five commands and no edit but the columns."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from unspoken.cli import app
from unspoken.data.federation import ArrayFederation
from unspoken.data.tables import Table
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.study import make_study, read_study

README = Path(__file__).resolve().parent.parent / "README.md"


def test_five_hospitals_get_a_good_model_at_epsilon_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = README.read_text("utf-8")
    commands = [line.split() for line in re.findall(r"^unspoken (.*(?:\\\n.*)*)$", text.replace("\\\n", " "), re.M)]
    walk = [command for command in commands if "cancer.toml" in command]
    assert [command[0] for command in walk] == ["new", "check", "plan", "simulate", "compare"]
    scripts = re.findall(r"^python3 - <<'END'\n(.*?)^END$", text, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    done = []
    for step in (scripts[0], walk[0], scripts[1], *walk[1:4]):
        if isinstance(step, str):
            exec(compile(step, "README.md", "exec"), {})  # noqa: S102 (it is our own)
        else:
            done.append(CliRunner().invoke(app, step))
            assert done[-1].exit_code == 0, done[-1].output
    assert "unspoken: note:" not in done[-1].output
    study = read_study("cancer.toml")
    assert (study.privacy.epsilon, study.parties.count) == (1.0, 5)
    frame = load_breast_cancer(as_frame=True).frame
    # Added in the clear, as the noise is the same. Over splits and noise a run has 0.937 on average, with a deviation
    # of 0.042; these ten, whose splits and noise are fixed, have 0.945.
    assert np.mean([accuracy(frame.sample(frac=1, random_state=seed), seed) for seed in range(10)]) > 0.92


def accuracy(frame: pd.DataFrame, seed: int) -> float:
    """Of one run, whose noise is fixed by the seed."""
    content = read_study("cancer.toml").model_dump(exclude_none=True)
    study = make_study(content | {"summation": {"protocol": "ideal"}})
    train, test = (Table(part, "frame").records(study) for part in (frame[:450], frame[450:]))
    method, secrets = method_for(study), SecretStream(seed.to_bytes(32, "big"))
    federation = ArrayFederation(study, train, np.arange(450) // 90)
    return local.run(method, method.plan(), federation, Conditions(secrets=secrets)).release.metrics(study, test)[
        "accuracy"
    ]
