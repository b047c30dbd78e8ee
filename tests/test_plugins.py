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

    def put(package: str, text: str, group: str = plugins.METHODS, **entry_points: str) -> Path:
        module = package.replace("-", "_")
        (site / f"{module}.py").write_text(text)
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{place}" for name, place in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
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
    Path("study.toml").write_text(text.replace("count = 1000", "count = 4"))
    assert "\nnorm = 0.5 " in text
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
    with pytest.raises(plugins.PluginError, match=told) as caught:
        simulate(study, np.zeros((40, 4)), None, np.arange(40) % 4)
    assert str(caught.value).startswith('"mistaken" of the package "mistaken-package" failed')
    assert str(caught.value).endswith("); repair, update or uninstall that package.")
    assert caught.value.__cause__ is not None


OWN = """\
import math
import numpy as np
from unspoken.methods.base import Contribution, Method, Sum
from unspoken.methods.planning import DeclaredSum, make_plan
from unspoken.methods.releases import Statistics

class Own(Method):
    name, summary, tasks = "own", "a method from the ground up", ("statistics",)
    def __init__(self, study):
        super().__init__(study)
        {set_up}
    def plan(self):
        declared = dict(name="all", dimension=2, bound=100.0, sensitivity=1.0)
        {plan}
        return make_plan(self.study, self.name, [DeclaredSum(**declared)])
    def contribute(self, request, block, contexts=()):
        {contribute}
        return Contribution(np.zeros((len(block), 2)))
    def coordinate(self, plan):
        {ask}
        total = yield Sum("all")
        {coordinate}
        return Statistics({statistics}, {details})
"""
NOTHING = dict.fromkeys(("set_up", "plan", "contribute", "ask", "coordinate"), "pass") | {
    "statistics": '{"x0": {"sum": total.noisy[0]}}',
    "details": "{}",
}
MATRIX = """
study = { name = "own", task = "statistics" }
data = { features = 2 }
parties = { count = 4 }
privacy = { epsilon = 1.0, delta = 1e-5 }
method = { name = "own" }
"""


@pytest.fixture
def own(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Simulates a study by a method with these lines of code, on the command line."""

    def run(command: str = "simulate", **lines: str) -> Any:
        text = OWN
        for name, line in (NOTHING | lines).items():
            text = text.replace(f"{{{name}}}", line)
        install("own-package", text, own="Own")
        monkeypatch.chdir(tmp_path)
        Path("own.toml").write_text(MATRIX)
        np.savez("records.npz", X=np.zeros((40, 2)))
        options = ["--data", "records.npz", "--output", "results"] if command == "simulate" else []
        return CliRunner().invoke(app, [command, "own.toml", *options])

    return run


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ({"set_up": "1 / 0"}, "own_package.py, line 11 (ZeroDivisionError: division by zero); repair"),
        ({"plan": "return None"}, 'failed (TypeError: Expected plan of "own" to return a Plan, got None); repair'),
        ({"plan": "declared['count'] = 0"}, 'Expected count of the sum "all" to be a whole number from 1, got 0)'),
        ({"plan": "declared['dimension'] = 2.0"}, "Expected dimension of"),
        ({"plan": "declared['sensitivity'] = 0.0"}, "Expected sensitivity of"),
        ({"plan": "declared['sensitivity'] = math.nan"}, "Expected sensitivity of"),
        ({"plan": "declared['bound'] = -1.0"}, "Expected bound of"),
        ({"plan": "declared['share'] = math.inf"}, "Expected share of"),
        ({"plan": "declared['exact'] = 'records'"}, "Expected exact of"),
        (
            {"plan": "return make_plan(self.study, self.name, [])"},
            "to declare one or more sums of different names",
        ),
        ({"plan": "return make_plan(self.study, self.name, [DeclaredSum(**declared)] * 2)"}, "got ['all', 'all'])"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_a_method_that_cannot_plan_is_told_in_one_sentence(
    own: Callable[..., Any], command: str, lines: dict[str, str], told: str
) -> None:
    done = own(command, **lines)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith('unspoken: "own" of the package "own-package" failed')
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ({"contribute": "raise RuntimeError('two\\nlines')"}, "line 17 (RuntimeError: two lines); repair"),
        ({"contribute": "return None"}, "(AttributeError:"),
        ({"coordinate": "yield Sum('all', turn=1)"}, '(Refused: "all" is asked for more often than planned'),
        ({"coordinate": "yield Sum('some')"}, '(Refused: the request is for "some", which is not in the plan)'),
        ({"ask": "return Statistics({}, {})"}, 'Expected coordinate of "own" to ask for something before it returns)'),
        ({"coordinate": "return 3"}, '(TypeError: Expected coordinate of "own" to return a Release, got 3)'),
        ({"details": "{'what': 1.0}"}, '(TypeError: Expected details of "own" to be numbers that it has declared, got'),
        ({"details": "{'records': object()}"}, "to be numbers that it has declared, got 'records')"),
    ],
)
def test_a_method_that_fails_on_the_way_is_told_in_one_sentence_and_leaves_no_result(
    own: Callable[..., Any], tmp_path: Path, lines: dict[str, str], told: str
) -> None:
    done = own(**lines)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith('unspoken: "own" of the package "own-package" failed')
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("results/*"))


def test_a_template_that_is_no_toml_is_told_in_one_sentence(install: Install, tmp_path: Path) -> None:
    install("toy-package", TOY.replace('flavour = "sweet"', "flavour = sweet"), toy="Toy")
    done = CliRunner().invoke(app, ["new", str(tmp_path / "study.toml"), "--method", "toy"])
    assert (done.exit_code, (tmp_path / "study.toml").exists()) == (2, False)
    assert '"toy" of the package "toy-package" failed (TOMLDecodeError: Invalid value (at line ' in done.stderr


def test_statistics_and_details_may_be_numpy_s_and_lists(own: Callable[..., Any], tmp_path: Path) -> None:
    statistics = "{'x0': {'sums': total.noisy, 'least': np.float32(0.5), 'word': 'few'}, 'x1': 4}"
    done = own(statistics=statistics, details="{'records': np.int64(40)}")
    assert done.exit_code == 0, done.stderr
    assert [word in done.stdout for word in ("sums[0]", "sums[1]", "0.5", "few")] == [True] * 4
    saved = json.loads((tmp_path / "results" / "own.statistics.json").read_text())
    assert (len(saved["x0"]["sums"]), saved["x0"]["least"], saved["x1"]) == (2, 0.5, 4)
    assert json.loads((tmp_path / "results" / "own.certificate.json").read_text())["happened"]["records"] == 40


def test_our_own_errors_are_blamed_on_nobody() -> None:
    with pytest.raises(KeyError), plugins.answerable(plugins.METHODS, "moments"):
        raise KeyError


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('tasks = ("classification", "regression")', 'tasks = "classification"', "has tasks = 'classification' (toy_"),
        ('tasks = ("classification", "regression")', 'tasks = ("clustering",)', "has tasks = ('clustering',) (toy_"),
        (
            "keys = Options",
            "keys = {}",
            "has keys = {} (toy_package:Toy); it should be a subclass of unspoken.study.Sec",
        ),
    ],
)
def test_a_method_that_describes_itself_wrongly_is_told_so(install: Install, right: str, wrong: str, told: str) -> None:
    install("toy-package", TOY.replace(right, wrong), toy="Toy")
    for use in (lambda: method_for(make_study(content())), lambda: study_text("s", "t", matrix=True, method="toy")):
        with pytest.raises(plugins.PluginError) as caught:
            use()
        assert told in str(caught.value)


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
