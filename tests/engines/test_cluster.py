"""A Ray cluster as engine: the same totals whatever is lost on the way, nothing for the world to see, a clean end.

The cluster is real, and so are the processes that are killed. What every engine must do is in the conformance suite.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import party_folders
import unspoken
from cluster_runs import (
    PARTIES,
    SECONDS,
    agreed_on,
    assert_gone,
    descendants,
    named,
    records,
    run,
    sentences,
    start,
    start_python,
    study,
    with_a,
)
from factories import make
from party_folders import DAMAGED
from unspoken.comparison import Comparison, run_comparison
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import DataError
from unspoken.data.folders import FolderFederation
from unspoken.engines import answering, local
from unspoken.engines.cluster import engine
from unspoken.engines.cluster.connection import Cluster
from unspoken.engines.conditions import Conditions
from unspoken.engines.journal import Journal
from unspoken.errors import UnspokenError
from unspoken.methods.registry import method_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.verification import verify
from unspoken.study import Study
from unspoken.types import Integers

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


class Troubled(ArrayFederation):
    """Parties that are read with difficulty, once: the first process to read the first party is in trouble."""

    def __init__(self, agreed: Study, trouble: str, mark: Path) -> None:
        super().__init__(agreed, *records())
        self._trouble, self._mark, self._tests = trouble, mark, os.getpid()

    def block(self, parties: Integers) -> Block:
        if 0 in parties and os.getpid() != self._tests and not self._mark.exists():
            self._mark.touch()
            if self._trouble == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self._trouble == "slow":
                time.sleep(1.0)
            if self._trouble == "fails":
                raise ArithmeticError("broken")
        return super().block(parties)


@pytest.mark.parametrize(
    ("protocol", "trouble"),
    [("compute-nodes", "killed"), ("secagg+", "killed"), ("ideal", "killed"), ("secagg+", "slow")],
)
def test_a_lost_or_slow_process_changes_nothing(protocol: str, trouble: str, tmp_path: Path) -> None:
    agreed = agreed_on(protocol)
    mark = tmp_path / "mark"
    found = run(engine.run, agreed, Troubled(agreed, trouble, mark))
    assert mark.exists()
    assert (found == run(local.run, agreed)).all()


def test_a_lost_compute_node_changes_nothing(ray_cluster: Cluster) -> None:
    """Its state is gone with it: everyone begins anew, with the same secrets."""
    import ray

    killed: list[int] = []

    def progress(what: str, done: int, parties: int) -> None:
        if what.startswith("training") and done and not killed:
            killed.append(done)
            ray.kill(ray_cluster._actors[1])

    found = run(engine.run, agreed_on(), progress=progress)
    assert killed
    assert (found == run(local.run, agreed_on())).all()


def test_compute_nodes_that_are_lost_again_and_again_end_the_run(
    ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After fewer losses than usual: each takes the time to start new processes."""
    import ray

    monkeypatch.setattr(answering, "_LOSSES", 1)

    def progress(what: str, done: int, parties: int) -> None:
        if what.startswith("training"):
            ray.kill(ray_cluster._actors[0])

    with pytest.raises(UnspokenError, match="lost again and again"):
        run(engine.run, agreed_on(), progress=progress)


def test_an_error_at_a_party_ends_the_run_with_that_error(tmp_path: Path) -> None:
    agreed = agreed_on()
    with pytest.raises(ArithmeticError, match="broken"):
        run(engine.run, agreed, Troubled(agreed, "fails", tmp_path / "mark"))
    # The cluster is as good as before.
    assert (run(engine.run, agreed) == run(local.run, agreed)).all()


class Cut(BaseException):
    """Ends a run as nothing else does."""


def test_a_run_that_was_cut_goes_on_from_its_journal_wherever_it_runs(tmp_path: Path) -> None:
    """Cut on the cluster while vectors came in, then ended in one process: the same as if nothing had been."""
    agreed = agreed_on()
    with pytest.raises(Cut):
        run(engine.run, agreed, progress=cut, journal=Journal(tmp_path / "journal", "run/"))
    (tmp_path / "copy").write_bytes((tmp_path / "journal").read_bytes())
    ends = [run(on, agreed, journal=Journal(tmp_path / name, "run/")) for on, name in ENDS]
    assert (ends[0] == ends[1]).all()


ENDS = ((local.run, "journal"), (engine.run, "copy"))


def cut(what: str, done: int, parties: int) -> None:
    if what.startswith("training") and done:
        raise Cut


def test_a_folder_is_read_where_its_parties_are(tmp_path: Path) -> None:
    columns = {f"x{number}": {"min": -3, "max": 3} for number in range(3)}
    agreed = study(
        parties=PARTIES, summation="compute-nodes", data={"columns": columns, "label": "y", "classes": ["0", "1", "2"]},
        dropouts=4,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for party in range(PARTIES):
        frame = pd.DataFrame(rng.normal(size=(5 + party % 3, 3)), columns=list(columns))
        frame.assign(y=rng.integers(0, 3, len(frame)).astype(str)).to_parquet(tmp_path / f"{party:03}.parquet")
    here, there = (run(on, agreed, FolderFederation(agreed, tmp_path)) for on in (local.run, engine.run))
    assert (here == there).all()


def test_a_file_that_cannot_be_read_ends_a_run_as_it_does_here(tmp_path: Path, ray_cluster: Cluster) -> None:
    """The same sentence, and nothing of Ray; the cluster is as good as before."""
    for number, name in enumerate(("another type", "gone")):
        happen, sentence = DAMAGED[name]
        (folder := tmp_path / str(number)).mkdir()
        federation = FolderFederation(party_folders.agreed(), party_folders.written(folder))
        happen(folder / "00002.parquet")
        errors = [_error_of(on, federation) for on in (local.run, engine.run)]
        assert errors[0] == errors[1]
        assert re.search(sentence, errors[0])


class ReadByOthers(FolderFederation):
    """Whoever reads a block has read no other."""

    def block(self, parties: Integers) -> Block:
        known = dict(self._read)
        try:
            return super().block(parties)
        finally:
            self._read = known


def test_a_file_that_changes_is_noticed_by_a_process_that_has_not_read_it_before(tmp_path: Path) -> None:
    """Between two turns, which are then not about the same records."""
    sizes = {"count": 6, "records": 3, "max_records": 9}
    several = make("moments", data=party_folders.DATA, parties=sizes, method={"function": "softmax", "steps": 2})
    federation, method = ReadByOthers(several, party_folders.written(tmp_path)), method_for(several)

    def change(what: str, done: int, parties: int) -> None:
        if what.startswith("training") and done == parties:
            party_folders.frame(3).assign(age=7.0).to_parquet(tmp_path / "00003.parquet")

    with pytest.raises(DataError, match=r"00003\.parquet: has changed since the run began; run it again"):
        engine.run(method, method.plan(), federation, Conditions(progress=change))


def _error_of(on: Any, federation: FolderFederation) -> str:
    method = method_for(party_folders.agreed())
    with pytest.raises(DataError) as raised:
        on(method, method.plan(), federation, Conditions())
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    return str(raised.value)


def test_a_comparison_has_a_task_for_each_run(ray_cluster: Cluster) -> None:
    train, _ = records()
    compared = Comparison(agreed_on("ideal"), train, train, ("helmet", "none"), (1.0, 2.0), repeats=2)
    calls: list[tuple[str, int, int]] = []
    runs = run_comparison(compared, engine="ray", progress=lambda *call: calls.append(call))
    here = run_comparison(compared)
    assert [run.cell for run in runs] == [run.cell for run in here]
    assert [run.metrics for run in runs if run.variant == "none"] == [
        run.metrics for run in here if run.variant == "none"
    ]
    assert calls[-1][1:] == (6, 6)


def test_the_certificate_says_that_it_was_a_simulation_on_a_cluster() -> None:
    features, groups = records()[0].features, records()[1]
    labels = records()[0].labels
    done = unspoken.simulate(agreed_on(), features, labels, groups, engine="ray")
    said = done.certificate
    assert said["simulation"] is True
    assert said["statement"].startswith("SIMULATION: all parties ran on one cluster, where all records were")
    assert said["happened"]["engine"] == "ray: blocks of parties on a cluster"
    assert verify(said).is_simulation


def listening(process: int) -> set[str]:
    """The addresses, in hexadecimal digits, that a process listens on."""
    sockets = set()
    for file in Path(f"/proc/{process}/fd").glob("*"):
        try:
            sockets |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(file)))
        except OSError:
            continue
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {line[1].split(":")[0] for line in lines if line[3] == "0A" and line[9] in sockets}


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_cluster_of_our_own_listens_on_loopback_only_and_wants_a_token(ray_cluster: Cluster) -> None:
    found = set().union(*(listening(process) for process in [os.getpid(), *descendants(os.getpid())]))
    assert found
    assert found <= LOOPBACK
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_the_command_starts_a_cluster_and_stops_it_and_leaves_nothing(files: list[str], home: Path) -> None:
    process = start([*files, "--json"], home)
    printed, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    said = json.loads(printed)
    assert said["survivors"] == PARTIES
    assert "one cluster" in json.loads(Path(said["files"]["certificate"]).read_text())["statement"]
    assert not list(home.iterdir())


@pytest.mark.parametrize(
    ("sent", "kind", "status", "word"),
    [
        (signal.SIGINT, "raylet", 130, "interrupted"),
        (signal.SIGTERM, "raylet", 143, "stopped"),
        (signal.SIGTERM, "ray::", 143, "stopped"),
    ],
)
def test_a_signal_ends_the_command_and_its_cluster(
    sent: signal.Signals, kind: str, status: int, word: str, files: list[str], home: Path, runs: Callable[..., int]
) -> None:
    """While the cluster starts, and when it runs."""
    if (sent, kind) == (signal.SIGTERM, "raylet") and not runs(0, 1):
        pytest.skip("either signal and either moment are in the others; runs with --soak")
    process = start([*files, "--json"], home)
    children = with_a(kind, process)
    os.killpg(process.pid, sent)
    printed, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, printed, len(sentences(errors))) == (status, "", 1), errors
    assert sentences(errors)[0].startswith(f"unspoken: {word}; no")
    assert_gone(children)
    assert not list(home.iterdir())


def test_an_address_where_no_cluster_is_costs_one_sentence_and_no_epsilon(files: list[str], home: Path) -> None:
    ledger = home / "ledger.sqlite"
    charged = ["--ledger", str(ledger), "--dataset", "records"]
    process = start([*files, "--address", "127.0.0.1:9", *charged], home)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, len(sentences(errors))) == (2, 1)
    assert 'address is "127.0.0.1:9", but no cluster answers there (Connection refused);' in errors
    assert not Ledger(ledger, "records").account().charges


def test_the_address_that_the_environment_names_is_told(files: list[str], home: Path) -> None:
    process = start_python(["-m", "unspoken", *files, "--address", "auto"], home, RAY_ADDRESS="127.0.0.1:9")
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, len(sentences(errors))) == (2, 1)
    assert 'address is "auto", which is 127.0.0.1:9, but no cluster answers there' in errors


@pytest.mark.parametrize(
    "own", [{}, {"RAY_AUTH_MODE": "token"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "f" * 64}]
)
def test_a_cluster_that_wants_its_token_is_told_apart_from_none(
    own: dict[str, str], files: list[str], home: Path, ray_cluster: Cluster
) -> None:
    """Without it, with none although one is asked for, and with another one."""
    import ray

    address = ray.get_runtime_context().gcs_address
    process = start_python(["-m", "unspoken", *files, "--address", address], home, **own)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, len(sentences(errors))) == (2, 1), errors
    assert f'address is "{address}", but that cluster takes work only from those who have its token; set' in errors


@pytest.mark.parametrize("content", [None, ""])
def test_a_token_file_that_cannot_be_used_is_named(
    content: str | None, files: list[str], home: Path, ray_cluster: Cluster
) -> None:
    """The cluster is there: nobody is told to start one."""
    import ray

    token = home / "copy"
    if content is not None:
        token.write_text(content)
    more = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    process = start_python(["-m", "unspoken", *files, "--address", ray.get_runtime_context().gcs_address], home, **more)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, len(sentences(errors))) == (2, 1), errors
    assert f'RAY_AUTH_TOKEN_PATH is "{token}", and no token can be read from it; let it name a copy' in errors
    assert "no cluster answers" not in errors


def test_a_run_whose_cluster_was_lost_is_given_up_and_goes_on_from_its_checkpoint(files: list[str], home: Path) -> None:
    """When its raylet is lost, Ray ends the process that uses it without a word. Somebody waits for that process."""
    checkpoint = ["--checkpoint", str(home / "checkpoint")]
    process = start([*files, *checkpoint], home)
    children = with_a("ray::Helper", process)
    for victim in named("raylet", children):
        os.kill(victim, signal.SIGKILL)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, len(sentences(errors))) == (3, 1), errors
    assert "cluster" in sentences(errors)[0]
    assert_gone(children)
    assert [file.name for file in home.iterdir()] == ["checkpoint"]
    again = [argument if argument != "ray" else "local" for argument in files]
    process = start([*again, *checkpoint, "--json"], home)
    printed, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert json.loads(printed)["survivors"] == PARTIES


PROGRAM = """
import sys
import numpy as np
import unspoken
X, y = np.zeros((400, 6)), np.arange(400) % 3
try:
    unspoken.simulate(sys.argv[1], X, y, np.arange(400) % 40, engine="ray")
finally:
    print("goes on")
"""


def test_a_program_whose_cluster_was_lost_ends_in_one_sentence_and_leaves_nothing(files: list[str], home: Path) -> None:
    """Mostly Ray ends it, and somebody beside it says so and removes what is left; else Ray tells it of the loss."""
    (home / "program.py").write_text(PROGRAM)
    process = start_python([str(home / "program.py"), files[1]], home)
    children = with_a("ray::Helper", process)
    for victim in named("raylet", children):
        os.kill(victim, signal.SIGKILL)
    printed, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, errors
    assert ("ClusterLost: the cluster" if printed else "unspoken: the program was ended") in errors, errors
    assert_gone(children)
    assert [file.name for file in home.iterdir()] == ["program.py"]
