"""Methods of other packages: found by their entry points, and told in one sentence where they cannot be used."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from unspoken import plugins
from unspoken.cli import app
from unspoken.errors import UnspokenError
from unspoken.methods.base import Method
from unspoken.methods.registry import METHODS, method_for
from unspoken.simulation import simulate
from unspoken.study import Section, StudyError, make_study
from unspoken.templates import study_text

TOY = '''\
from typing import ClassVar
from pydantic import Field
from unspoken.methods.functions import FunctionOptions
from unspoken.methods.moments import Moments

class Options(FunctionOptions):
    flavour: str = Field("plain", description="a flavour, in quotes")

class Toy(Moments):
    """Moments under another name, with a key of its own."""
    name = "toy"
    summary = "a method of another package"
    tasks = ("classification", "regression")
    keys = Options
    template: ClassVar = {"classification": 'flavour = "sweet"             # or any other\\n'}

    def read_options(self):
        return self.study.options("method", Options).model_copy(update={"function": "softmax"})

    @classmethod
    def default_norm(cls, study):
        return 0.5

class NoMethod:
    pass
'''

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package into a folder of packages, as an installer would, and the folder onto the path."""
    site = tmp_path / "site"
    site.mkdir()

    def put(package: str, text: str, **entry_points: str) -> Path:
        module = package.replace("-", "_")
        (site / f"{module}.py").write_text(text)
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{place}" for name, place in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[unspoken.methods]", *lines]) + "\n")
        plugins._declared.cache_clear()
        return site

    monkeypatch.syspath_prepend(str(site))
    yield put
    plugins._declared.cache_clear()
    for module in [
        name for name, loaded in sys.modules.items() if (getattr(loaded, "__file__", "") or "").startswith(str(site))
    ]:
        del sys.modules[module]


def content(method: str = "toy", **keys: Any) -> dict[str, Any]:
    return {
        "study": {"name": "test", "task": "classification"},
        "data": {"features": 4, "classes": 2},
        "parties": {"count": 4, "records": 10},
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "method": {"name": method, **keys},
    }


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
    Path("study.toml").write_text(text.replace("count = 1000", "count = 4").replace("norm = 1.0 ", "# norm = 1.0 "))
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "unspoken", "plan", "study.toml", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == said("plan", "study.toml")
    assert json.loads(done.stdout)["method"] == "toy"
    rng = np.random.default_rng(0)
    np.savez("records.npz", X=rng.normal(size=(400, 64)), y=rng.integers(0, 10, 400))
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
    with pytest.raises(UnspokenError, match="the method is 'toy', but for regression it should be one of: cape,"):
        study_text("study.toml", "test", matrix=True, task="regression", method="toy")


def test_an_unknown_name_is_told_with_the_known_ones_and_the_one_that_was_meant(install: Install) -> None:
    install("toy-package", TOY, toy="Toy")
    with pytest.raises(StudyError, match=r'name is "toys", but should be one of: "cape", .*"toy", "voting"; did you'):
        make_study(content("toys"))
    assert plugins.find(plugins.PROTOCOLS, "ideal").__name__ == "Ideal"
    with pytest.raises(plugins.UnknownName, match=r'is "secag", but should be one of: .*; did you mean "secagg"\?$'):
        plugins.find(plugins.PROTOCOLS, "secag")


def test_a_package_that_cannot_be_imported_is_named_with_its_error(install: Install) -> None:
    install("broken-package", "import no_such_module\n", broken="Broken")
    with pytest.raises(
        plugins.PluginError,
        match=r'^"broken" of the package "broken-package" cannot be imported \(ModuleNotFoundError: No module named '
        r"'no_such_module'\); repair, update or uninstall that package\.$",
    ):
        make_study(content("broken"))
    assert make_study(content("helmet")).described.name == "helmet"
    assert "broken" not in dict(METHODS.usable())


def test_a_package_that_does_not_bring_a_method_is_named(install: Install) -> None:
    install("toy-package", TOY, toy="NoMethod")
    with pytest.raises(plugins.PluginError, match=r'"toy" of the package "toy-package" is toy_package:NoMethod, which'):
        make_study(content())


def test_no_package_takes_the_place_of_a_method_in_silence(install: Install) -> None:
    install("toy-package", TOY, helmet="Toy")
    with pytest.raises(plugins.PluginError, match=r'"helmet" is declared .* by the packages "toy-package" and "unspok'):
        make_study(content("helmet"))


def test_an_installation_from_before_the_entry_points_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "entry_points", lambda group: ())
    plugins._declared.cache_clear()
    with pytest.raises(
        plugins.PluginError, match=r"does not declare its own methods, .* run `pip install -e \.` again"
    ):
        make_study(content("helmet"))
    plugins._declared.cache_clear()


MISTAKEN = """\
import numpy as np
from unspoken.methods.base import Contribution, Sum
from unspoken.methods.moments import Moments

class Mistaken(Moments):
    name, summary, tasks = "mistaken", "wrong somewhere", ("statistics",)
    def contribute(self, request, block, contexts=()):
        {contribute}
    def coordinate(self, plan):
        {coordinate}
"""
RIGHT = {
    "contribute": "return super().contribute(request, block, contexts)",
    "coordinate": "return (yield from super().coordinate(plan))",
}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"contribute": "return Contribution(np.zeros((len(block), 4)))"}, r"got \(4, 4\) and \(4, 0\)"),
        ({"contribute": "return Contribution(np.zeros((len(block), 5)), block.counts[:, None])"}, r"got \(4, 5\) and"),
        ({"coordinate": "yield Sum('function')"}, 'coordinate of "mistaken" to return a Release, got None'),
        ({"coordinate": "yield 'function'"}, "coordinate to yield a request, got 'function'"),
    ],
)
def test_a_method_that_breaks_its_own_declarations_is_told_where(
    install: Install, wrong: dict[str, str], told: str
) -> None:
    """Whoever writes one sees it in a simulation; `Moments` declares four numbers and the number of records."""
    install("mistaken-package", MISTAKEN.format(**RIGHT | wrong), mistaken="Mistaken")
    study = {**content("mistaken"), "study": {"name": "test", "task": "statistics"}, "data": {"features": 4}}
    with pytest.raises((ValueError, TypeError), match=told):
        simulate(study, np.zeros((40, 4)), None, np.arange(40) % 4)


def test_a_method_whose_name_is_not_that_of_its_entry_point_is_told_so(install: Install) -> None:
    install("toy-package", TOY, toys="Toy")
    with pytest.raises(
        plugins.PluginError, match=r'declared as "toys" has name = .toy. \(toy_package:Toy\); its entry'
    ):
        method_for(make_study(content("toys")))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_describes_itself(name: str) -> None:
    kind = METHODS[name]
    assert (kind.name, issubclass(kind, Method), issubclass(kind.keys, Section)) == (name, True, True)
    assert kind.summary
    assert kind.tasks
    assert set(kind.template) <= set(kind.tasks)
    assert set(kind.estimator_parameters) <= kind.keys.model_fields.keys()
    assert kind.solves_for is None or kind.solves_for in kind.keys.model_fields
