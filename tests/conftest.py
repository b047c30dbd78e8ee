"""What all tests share: one thread each, the same examples and secrets every time, and --soak for longer runs with
fresh ones."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# As many workers as cores run at once (and what they start), so each gets one thread. Libraries read these when they
# are imported, which is after this; so do the workers and the programs that tests start.
for _name in ("OMP", "OPENBLAS", "MKL", "BLIS", "NUMEXPR", "NUMBA"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
os.environ["VECLIB_MAXIMUM_THREADS"] = "1"
# Workers, and dozens of programs that tests start, need not compile the same modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without a terminal has what it starts in the background ignore interrupts, and tests send some.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Typer would look at every parameter of every command for each call of the program; they are the same in all of them.
with warnings.catch_warnings(action="ignore"):  # Beside Flower there is an older Typer, which Click warns of.
    import typer.main
typer.main.get_command = functools.cache(typer.main.get_command)

# Power cuts are played on disks of our own (disks.py), so nobody waits thousands of times for the one of this machine.
os.fsync = lambda fd: None

# How long an example takes says more of what else the machine does than of the test.
settings.register_profile(
    "default", max_examples=20, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", action="store_true", help="more runs with faults, more repetitions, more examples, and fresh ones"
    )
    parser.addoption("--long", action="store_true", help="tests that are too long for every day, too")
    parser.addoption("--flower", action="store_true", help="studies over a real Flower federation on this machine")
    parser.addoption("--cluster", action="store_true", help="what runs on a Ray cluster, which is started for it")
    parser.addoption("--soak-times", type=int, default=1, help="so many times as many random runs as --soak has")


def pytest_configure(config: pytest.Config) -> None:
    examples = {"max_examples": 60 * config.getoption("--soak-times"), "derandomize": False, "print_blob": True}
    settings.register_profile("soak", settings.get_profile("default"), **examples)
    settings.load_profile("soak" if config.getoption("--soak") else "default")
    if config.getoption("--flower") or config.getoption("--cluster"):
        # Whoever ends the tests ends the federation or the cluster: after an interrupt, pytest cleans up.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is there when all tests are imported stays: the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[object], list[object]]:
    """To look through every test for examples in its docstrings takes seconds, and hardly any has one."""
    found = yield
    return [each for each in found if type(each).__name__ != "DoctestModule" or b">>> " in file_path.read_bytes()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever does more with --soak is marked, so that `--soak -m soak` runs nothing twice for nothing."""
    takes_long = config.getoption("--long") or config.getoption("--soak")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("soak")
            item.add_marker(pytest.mark.skipif(not takes_long, reason="runs with --long or --soak"))
        if item.get_closest_marker("rare"):
            item.add_marker("soak")
            item.add_marker(pytest.mark.skipif(not config.getoption("--soak"), reason="runs with --soak"))
        if item.get_closest_marker("flower"):
            item.add_marker(pytest.mark.skipif(not config.getoption("--flower"), reason="runs with --flower"))
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.skipif(not config.getoption("--cluster"), reason="runs with --cluster"))
        # Random records fit no study. Where it matters what a holder is told, a test asks for the warning.
        item.add_marker(pytest.mark.filterwarnings("ignore::unspoken.errors.DataWarning"))
        by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_hypothesis or {"runs", "seeds"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("soak")


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> Callable[[int, int], int]:
    """How often to repeat something: `runs(20, 500)` is 20, and 500 with --soak."""
    soak: bool = request.config.getoption("--soak")
    return lambda few, many: many if soak else few


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Callable[[int, int], range]:
    """Of random runs: `seeds(20, 100)` is 0 … 19, 0 … 99 with --soak, and 0 … 999 with --soak-times 10 as well."""
    soak, times = (request.config.getoption(option) for option in ("--soak", "--soak-times"))
    return lambda few, many: range(many * times if soak else few)


@pytest.fixture
def seeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What the operating system draws for this test is the same every time, so that chance does not fail it.

    Whoever compares two ways to learn calls it before each, so that both meet the same noise.
    """
    from unspoken.noise.stream import SecretStream  # after the number of threads is set

    key, lock = hashlib.sha256(request.node.nodeid.encode()).digest(), threading.Lock()

    def begin() -> None:
        stream = SecretStream(key)

        def urandom(count: int, /) -> bytes:
            with lock:
                return stream.take(count)

        monkeypatch.setattr(os, "urandom", urandom)

    begin()
    return begin


@pytest.fixture(autouse=True)
def _same_every_time(request: pytest.FixtureRequest) -> None:
    """Fresh secrets are for --soak, as fresh examples are."""
    if not request.config.getoption("--soak"):
        request.getfixturevalue("seeded")
