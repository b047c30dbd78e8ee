"""What deploy/ has is true: the compose file's commands run a study, and service units know the options."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from unspoken.cli import app
from unspoken.engines.network.cards import read_card

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
TEXT = (ROOT / "docs" / "deploy.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
"""The study, and a hospital's policy, as the page has them"""


class Site:
    """A service of the compose file: a folder in place of its volume."""

    def __init__(self, name: str, service: dict[str, object], folder: Path, port: int) -> None:
        self.name, self.home = name, folder / name
        places = {inside: folder / outside for outside, inside in map(_mounted, service["volumes"])}  # type: ignore[call-overload]
        words = shlex.split(str(service["command"]).replace("coordinator:8765", f"127.0.0.1:{port}"))
        self.command = [_moved(word.replace("0.0.0.0:8765", f"127.0.0.1:{port}"), places) for word in words]
        self.home.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "UNSPOKEN_HOME": str(self.home), "PYTHONPATH": os.pathsep.join(sys.path)}

    def keys(self) -> Path:
        done = CliRunner().invoke(app, ["keys", self.name, "--folder", str(self.home)])
        assert done.exit_code == 0, done.output
        return self.home / f"{self.name}.card"

    def start(self) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        program = [sys.executable, "-m", "unspoken", *self.command]
        return subprocess.Popen(program, env=self.environment, text=True, stdin=subprocess.DEVNULL, **pipes)  # type: ignore[call-overload, no-any-return]


def _mounted(volume: str) -> tuple[str, str]:
    outside, inside = volume.removesuffix(":ro").split(":")
    return outside, inside


def _moved(word: str, places: dict[str, Path]) -> str:
    """The word with a path of this machine for that in a container."""
    for inside, outside in places.items():
        if word.startswith(inside):
            return str(outside) + word.removeprefix(inside)
    return word


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine that nobody else gets meanwhile."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def records(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, 120)
    shown = {"worst radius": (10, 20), "worst texture": (20, 15), "worst concave points": (0.05, 0.2)}
    columns = {name: low + width * (target + rng.random(120)) / 2 for name, (low, width) in shown.items()}
    return pd.DataFrame({**columns, "target": target})


@pytest.mark.long
def test_the_commands_of_the_compose_file_run_the_page_s_study(tmp_path: Path, port: int) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    sites = {name: Site(name, service, tmp_path, port) for name, service in services.items()}
    cards = {name: site.keys() for name, site in sites.items()}
    study = tmp_path / "study.toml"
    study.write_text(BLOCKS[0], "utf-8")
    hospitals = sorted(name for name in sites if name.startswith("hospital"))
    helpers = [word for name in sorted(sites) if name.startswith("node") for word in ("--helper", str(cards[name]))]
    parties = [str(cards[name]) for name in hospitals]
    roster = ["roster", str(study), *parties, "--coordinator", str(cards["coordinator"]), *helpers]
    done = CliRunner().invoke(app, roster)
    assert done.exit_code == 0, done.output
    key = read_card(cards["coordinator"]).key
    for number, name in enumerate(hospitals):
        records(number).to_csv(sites[name].home / "records.csv", index=False)
        policy = re.sub(r'^"Registry" = .*$', f'"coordinator" = "{key}"', BLOCKS[1], flags=re.MULTILINE)
        for kind in ("Node", "Hospital"):
            for each in (1, 2, 3):
                known = read_card(cards[f"{kind.lower()}{each}"]).key
                policy = re.sub(rf'^"{kind} {each}" = .*$', f'"{kind} {each}" = "{known}"', policy, flags=re.MULTILINE)
        (sites[name].home / "policy.toml").write_text(policy, "utf-8")
    programs = {name: site.start() for name, site in sites.items()}
    try:
        said = {name: program.communicate(timeout=240) for name, program in programs.items()}
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()
    for name, (out, err) in said.items():
        assert programs[name].returncode == 0, (name, err)
        assert json.loads(out)["outcome"] == "released"
    model = (tmp_path / "coordinator" / "results" / "cancer.model.skops").read_bytes()
    for name in hospitals:
        assert (sites[name].home / "results" / "cancer.model.skops").read_bytes() == model


@pytest.mark.parametrize("unit", sorted(file.name for file in DEPLOY.glob("*.service")))
def test_service_units_use_options_that_there_are(unit: str) -> None:
    lines = (DEPLOY / unit).read_text("utf-8").splitlines()
    command = next(line for line in lines if line.startswith("ExecStart=")).split()[1:]
    told = CliRunner().invoke(app, [command[0], "-h"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert [word for word in command if word.startswith("--") and word not in told.output] == []
    # What ended by itself is not begun again: these are the program's own ends.
    assert "RestartPreventExitStatus=2 3 4" in lines


def test_the_image_has_the_package_and_a_user_of_its_own() -> None:
    lines = (DEPLOY / "Containerfile").read_text("utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert lines.index("USER unspoken") < lines.index('ENTRYPOINT ["unspoken"]')
