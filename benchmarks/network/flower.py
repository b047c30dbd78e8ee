"""Flower's exchange on this machine: its own SuperLink and SuperNodes, on loopback, one app that answers with bytes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.common import Numbers, say

PARTIES = 3
SIZES = (0, 500_000)
REPEATS = 3
SECONDS = 240.0
PROJECT = """
[project]
name = "exchange"
version = "1.0.0"
description = ""
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "benchmark"
[tool.flwr.app.components]
serverapp = "exchange.app:server"
clientapp = "exchange.app:client"
[tool.flwr.app.config]
"""
APP = """
import json, time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.query("step")
def step(message, context):
    size = int(message.content["ask"]["size"])
    return Message(RecordDict({"answer": ConfigRecord({"bytes": bytes(size)})}), reply_to=message)

@server.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < PARTIES:
        time.sleep(0.5)
    found = {}
    for size in SIZES:
        found[size] = []
        for _ in range(REPEATS):
            ask = RecordDict({"ask": ConfigRecord({"size": size})})
            began = time.perf_counter()
            messages = [Message(ask, dst_node_id=node, message_type="query.step") for node in grid.get_node_ids()]
            answers = list(grid.send_and_receive(messages, timeout=120))
            assert len(answers) == PARTIES and all(answer.has_content() for answer in answers)
            found[size].append(time.perf_counter() - began)
    open(OUTPUT, "w").write(json.dumps(found))
"""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def measured(environment: Path) -> Numbers:
    """Seconds of an exchange with three SuperNodes, the best of a few, by the size of the answers."""
    say("Flower's exchange")
    with tempfile.TemporaryDirectory() as given:
        folder, port = Path(given), _port()
        output, app = folder / "found.json", folder / "app"
        (app / "exchange").mkdir(parents=True)
        (app / "pyproject.toml").write_text(PROJECT)
        (app / "exchange" / "__init__.py").write_text("")
        constants = f"PARTIES, SIZES, REPEATS, OUTPUT = {PARTIES}, {SIZES}, {REPEATS}, {str(output)!r}\n"
        (app / "exchange" / "app.py").write_text(constants + APP)
        home = folder / "home"
        home.mkdir()
        settings = f'[superlink]\ndefault = "loop"\n[superlink.loop]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        (home / "config.toml").write_text(settings)
        _run(environment.resolve(), folder, port, output)
        found = {int(size): seconds for size, seconds in json.loads(output.read_text()).items()}
    return {"parties": PARTIES, "seconds": {str(size): min(each) for size, each in found.items()}}


def _run(environment: Path, folder: Path, port: int, output: Path) -> None:
    path = f"{environment / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    surroundings = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "home"), "PATH": path}
    where = ("--host", "127.0.0.1")
    link = ["flower-superlink", "--insecure", "--disable-runtime-dependency-installation", *where, "--port", f"{port}"]
    commands = [link]
    for index in range(PARTIES):
        node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}", *where, "--port", f"{_port()}"]
        commands.append([*node, "--node-config", f"partition-id={index}"])
    commands.append(["flwr", "run", str(folder / "app"), "loop", "--stream"])
    running = []
    with (folder / "log").open("wb") as log:
        try:
            for command in commands:
                program = [str(environment / "bin" / command[0]), *command[1:]]
                given: Any = {"env": surroundings, "cwd": folder, "stdout": log, "stderr": log}
                running.append(subprocess.Popen(program, **given))  # noqa: S603 (named by us)
                time.sleep(3.0 if len(running) == 1 else 0.5)
            until = time.monotonic() + SECONDS
            while not output.exists() and time.monotonic() < until and not any(each.poll() for each in running):
                time.sleep(0.5)
            time.sleep(1.0)
        finally:
            for each in reversed(running):
                _end(each)
    if not output.exists():
        raise SystemExit(f"Flower gave no answer:\n{(folder / 'log').read_text(errors='replace')[-2000:]}")


def _descendants(process: int) -> list[int]:
    """The processes that one has started, and those that these have."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [each for child in map(int, found) for each in (*_descendants(child), child)]


def _end(program: subprocess.Popen[bytes]) -> None:
    """With all that it has started, and nothing else."""
    for process in (*_descendants(program.pid), program.pid):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    program.wait()
