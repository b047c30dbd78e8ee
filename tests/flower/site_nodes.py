"""A town whose sites are nodes of a federation: real site files, stores, ledgers and policies, without Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flower_nodes import ListGrid
from network.town import NAMES, NODES, Town
from unspoken.flower import taking_part
from unspoken.flower.coordinating import coordinate


class Stopped(Exception):
    """A coordinator's process is stopped."""


class SiteNode:
    """A SuperNode whose configuration names a site's file."""

    def __init__(self, file: Path) -> None:
        self.file, self.questions = file, 0

    def answer(self, content: bytes) -> bytes:
        self.questions += 1
        return taking_part.answer(content, str(self.file))


class SiteTown:
    """Site files for everyone, and the federation."""

    def __init__(self, folder: Path, protocol: str = "secagg+", **said: Any) -> None:
        self.town = Town(folder, protocol, **said)
        self.grid = ListGrid()
        self.names = [*NAMES, *(NODES if protocol == "compute-nodes" else ())]
        for number, name in enumerate(self.names):
            self.grid.there[number] = SiteNode(self.site(name))  # type: ignore[assignment]

    def home(self, name: str) -> Path:
        return self.town.key(name).parent

    def site(self, name: str, **said: Any) -> Path:
        """Write a site's file."""
        data = {"data": str(self.town.folder / f"{name}.npz")} if name in NAMES else {}
        content = {"study": str(self.town.file), "home": str(self.home(name)), "yes": True, **data, **said}
        lines = [f"{key} = {_toml(value)}\n" for key, value in content.items() if value is not None]
        file = self.home(name) / "site.toml"
        file.write_text("".join(lines), encoding="utf-8")
        return file

    def config(self, **said: Any) -> dict[str, Any]:
        """The run's configuration."""
        terms = {"stage-seconds": 60.0, "join-seconds": 60.0, "grace-seconds": 0.5}
        return {"study": str(self.town.file), "home": str(self.home("hub")), "keys": "", "output": ""} | terms | said

    def run(self, **said: Any) -> Any:
        return coordinate(self.grid, self.config(**said))

    def greet(self) -> None:
        """Run until all nodes have answered once, and the coordinator has heard them."""
        nodes = self.grid.nodes

        def watched() -> set[int]:
            if all(node.questions for node in self.grid.there.values()):
                raise Stopped
            return nodes()

        self.grid.nodes = watched  # type: ignore[method-assign]
        with pytest.raises(Stopped):
            self.run()

    def stop(self) -> None:
        self.town.stop()


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'
