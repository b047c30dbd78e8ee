"""What docs/flower.md says of bundles and of how a site pins one, asked of the Flower that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flower.federation import PROGRAMS

pytestmark = pytest.mark.flower
APP = Path(__file__).parents[2] / "examples" / "flower"
INSTALL = """
import sys
from pathlib import Path
from flwr.cli.install import install_from_fab
print(install_from_fab(Path(sys.argv[1]).read_bytes(), skip_prompt=True))
"""
LOAD = """
import sys
from pathlib import Path
from flwr.supercore.object_ref import load_app
load_app("unspoken.flower.apps:client_app", ValueError, Path(sys.argv[1]))
import unspoken
print(unspoken.__file__)
"""


def build(app: Path, folder: Path) -> Path:
    """The bundle that `flwr run` would send."""
    folder.mkdir()
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(folder)}
    command = [str(PROGRAMS / "flwr"), "build", "--app", str(app)]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    (bundle,) = folder.glob("*.fab")
    return bundle


def at_site(program: str, argument: Path, home: Path, *before: str) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", program, str(argument)]
    environment = os.environ | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """An app that brings an `unspoken` of its own."""
    app = shutil.copytree(APP, tmp_path / "other")
    (app / "unspoken" / "flower").mkdir(parents=True)
    for folder in ("unspoken", "unspoken/flower"):
        (app / folder / "__init__.py").write_text("")
    (app / "unspoken" / "flower" / "apps.py").write_text("client_app = server_app = None\n")
    return app


def test_a_bundle_hides_what_is_installed(other: Path, tmp_path: Path) -> None:
    """So whoever sends bundles decides what runs, unless the site pins one."""
    done = at_site(LOAD, other, tmp_path)
    assert done.stdout.strip() == str(other / "unspoken" / "__init__.py"), done.stderr


def test_everyone_builds_the_same_bundle(tmp_path: Path) -> None:
    copied = shutil.copytree(APP, tmp_path / "flower")
    os.utime(copied / "pyproject.toml", (1e9, 1e9))
    first, second = build(APP, tmp_path / "first"), build(copied, tmp_path / "second")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_where_the_folder_cannot_be_written_to_only_the_bundle_in_it_runs_and_as_it_is_there(
    other: Path, tmp_path: Path
) -> None:
    mine, theirs = build(APP, tmp_path / "mine"), build(other, tmp_path / "theirs")
    home = tmp_path / "site"
    home.mkdir()
    installed = Path(at_site(INSTALL, mine, home).stdout.split()[-1])
    before = () if os.getuid() else ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
    if before and shutil.which("setpriv") is None:
        pytest.skip("root can write everywhere, and there is no setpriv to give that up")
    (installed / "pyproject.toml").write_text("# as the site has it\n")
    home.joinpath("apps").chmod(0o555)
    if before:
        shutil.chown(home / "apps", user="nobody")
    try:
        refused, taken = at_site(INSTALL, theirs, home, *before), at_site(INSTALL, mine, home, *before)
    finally:
        home.joinpath("apps").chmod(0o755)
    assert "PermissionError" in refused.stderr
    assert [path.name for path in (home / "apps").iterdir()] == [installed.name]
    assert taken.stdout.split()[-1] == str(installed)
    assert (installed / "pyproject.toml").read_text() == "# as the site has it\n"
