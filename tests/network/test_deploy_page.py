"""docs/deploy.md is a run: its commands work as they stand, in order, and print what the page shows.

Digits, times and sizes differ from run to run; everything else must be there, line by line. Which rounds are shown
depends on how fast they are, so their lines are compared with how they would be shown.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands import in_process
from network.faults import Nursery, free_port
from network.test_deploy import BLOCKS, TEXT, policy_for, records
from unspoken.engines.network.cards import read_card
from unspoken.engines.network.frames import News
from unspoken.engines.network.status import STAGES
from unspoken.report.live import Progress
from unspoken.study import read_study

HOSPITALS, NODES = ([f"{kind} {number}" for number in (1, 2, 3)] for kind in ("Hospital", "Node"))
NAMES = ["Registry", *HOSPITALS, *NODES]
_BASH = "".join(re.findall(r"^```bash\n(.*?)^```$", TEXT.partition("## As services")[0], re.DOTALL | re.MULTILINE))
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for line in _BASH.replace("\\\n", " ").splitlines()
    if line.startswith("unspoken ")
]
SHOWN = [block.splitlines() for block in re.findall(r"^```text\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)]
"""What is printed by keys, roster, serve, join and verify"""
_SAME_KIND = (
    r"\d\d:\d\d:\d\d",
    r"(?:[0-9a-f]{4} ){4}[0-9a-f]{4}",
    r"\b[0-9a-f]{16}\b",
    r"\d+\.\d+ kB moved",
    r"; \d.* left",
    r"Hospital \d has joined",
)
VARIES = {kind: kind for kind in _SAME_KIND} | {r"/var/lib/unspoken": r".*", r"0\.0\.0\.0:8765": r"127\.0\.0\.1:\d+"}
"""What differs from run to run, and what it may be"""


def pattern(line: str) -> str:
    """A line of the page, as a pattern for lines of any run."""
    parts = re.split(f"({'|'.join(VARIES)})", line)
    return "".join(
        next((other for kind, other in VARIES.items() if re.fullmatch(kind, part)), re.escape(part)) for part in parts
    )


def check_printed(shown: list[str], printed: str) -> None:
    """Every line of the page was printed, in this order; others may have been between them."""
    lines = iter(line.rstrip() for line in printed.splitlines())
    for line in shown:
        assert any(re.fullmatch(pattern(line), found) for found in lines), f"{line!r} is not in\n{printed}"


def commands(name: str) -> list[list[str]]:
    return [command for command in COMMANDS if command[0] == name]


class Site:
    """A participant: its folder, and the commands that it types there."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.home = name, folder / name
        self.home.mkdir()
        self.out, self.err = self.home / "out.txt", self.home / "err.txt"
        for file in (self.out, self.err):
            file.touch()

    def type(self, *arguments: str) -> str:
        """What a command prints, in a terminal of the usual width."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UNSPOKEN_HOME", str(self.home))
            done = in_process(self.home, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, nursery: Nursery, port: int) -> int:
        """Its part of step 4, in a process of its own."""
        kind = "serve" if self.name == "Registry" else "join" if self.name in HOSPITALS else "assist"
        (command,) = commands(kind)
        places = {"0.0.0.0:8765": f"127.0.0.1:{port}", "registry.example.org:8765": f"127.0.0.1:{port}"}
        arguments = [places.get(word, word) for word in command]
        files = {"out": str(self.out), "err": str(self.err), "tells": os.devnull}
        where = {"home": str(self.home), "folder": str(self.home), "data": ""}
        return int(nursery.ask(start={"arguments": arguments, **where, **files}))


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Site]:
    return {name: Site(tmp_path, name) for name in NAMES}


def prepared(sites: dict[str, Site]) -> dict[str, Site]:
    """Steps 1 to 3: keys, the study with its roster, and each hospital's check, limit and policy."""
    registry = sites["Registry"]
    (keys,) = commands("keys")
    for site in sites.values():
        check_printed(SHOWN[0], site.type(*keys[:-1], site.name).replace(site.name, "Hospital 1"))
        if site is not registry:
            shutil.copy(site.home / f"{site.name}.card", registry.home)
    (registry.home / "study.toml").write_text(BLOCKS[0], "utf-8")
    (plan,), (roster, shows) = commands("plan"), commands("roster")
    assert "epsilon = 1, delta = 1e-05" in " ".join(registry.type(*plan).split())
    printed = registry.type(*roster)
    check_printed(SHOWN[1], printed)
    known = {name: read_card(registry.home / f"{name}.card").key for name in NAMES}
    for number, site in enumerate(sites.values()):
        if site is not registry:
            shutil.copy(registry.home / "study.toml", site.home)
        if site.name in HOSPITALS:
            records(number).to_csv(site.home / "records.csv", index=False)
            (site.home / "policy.toml").write_text(policy_for(known), "utf-8")
            assert site.type(*shows) == printed
            for command in (*commands("check"), *commands("ledger")):
                site.type(*command)
    return sites


def run(sites: dict[str, Site], nursery: Nursery) -> None:
    """Step 4, until all have ended. Hospitals join when the nodes are there, as on the page."""
    port, registry = free_port(), sites["Registry"]
    nursery.ask(warm=str(registry.home / "study.toml"))
    running = {name: sites[name].start(nursery, port) for name in ("Registry", *NODES)}
    ends: dict[str, int] = {}
    deadline = time.monotonic() + 300.0
    try:
        while set(NAMES) - set(ends):
            assert time.monotonic() < deadline, registry.out.read_text("utf-8")
            if len(running) < len(NAMES) and "3 of 6 are there" in registry.out.read_text("utf-8"):
                running |= {name: sites[name].start(nursery, port) for name in HOSPITALS}
            for name in running.keys() - ends.keys():
                how, status = nursery.ask(poll=running[name])
                if how == "ended":
                    ends[name] = status
            time.sleep(0.02)
    finally:
        for name in running.keys() - ends.keys():
            os.kill(running[name], 9)
            while nursery.ask(poll=running[name])[0] != "ended":
                time.sleep(0.01)
    assert set(ends.values()) == {0}, {name: sites[name].err.read_text("utf-8") for name in NAMES}


def is_round(line: str) -> bool:
    return " round " in line


def test_what_comes_before_a_run_prints_what_the_page_shows(sites: dict[str, Site]) -> None:
    prepared(sites)


@pytest.mark.long
def test_a_run_and_what_comes_after_it_print_what_the_page_shows(sites: dict[str, Site], nursery: Nursery) -> None:
    registry = prepared(sites)["Registry"]
    run(sites, nursery)
    check_printed([line for line in SHOWN[2] if not is_round(line)], registry.out.read_text("utf-8"))
    for name in HOSPITALS:
        check_printed(SHOWN[3], sites[name].out.read_text("utf-8"))
        assert [entry.name for entry in (sites[name].home / "results").iterdir()]
    (verify,) = commands("verify")
    check_printed(SHOWN[4], registry.type(*verify))
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    records(9).to_csv(registry.home / "patients.csv", index=False)
    said: dict[str, Any] = {}
    with chdir(registry.home):
        exec(code, said)  # noqa: S102 (it stands on our own page)
    assert len(said["model"].predict(said["patients"])) == len(said["patients"])


def test_the_page_uses_every_command_of_a_study_across_machines() -> None:
    assert {command[0] for command in COMMANDS} == {
        *("keys", "plan", "roster", "check", "ledger", "serve", "assist", "join", "verify")
    }


@pytest.mark.parametrize("line", [line for line in SHOWN[2] if is_round(line)])
def test_rounds_are_shown_as_on_the_page(line: str, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(BLOCKS[0], "utf-8")
    match = re.fullmatch(r"\S+ round (\d+)/(\d+): (.*), all there, (\d) parties in it, (.*); 9 min (\d+) s left", line)
    assert match is not None
    turn, turns, words, survivors, size, seconds = match.groups()
    moved = 0 if size == "0 bytes" else round(1000 * float(size.removesuffix(" kB")))
    stage = next(stage for stage, said in STAGES.items() if said == words)
    facts = {"round": int(turn), "rounds": int(turns), "survivors": int(survivors), "bytes": moved}
    news = News(stage, 6, 6, 540.0 + int(seconds), **facts)
    made = Progress(read_study(tmp_path / "study.toml"), Console()).line(news, news.seconds)
    assert made == line.partition(" ")[2]
