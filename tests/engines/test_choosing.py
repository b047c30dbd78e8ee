"""The choice of an engine: what cannot be is refused in one sentence, before anything is started."""

from __future__ import annotations

import operator
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import unspoken
from factories import maker
from unspoken.cli import app
from unspoken.comparison import Comparison, run_comparison
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines.cluster import connection, each, engine, tasks
from unspoken.engines.cluster.signals import signals_later
from unspoken.errors import UnspokenError
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.study import Study, StudyError
from unspoken.summation.keys import Identity

PARTIES = 5
study = maker(data={"features": 2, "classes": 2}, method={"regularization": 0.1})


def simulate(agreed: Study, **how: Any) -> None:
    rng = np.random.default_rng(0)
    unspoken.simulate(agreed, rng.normal(size=(20, 2)), rng.integers(0, 2, 20), np.arange(20) % PARTIES, **how)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"engine": "spark"}, "engine is 'spark', but should be one of: local, ray"),
        ({"address": "127.0.0.1:1"}, "the engine local has none"),
        ({"engine": "ray", "address": "ray://127.0.0.1:1"}, "should be HOST:PORT"),
        ({"engine": "ray", "address": "127.0.0.1:65536"}, "should be HOST:PORT"),
        ({"engine": "ray", "drop": 9}, "drop is 9"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(how: dict[str, Any], match: str) -> None:
    with pytest.raises(UnspokenError, match=match):
        simulate(study(parties=PARTIES), **how)


def test_processes_are_for_this_machine() -> None:
    with pytest.raises(UnspokenError, match="processes are"):
        simulate(study(parties=PARTIES), engine="ray", processes=True)


def test_a_study_of_real_parties_is_refused() -> None:
    keys = [Identity(bytes([number]) * 32).public.hex() for number in range(PARTIES + 4)]
    roster = {"parties": keys[:PARTIES], "coordinator": keys[PARTIES], "helpers": keys[PARTIES + 1 :]}
    real = unspoken.make_study({**study(parties=PARTIES).model_dump(exclude_none=True), "roster": roster})
    method, records = method_for(real), Records(np.zeros((20, 2)), np.zeros(20, dtype=np.int64))
    federation = ArrayFederation(real, records, np.arange(20) % PARTIES)
    compared = Comparison(real, records, records, ("helmet",), (1.0,))
    for begin in (
        lambda: simulate(real, engine="ray"),
        lambda: run_comparison(compared, engine="ray"),
        lambda: engine.run(method, method.plan(), federation),
    ):
        with pytest.raises(StudyError, match="names real parties, but on a cluster the secrets of all of them are in"):
            begin()
    # In one process it is a simulation like any other.
    simulate(real)


def test_the_workers_of_a_cluster_do_not_get_what_is_the_coordinator_s_or_a_curator_s_own() -> None:
    method = method_for(study(parties=PARTIES))
    theirs = {"secrets": SecretStream(bytes(32)), "coordinate": method.coordinate}
    vars(method).update(theirs)
    assert not theirs.keys() & vars(engine._without_secrets(method)).keys()
    assert theirs.keys() < vars(method).keys()


def test_a_comparison_on_a_cluster_has_no_jobs(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    CliRunner().invoke(app, ["new", str(file)])
    arguments = ["compare", str(file), "--data", str(file), "--methods", "none", "--engine", "ray", "--jobs", "2"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "--jobs is 2, but the engine ray has workers of its own; leave it out." in refused.stderr


def test_a_machine_with_another_version_refuses_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results could differ: those of parties, and those of a comparison's runs."""
    refused = pytest.raises(UnspokenError, match=r"has unspoken .*, but the run was started by 0\.0; install the same")
    with refused:
        tasks.work_at(tasks.AttemptPlace(0, [], b"attempt", [], "0.0"))
    # Tasks that are done here, at once.
    at_once = SimpleNamespace(wait=lambda left, num_returns: (left[:1], left[1:]), cancel=lambda *_, **__: None)
    here = SimpleNamespace(task=lambda function: SimpleNamespace(remote=function), put=lambda it: it, got=lambda it: it)
    monkeypatch.setattr(each, "ray", lambda: at_once)
    monkeypatch.setattr(each, "connected", lambda address: nullcontext(here))
    assert [*each.each(operator.add, 1, [2, 3])] == [3, 4]
    monkeypatch.setattr(each, "version", lambda name: "0.0")
    with refused:
        next(each.each(operator.add, 1, [2, 3]))


def test_without_ray_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnspokenError, match=r"the engine ray needs ray, which is not installed.*\[ray\]"):
        connection.ray()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Interrupts are what they were, afterwards."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_while_a_cluster_starts_comes_when_it_has_started_or_failed(fails: bool) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started: list[bool] = []

    def start() -> None:
        with signals_later():
            os.kill(os.getpid(), signal.SIGINT)
            started.append(True)
            if fails:
                raise UnspokenError("it takes too long")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interrupts")
def test_a_second_interrupt_while_a_cluster_starts_comes_at_once() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[int] = []

    def start() -> None:
        with signals_later():
            for number in range(3):
                sent.append(number)
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert sent == [0, 1]


@pytest.mark.usefixtures("interrupts")
def test_a_program_that_ignores_interrupts_does_so_while_a_cluster_starts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals_later():
        os.kill(os.getpid(), signal.SIGINT)
