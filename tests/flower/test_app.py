"""The app that `flwr run` takes has no code, and says what the coordinator reads."""

from __future__ import annotations

import ast
import logging
import re
import tomllib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unspoken.flower import coordinating
from unspoken.flower.site import read_site
from unspoken.summation.base import Aborted

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower"


@pytest.fixture(scope="module")
def flower() -> dict[str, Any]:
    return tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]


def test_the_bundle_has_no_code() -> None:
    assert sorted(file.name for file in APP.iterdir()) == ["README.md", "pyproject.toml"]


def test_both_parts_are_in_the_package(flower: dict[str, Any]) -> None:
    for named in flower["components"].values():
        module, _, name = named.partition(":")
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
        made = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
        assert name in [target.id for target in made if isinstance(target, ast.Name)]


def test_its_configuration_is_what_the_coordinator_reads(flower: dict[str, Any]) -> None:
    deadlines = {f"{name}-seconds": seconds for name, seconds in coordinating._DEADLINES.items()}
    assert flower["config"] == {"study": "", "home": "", "keys": "", "output": "", **deadlines}


def test_what_its_page_and_ours_tell_sites_to_write_is_read(tmp_path: Path) -> None:
    for page in (APP / "README.md", ROOT / "docs" / "flower.md"):
        (text,) = [part for part in re.findall(r"```toml\n(.*?)```", page.read_text(), re.S) if "study = " in part]
        (tmp_path / "site.toml").write_text(text)
        assert read_site(tmp_path / "site.toml").data == "mine.csv"
    told = re.findall(r"--run-config (.*)", (APP / "README.md").read_text())
    assert [set(re.findall(r"(\w+)=", said)) for said in told] == [{"study", "home"}] * 2


def test_the_extra_brings_the_flower_that_the_page_speaks_of() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["flower"]
    assert extra == ["flwr>=1.41,<1.42"]
    assert "Flower 1.41" in (ROOT / "docs" / "flower.md").read_text()


@pytest.mark.flower
def test_a_run_without_a_result_is_told_in_one_sentence_and_no_traceback() -> None:
    """Flower logs the error that a run ends with as the standard library's logging does."""
    from unspoken.flower import apps

    nobody: Any = None
    try:
        with nullcontext():
            apps.run_study(nobody, SimpleNamespace(run_config={"study": "/nowhere.toml"}))  # type: ignore[arg-type]
    except Exception as error:
        logged = logging.Formatter().formatException((type(error), error, error.__traceback__))
    assert logged.startswith("unspoken.flower.apps.NotDone: /nowhere.toml: there is no such file")
    assert "\n" not in logged


@pytest.mark.flower
def test_the_sentence_of_a_run_without_a_result_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from unspoken.flower import apps

    def ended(*_: Any) -> None:
        raise Aborted("1 of 3 parties are there. It cost no epsilon")

    monkeypatch.setattr(apps, "coordinate", ended)
    nobody: Any = None
    with pytest.raises(apps.NotDone, match=r"cost no epsilon\.$"):
        apps.run_study(nobody, SimpleNamespace(run_config={}))  # type: ignore[arg-type]
