"""A real federation on this machine: a SuperLink and stock SuperNodes, each in a process group of its own."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
PATIENCE = 300.0
"""The most seconds between two signs of life, also on a machine with much else to do"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Federation:
    """What was started, and stops all of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._running: dict[str, subprocess.Popen[str]] = {}

    def environment(self, name: str) -> dict[str, str]:
        """Of a program with a folder of its own for Flower's files. It talks to this machine alone."""
        home = self.folder / f"flower {name}"
        home.mkdir(exist_ok=True)
        address = f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{address}')
        return os.environ | {
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, name: str, *command: str) -> None:
        with open(self.log(name), "a") as log:
            self._running[name] = subprocess.Popen(
                [str(PROGRAMS / command[0]), *command[1:]],
                env=self.environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self.folder,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def link(self) -> None:
        """Start the SuperLink, and wait until it listens."""
        where = ("--host", "127.0.0.1", "--port", str(self.port))
        self.start("link", "flower-superlink", "--insecure", "--disable-runtime-dependency-installation", *where)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            time.sleep(0.2)
        raise TimeoutError(self.log("link").read_text())

    def node(self, name: str, site: Path) -> None:
        """Start a SuperNode whose configuration names the site's file."""
        where = ("--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1", "--port", str(free_port()))
        self.start(name, "flower-supernode", "--insecure", *where, "--node-config", f'unspoken="{site}"')

    def kill(self, name: str) -> None:
        """As when the power fails."""
        killed = self._running.pop(name)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()

    @contextmanager
    def run(self, app: Path, **config: object) -> Iterator[Lines]:
        """`flwr run`; what it prints, line by line."""
        said = " ".join(
            f'{key.replace("_", "-")}="{value}"' if isinstance(value, str) else f"{key.replace('_', '-')}={value}"
            for key, value in config.items()
        )
        program = subprocess.Popen(
            [str(PROGRAMS / "flwr"), "run", str(app), "here", "--stream", "--run-config", said],
            env=self.environment("link"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        lines = Lines(program)
        try:
            yield lines
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            lines.close()

    def stop(self) -> None:
        for gently in (signal.SIGTERM, signal.SIGKILL):
            for running in self._running.values():
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, gently)
            until = time.monotonic() + 10.0
            while gently == signal.SIGTERM and time.monotonic() < until:
                if all(running.poll() is not None for running in self._running.values()):
                    break
                time.sleep(0.1)
        for running in self._running.values():
            running.wait()
        for home in self.folder.glob("flower *"):
            shutil.rmtree(home, ignore_errors=True)


class Lines:
    """What a program prints."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.seen: list[str] = []
        assert program.stdout is not None
        self._stream = program.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stream:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def close(self) -> None:
        """The program has ended."""
        self._reader.join()
        self._stream.close()

    def until(self, *parts: str) -> None:
        """Read on until each of these was in a line, as long as there are lines."""
        missing = set(parts)
        while missing:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                line = None
            assert line is not None, f"no line has {missing}:\n" + "\n".join(self.seen)
            self.seen.append(line)
            missing = {part for part in missing if part not in line}
