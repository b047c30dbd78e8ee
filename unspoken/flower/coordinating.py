"""The coordinator's side: a study file, and a federation that carries its messages."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unspoken import sites, writing
from unspoken.engines.flower.server import AnyGrid, FlowerServer
from unspoken.engines.network.cards import home
from unspoken.errors import UnspokenError
from unspoken.report import terminal
from unspoken.report.live import progress
from unspoken.study import read_study

_DEADLINES = {"stage": 1800.0, "join": 86400.0, "grace": 120.0}
"""How long to wait, in seconds, unless the run's configuration says otherwise: an exchange takes some of them"""


def coordinate(grid: AnyGrid, config: Mapping[str, Any]) -> sites.Served:
    """Coordinate a study, from everyone's joining to the signed certificate. `config` is the run's configuration."""
    if (folder := _path(config, "home")) is not None:
        os.environ["UNSPOKEN_HOME"] = str(folder)
    if (file := _path(config, "study")) is None:
        raise UnspokenError('--run-config names no study; it should have study="/path/of/study.toml".')
    study, key = read_study(file), _path(config, "keys")
    output = _path(config, "output") or home() / "results"
    writing.check_folder(output, "output")
    deadlines = sites.Deadlines(*(_seconds(config, f"{name}-seconds", usual) for name, usual in _DEADLINES.items()))
    with (
        progress(study, sys.stdout) as shown,
        sites.coordinator_of(
            study, key, events := sites.Events(told=shown.say, news=shown.show, planned=shown.meet)
        ) as (coordinator, identity, roster),
    ):
        server = FlowerServer(coordinator, identity, roster, deadlines, grid, events)
        if coordinator.log.closed:
            served = sites.served_before(server, roster, identity)
        else:
            served = asyncio.run(server.carrying(sites.conducted(server, identity, roster)))
    found = served.find(output)
    if served.is_old:
        results = "are there" if found else "were not there, and are again"
        print(f"This study has ended before; its results {results}. To repeat it, change its name.", flush=True)
    terminal.show_run(served.plan, served.outcome, {}, found or served.save(output))
    print(served.signers().count(), flush=True)
    return served


def _path(config: Mapping[str, Any], key: str) -> Path | None:
    given = config.get(key, "")
    if not isinstance(given, str):
        raise UnspokenError(f'--run-config has {key}={given!r}, but it should be a path in quotes: {key}="/a/path".')
    return Path(given).expanduser().absolute() if given else None


def _seconds(config: Mapping[str, Any], key: str, usual: float) -> float:
    given = config.get(key, usual)
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        raise UnspokenError(f"--run-config has {key}={given!r}, but it should be a number above 0, such as {usual:g}.")
    return float(given)
