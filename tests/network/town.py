"""A study with keys, cards and records, and its coordinator, parties and helpers as threads of this process."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from unspoken import sites
from unspoken.engines.network.cards import make_keys, roster_text, with_roster
from unspoken.privacy.ledger import Ledger
from unspoken.study import Study, read_study

NAMES = ("St Mary", "Charité", "Inselspital")
NODES = ("node 0", "node 1", "node 2")
STUDY = """
[study]
name = "sites"
task = "classification"
[data]
features = 4
classes = 2
[parties]
count = 3
records = 40
[privacy]
epsilon = 2.0
delta = 1e-5
[method]
name = "helmet"
[summation]
protocol = "{protocol}"
"""


class Town:
    """A folder with everyone's keys and records, and the study."""

    def __init__(self, folder: Path, protocol: str = "secagg+", text: str = STUDY) -> None:
        self.folder, cards = folder, {}
        rng = np.random.default_rng(0)
        for name in (*NAMES, "hub", *NODES):
            cards[name] = make_keys(name, self.key(name), self.key(name).with_suffix(".card"))
            y = rng.integers(0, 2, 40)
            np.savez(folder / f"{name}.npz", X=rng.normal(size=(40, 4)) * 0.1 + (y[:, None] - 0.5), y=y)
        helpers = [cards[name] for name in NODES] if protocol == "compute-nodes" else []
        roster = roster_text([cards[name] for name in NAMES], cards["hub"], helpers)
        self.file = folder / "study.toml"
        self.file.write_text(with_roster(text.format(protocol=protocol), roster), encoding="utf-8")
        self.study: Study = read_study(self.file)
        self._threads = ThreadPoolExecutor(2 + len(NAMES) + len(NODES))

    def key(self, name: str) -> Path:
        return self.folder / "homes" / name / f"{name}.secret"

    def serve(self, deadlines: sites.Deadlines | None = None) -> tuple[Future[sites.Served], int]:
        """The coordinator, and its port."""
        port: queue.Queue[int] = queue.Queue()
        entrance, events = sites.Entrance("127.0.0.1", 0), sites.Events(listening=port.put)
        deadlines = deadlines or sites.Deadlines(300.0, 300.0, 0.2)
        serving = self._threads.submit(
            lambda: sites.serve(self.study, entrance, key=self.key("hub"), deadlines=deadlines, events=events)
        )
        return serving, port.get(timeout=300)

    def where(self, port: int) -> sites.CoordinatorAddress:
        assert self.study.roster is not None
        return sites.CoordinatorAddress("127.0.0.1", port, self.study.roster.certificate)

    def join(self, name: str, port: int, ledger: Ledger | None = None, **given: Any) -> Future[sites.Joined]:
        data = self.folder / f"{name}.npz"
        named = {"key": self.key(name), "patience": 5.0, "ledger": ledger, **given}
        return self.submit(lambda: sites.join(self.study, data, self.where(port), **named))

    def assist(self, name: str, port: int) -> Future[sites.Joined]:
        return self.submit(lambda: sites.assist(self.study, self.where(port), key=self.key(name), patience=5.0))

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        return self._threads.submit(call)

    def stop(self) -> None:
        self._threads.shutdown()

    close = stop
