"""What deploy/ has is true: the compose file's commands run a study, and service units know the options."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from unspoken.cli import app
from unspoken.defaults import JOIN_SECONDS
from unspoken.engines.network.cards import read_card

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
TEXT = (ROOT / "docs" / "deploy.md").read_text("utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
"""The study, and a hospital's policy, as the page has them"""
HOSPITALS, NODES = ([f"{kind}{number}" for number in (1, 2, 3)] for kind in ("hospital", "node"))


class Site:
    """A participant with a folder of its own, and the command of its service."""

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.name, self.home, self.command = name, folder / name, command
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


def composed(folder: Path, port: int) -> list[Site]:
    """The services of the compose file: folders in place of volumes."""
    sites = []
    for name, service in yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"].items():
        mounted = (volume.removesuffix(":ro").split(":") for volume in service["volumes"])
        places = {inside: folder / outside for outside, inside in mounted}
        words = shlex.split(service["command"].replace("coordinator:8765", f"127.0.0.1:{port}"))
        words = [_moved(word.replace("0.0.0.0:8765", f"127.0.0.1:{port}"), places) for word in words]
        sites.append(Site(name, folder, words))
    return sites


def started_by_units(folder: Path, port: int) -> list[Site]:
    """The services of systemd, each with files of its own in place of those of its machine."""
    sites = []
    names = {"coordinator": ["coordinator"], "party": HOSPITALS, "helper": NODES}
    for unit, name in ((unit, name) for unit, each in names.items() for name in each):
        lines = (DEPLOY / f"unspoken-{unit}@.service").read_text("utf-8").splitlines()
        home = folder / name
        (folder / "etc" / name / "cancer").mkdir(parents=True)
        (folder / "etc" / name / "cancer" / "study.toml").symlink_to(folder / "study.toml")
        (folder / "etc" / name / "policy.toml").symlink_to(home / "policy.toml")
        command = next(line for line in lines if line.startswith("ExecStart=")).partition(" ")[2]
        command = command.replace("%i", "cancer").replace("/etc/unspoken", str(folder / "etc" / name))
        told = dict(line.split("=", 2)[1:] for line in lines if line.startswith("Environment="))
        told |= {"UNSPOKEN_HOME": home, "LISTEN": f"127.0.0.1:{port}", "COORDINATOR": f"127.0.0.1:{port}"}
        told |= {"DATA": home / "records.csv"} if unit == "party" else {}
        words = [Template(word).substitute(told) for word in command.split()]
        sites.append(Site(name, folder, words))
    return sites


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


def policy_for(keys: dict[str, str]) -> str:
    """The page's policy with the keys of those whom it names."""
    found = BLOCKS[1]
    for name, key in keys.items():
        found, times = re.subn(rf'^"{name}" = .*$', f'"{name}" = "{key}"', found, flags=re.MULTILINE)
        assert times == 1, name
    return found


def prepare(sites: dict[str, Site], folder: Path) -> None:
    """Keys, a roster, records and policies, as the page has them."""
    cards = {name: site.keys() for name, site in sites.items()}
    study = folder / "study.toml"
    study.write_text(BLOCKS[0], "utf-8")
    helpers = [word for name in NODES for word in ("--helper", str(cards[name]))]
    parties = [str(cards[name]) for name in HOSPITALS]
    roster = ["roster", str(study), *parties, "--coordinator", str(cards["coordinator"]), *helpers]
    done = CliRunner().invoke(app, roster)
    assert done.exit_code == 0, done.output
    shown = {"Registry": "coordinator"} | {
        f"{kind.title()} {each}": f"{kind}{each}" for kind in ("hospital", "node") for each in (1, 2, 3)
    }
    policy = policy_for({name: read_card(cards[site]).key for name, site in shown.items()})
    for number, name in enumerate(HOSPITALS):
        records(number).to_csv(sites[name].home / "records.csv", index=False)
        (sites[name].home / "policy.toml").write_text(policy, "utf-8")


@pytest.mark.long
@pytest.mark.parametrize("made", [composed, started_by_units])
def test_the_commands_of_services_run_the_page_s_study(
    made: Callable[[Path, int], list[Site]], tmp_path: Path, port: int
) -> None:
    sites = {site.name: site for site in made(tmp_path, port)}
    prepare(sites, tmp_path)
    # The coordinator is the last to begin, and the others wait for it.
    programs = {name: sites[name].start() for name in sorted(sites, key="coordinator".__eq__)}
    try:
        said = {name: program.communicate(timeout=480) for name, program in programs.items()}
    finally:
        for program in programs.values():
            program.kill()
            program.communicate()
    for name, (out, err) in said.items():
        assert programs[name].returncode == 0, (name, err)
        assert json.loads(out)["outcome"] == "released"
    model = (tmp_path / "coordinator" / "results" / "cancer.model.skops").read_bytes()
    for name in HOSPITALS:
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


def patience_of(command: str) -> float:
    return float(command.partition("--patience ")[2].split()[0])


def test_services_wait_longer_for_the_coordinator_than_it_waits_for_them() -> None:
    """Otherwise a party that was started first gives up, and is not started again."""
    given = {"DATA": "x.csv", "COORDINATOR": "x:1"}
    for unit in ("party", "helper"):
        lines = (DEPLOY / f"unspoken-{unit}@.service").read_text("utf-8").splitlines()
        set_ = dict(line.split("=", 2)[1:] for line in lines if line.startswith("Environment="))
        command = next(line for line in lines if line.startswith("ExecStart="))
        assert patience_of(Template(command).substitute(given | set_)) > JOIN_SECONDS
        # What a site says comes after what the unit says.
        assert lines.index(f"Environment=PATIENCE={set_['PATIENCE']}") < lines.index(
            "EnvironmentFile=/etc/unspoken/%i/environment"
        )
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    assert all(patience_of(services[name]["command"]) > JOIN_SECONDS for name in (*HOSPITALS, *NODES))


def test_the_image_has_the_package_and_a_user_of_its_own() -> None:
    lines = (DEPLOY / "Containerfile").read_text("utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert lines.index("USER unspoken") < lines.index('ENTRYPOINT ["unspoken"]')
