"""What all tests share: one thread each, the same examples every time, and --soak for longer runs with fresh ones."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# As many workers as cores run at once (and what they start), so each gets one thread. Libraries read these when they
# are imported, which is after this; so do the workers and the programs that tests start.
for _name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
os.environ["VECLIB_MAXIMUM_THREADS"] = "1"

# How long an example takes says more of what else the machine does than of the test.
settings.register_profile(
    "default", max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("default"), max_examples=200, derandomize=False, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", action="store_true", help="more runs with faults, more repetitions, more examples, and fresh ones"
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("soak" if config.getoption("--soak") else "default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever does more with --soak is marked, so that `--soak -m soak` runs nothing twice for nothing."""
    for item in items:
        by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_hypothesis or {"runs", "only_with_soak"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("soak")


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How often to repeat something: `runs(20, 500)` is 20, and 500 with --soak."""
    soak: bool = request.config.getoption("--soak")
    return lambda few, many: many if soak else few


@pytest.fixture
def only_with_soak(request: pytest.FixtureRequest) -> None:
    """For what takes long and compares accuracy or speed, rather than what is right."""
    if not request.config.getoption("--soak"):
        pytest.skip("runs with --soak")
