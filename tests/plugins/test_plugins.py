"""Methods and protocols of other packages are found by their entry points, planned, run and compared."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from other_packages import TOY, Install, content
from unspoken import plugins
from unspoken.cli import app
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import actors, local
from unspoken.errors import UnspokenError
from unspoken.methods.base import Method
from unspoken.methods.registry import METHODS, method_for, plan_for
from unspoken.simulation import simulate
from unspoken.study import Section, StudyError, make_study
from unspoken.summation.base import Aborted
from unspoken.templates import study_text


def said(*arguments: str) -> dict[str, Any]:
    """The JSON object that a command prints."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_method_of_another_package_is_planned_simulated_compared_and_started_from(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install("toy-package", TOY, toy="Toy")
    monkeypatch.chdir(tmp_path)
    said("new", "study.toml", "--method", "toy", "--matrix")
    text = Path("study.toml").read_text()
    assert 'name = "toy"                  # a method of another package\nflavour = "sweet" ' in text
    for usual, few in (
        ("count = 1000", "count = 4"),
        ("features = 64", "features = 4"),
        ("classes = 10", "classes = 2"),
    ):
        assert usual in text
        text = text.replace(usual, few)
    Path("study.toml").write_text(text)
    assert "\nnorm = 0.5 " in text
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "unspoken", "plan", "study.toml", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == said("plan", "study.toml")
    assert json.loads(done.stdout)["method"] == "toy"
    rng = np.random.default_rng(0)
    np.savez("records.npz", X=rng.normal(size=(400, 4)), y=rng.integers(0, 2, 400))
    records = ("--data", "records.npz", "--test", "records.npz")
    assert said("simulate", "study.toml", *records)["method"] == "toy"
    points = said("compare", "study.toml", *records, "--methods", "toy,moments", "--epsilons", "1", "--repeats", "1")[
        "points"
    ]
    assert [point["method"] for point in points] == ["toy", "moments"]


def test_a_method_of_another_package_is_asked_for_its_norm_and_its_keys(install: Install) -> None:
    install("toy-package", TOY, toy="Toy")
    assert make_study(content()).data.norm == 0.5
    assert method_for(make_study(content(flavour="sour"))).name == "toy"
    with pytest.raises(StudyError, match=r"\[method\] flavor is an unknown key; did you mean 'flavour'\?$"):
        method_for(make_study(content(flavor="sour")))
    with pytest.raises(UnspokenError, match="the method 'toy' has no template for regression; name one of: cape,"):
        study_text("study.toml", "test", matrix=True, task="regression", method="toy")


PROTOCOLS = '''\
from pydantic import Field
from unspoken.summation import compute_nodes
from unspoken.summation.base import Rejected
from unspoken.summation.compute_nodes import ComputeNodes

class Options(compute_nodes.Options):
    nodes: int = Field(4, ge=2, description="a whole number from 2")
    colour: str = Field("red", description="a colour, in quotes")

class Coloured(ComputeNodes):
    """Compute nodes with a key of their own, and four of them."""
    options_type = Options

class Sulky(ComputeNodes):
    """Compute nodes that reject whatever comes, as if too few parties were there."""
    def helper(self, index, identity, secrets):
        node = super().helper(index, identity, secrets)
        node.step = self.reject
        return node

    @staticmethod
    def reject(incoming):
        raise Rejected("too few parties are there")
'''


@pytest.fixture
def protocols(install: Install) -> Callable[..., dict[str, Any]]:
    """A study by a protocol of another package."""
    install("toy-protocols", PROTOCOLS, plugins.PROTOCOLS, coloured="Coloured", sulky="Sulky")
    return lambda name, **keys: content("moments") | {"summation": {"protocol": name, **keys}}


def records() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(40, 4)) / 4.0, "y": np.arange(40) % 2, "groups": np.arange(40) % 4}


def test_a_protocol_of_another_package_is_planned_and_sums(protocols: Any, tmp_path: Path) -> None:
    study = make_study(protocols("coloured", colour="blue"))
    assert len(plan_for(study).helper_addresses) == 4
    done = simulate(study, **records())
    assert done.outcome.survivors == 4
    assert done.certificate["summation"] == "coloured"
    assert done.certificate["versions"]["toy-protocols"] == "1.0"
    method = method_for(study)
    federation = ArrayFederation(study, Records(records()["X"], records()["y"]), records()["groups"])
    assert actors.run(method, method.plan(), federation).survivors == 4
    with pytest.raises(StudyError, match=r"\[summation\] color is an unknown key; did you mean 'colour'\?"):
        plan_for(make_study(protocols("coloured", color="blue")))


@pytest.mark.parametrize("engine", [local, actors])
def test_a_helper_that_rejects_a_message_ends_the_sum_and_not_the_program(protocols: Any, engine: Any) -> None:
    """As on a network: the message has no effect, the stage ends, and nothing is revealed."""
    study = make_study(protocols("sulky"))
    method = method_for(study)
    federation = ArrayFederation(study, Records(records()["X"], records()["y"]), records()["groups"])
    with pytest.raises(Aborted) as ended:
        engine.run(method, method.plan(), federation)
    assert ended.value.exit_status == 3


def test_statistics_and_details_may_be_numpy_s_and_lists(own: Callable[..., Any], tmp_path: Path) -> None:
    statistics = "{'x0': {'sums': total.noisy, 'least': np.float32(0.5), 'word': 'few'}, 'x1': 4}"
    done = own(statistics=statistics, details="{'records': np.int64(40)}")
    assert done.exit_code == 0, done.stderr
    assert [word in done.stdout for word in ("sums[0]", "sums[1]", "0.5", "few")] == [True] * 4
    saved = json.loads((tmp_path / "results" / "own.statistics.json").read_text())
    assert (len(saved["x0"]["sums"]), saved["x0"]["least"], saved["x1"]) == (2, 0.5, 4)
    assert json.loads((tmp_path / "results" / "own.certificate.json").read_text())["happened"]["records"] == 40


@pytest.mark.parametrize("name", METHODS)
def test_every_method_describes_itself(name: str) -> None:
    kind = METHODS[name]
    assert (kind.name, issubclass(kind, Method), issubclass(kind.keys, Section)) == (name, True, True)
    assert kind.summary
    assert kind.tasks
    assert set(kind.template) <= set(kind.tasks)
    assert set(kind.estimator_parameters) <= kind.keys.model_fields.keys()
    assert kind.solves_for is None or kind.solves_for in kind.keys.model_fields
