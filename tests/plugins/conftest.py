"""Other packages are installed for one test."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from other_packages import Install
from unspoken import plugins
from unspoken.cli import app


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
