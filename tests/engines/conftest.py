"""A Ray cluster for all tests that need one, in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unspoken.engines.cluster.session import Cluster, connected


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    with connected(workers=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _on_a_cluster(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("cluster"):
        request.getfixturevalue("ray_cluster")
