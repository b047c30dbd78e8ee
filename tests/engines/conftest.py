"""A Ray cluster for all tests that need one, in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cluster_runs import ALIKE, agreed_on, records
from unspoken.engines.cluster.connection import Cluster, connected
from unspoken.engines.environment import environment


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    with environment(ALIKE), connected(workers=2) as cluster:
        folder = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).parent
        yield cluster
    assert not folder.exists()


@pytest.fixture(autouse=True)
def _on_a_cluster(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("cluster")
    if marker and not marker.kwargs.get("of_its_own"):
        request.getfixturevalue("ray_cluster")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short name: Ray's sockets are in it."""
    folder = Path(tempfile.mkdtemp(prefix="u"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The arguments of a simulation."""
    train, groups = records()
    np.savez(tmp_path / "train.npz", X=train.features, y=train.labels, party=groups)
    text = json.dumps(agreed_on().model_dump(exclude_none=True, include={"study", "data", "parties", "privacy"}))
    content = json.loads(text)
    lines = [f"[{name}]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in section.items())
             for name, section in content.items()]  # fmt: skip
    (tmp_path / "study.toml").write_text("\n".join(lines) + '\n[summation]\nprotocol = "compute-nodes"\n')
    data = ["--data", str(tmp_path / "train.npz"), "--parties-by", "party", "--output", str(tmp_path)]
    return ["simulate", str(tmp_path / "study.toml"), *data, "--engine", "ray"]
