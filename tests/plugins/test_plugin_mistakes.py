"""What is wrong with another package's method is told in one sentence that names the package."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from other_packages import TOY, Install, content
from unspoken import plugins
from unspoken.cli import app
from unspoken.methods.registry import METHODS, method_for
from unspoken.simulation import simulate
from unspoken.study import StudyError, make_study
from unspoken.templates import study_text


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


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        (
            "x = 1 / 0",
            "its_file:Net",
            r'"its_file" fails at .*its_file\.py, line 1: ZeroDivisionError: .*\); repair it\.',
        ),
        ("class Net(", "its_file:Net", r'"its_file" fails: SyntaxError: .*line 1\)\); repair it\.'),
        (
            "import absent",
            "its_file:Net",
            r"fails at .*line 1: ModuleNotFoundError: No module named 'absent'\); repair",
        ),
        ("", "its_file.inner:Net", r"'its_file\.inner'; 'its_file' is not a package\); install its package, or name"),
        ("", ".its_file:Net", r"\); install its package, or name its folder"),
        ("class CNN: ...", "its_file:Cnn", r"has no attribute 'Cnn'\); the nearest name in it is \"CNN\"\.$"),
        ("", "its_file:Net", r"has no attribute 'Net'\); name what that module has\."),
    ],
)
def test_a_file_that_a_study_names_is_told_where_it_fails(install: Install, text: str, name: str, problem: str) -> None:
    install("its-file", text)
    with pytest.raises(plugins.NotImportable, match=problem) as raised:
        plugins.imported(name)
    assert "\n" not in str(raised.value)
