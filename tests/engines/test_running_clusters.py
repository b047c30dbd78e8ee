"""Clusters that others have started: they are joined and left as they were, and may lose a machine during a run.

The programs here are processes of their own, since the tests' own process has a cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster_runs import ALIKE, PARTIES, SECONDS, assert_gone, descendants, start, start_python

pytestmark = [pytest.mark.cluster(of_its_own=True), pytest.mark.timeout(900)]

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **ALIKE}
"""On loopback addresses, without reports"""

_STARTS = 3
"""Ray waits 30 seconds for a machine to start, and a busy one may take longer"""


@dataclass(frozen=True)
class Head:
    """A cluster that was started by `ray start`."""

    process: subprocess.Popen[bytes]
    address: str


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="u"))
    ports = ["--port", "0", "--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0"]
    here = ["--node-ip-address", "127.0.0.1", "--include-dashboard", "false", "--temp-dir", str(folder / "r")]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    for _ in range(_STARTS):
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *ports, *here], stdout=log, stderr=log, env={**environment, **QUIET, "HOME": str(folder)}
            )
        while not (started := b"Ray runtime started" in (folder / "log").read_bytes()) and process.poll() is None:
            time.sleep(0.1)
        if started:
            break
    try:
        assert started, (folder / "log").read_text()
        yield Head(process, (folder / "r" / "ray_current_cluster").read_text())
    finally:
        children = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        assert_gone(children)
        shutil.rmtree(folder, ignore_errors=True)


def printed_by(process: subprocess.Popen[str]) -> str:
    try:
        printed, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return printed


def test_a_simulation_by_the_command_runs_on_a_cluster_that_is_there(files: list[str], home: Path, head: Head) -> None:
    found = json.loads(printed_by(start([*files, "--address", head.address, "--json"], home)))
    assert found["survivors"] == PARTIES
    (certificate,) = Path(files[1]).parent.glob("*.certificate.json")
    assert json.loads(certificate.read_text())["happened"]["engine"].startswith("ray")
    assert not list(home.iterdir())
    assert head.process.poll() is None


def test_a_comparison_by_the_command_runs_on_a_cluster_that_is_there(files: list[str], home: Path, head: Head) -> None:
    data = files[files.index("--data") + 1]
    chosen = ["--methods", "helmet,none", "--epsilons", "1", "--test", data, "--engine", "ray"]
    process = start(["compare", files[1], "--data", data, *chosen, "--address", head.address, "--json"], home)
    assert [point["method"] for point in json.loads(printed_by(process))["points"]] == ["helmet", "none"]
    assert not list(home.iterdir())
    assert head.process.poll() is None


JOINS = """
import os, socket, sys
from functools import partial
import ray
from cluster_runs import agreed_on, run
from unspoken.engines import local
from unspoken.engines.cluster import connection, engine

def on(address):
    return run(partial(engine.run, address=address), agreed_on())

here = run(local.run, agreed_on())
print((on(sys.argv[1]) == here).all(), ray.is_initialized())
os.environ["RAY_ADDRESS"] = sys.argv[1]
print((on("auto") == here).all(), ray.is_initialized())
connection._ANSWERING = 1.0
with socket.create_server(("127.0.0.1", 0)) as mute:
    try:
        on(f"127.0.0.1:{mute.getsockname()[1]}")
    except connection.UnspokenError as error:
        print(error)
"""


def test_a_program_joins_a_cluster_by_its_address_and_leaves_it(home: Path, head: Head) -> None:
    """`auto` finds it, too; what listens somewhere and is no cluster is told apart in bounded time."""
    first, second, third = printed_by(program(home, JOINS, head.address)).splitlines()
    assert (first, second) == ("True False", "True False")
    assert "but no cluster answers there (Timed out" in third
    assert head.process.poll() is None


TURNS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from cluster_runs import agreed_on, run
from unspoken.engines import local
from unspoken.engines.cluster import engine

here = run(local.run, agreed_on())
on_it = partial(engine.run, address=sys.argv[1])
with ThreadPoolExecutor(2) as pool:
    for found in [pool.submit(run, on_it, agreed_on()) for _ in range(2)]:
        print((found.result() == here).all())
"""


def test_runs_of_several_threads_take_turns(home: Path, head: Head) -> None:
    """Else one takes the other's helpers, or leaves the cluster while the other is at work."""
    assert printed_by(program(home, TURNS, head.address)).split() == ["True", "True"]


USES = """
import gc, sys, time
import ray
import unspoken
from ray._private import state
from cluster_runs import ALIKE, PARTIES, agreed_on, records, run
from unspoken.engines import local
from unspoken.engines.cluster import engine

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")

@ray.remote
class Counter:
    def __init__(self):
        self.count = 0
    def more(self):
        self.count += 1
        return self.count

def left():
    gc.collect()
    actors = [actor["ActorClassName"] for actor in state.actors().values() if actor["State"] != "DEAD"]
    return actors, len(ray._private.worker.global_worker.core_worker.get_all_reference_counts())

print(left()[0])
mine, counter = ray.put("mine"), Counter.remote()
ray.get(counter.more.remote())
before = left()
print((run(engine.run, agreed_on()) == run(local.run, agreed_on())).all())
train, groups = records()
done = unspoken.simulate(agreed_on(), train.features, train.labels, groups, engine="ray", address=sys.argv[1])
print(done.outcome.survivors == PARTIES)
try:
    unspoken.simulate(agreed_on(), train.features, train.labels, groups, engine="ray", address="127.0.0.1:9")
except unspoken.UnspokenError as error:
    print(error)
until = time.monotonic() + 60
while left() != before and time.monotonic() < until:
    time.sleep(0.1)
print(left() == before or (left(), before))
print(ray.is_initialized(), ray.get(mine), ray.get(counter.more.remote()))
"""


def test_a_program_s_own_connection_is_used_and_left_as_it_was(home: Path, head: Head) -> None:
    """Nor has anybody before it left an actor there."""
    *said, refused, left, own = printed_by(program(home, USES, head.address)).splitlines()
    assert said == ["[]", "True", "True"]
    assert f"this program is connected to the cluster at {head.address}; leave the address out" in refused
    assert (left, own) == ("True", "True mine 2")
    assert head.process.poll() is None


LOSES = '''
import os, signal, time
import ray
from ray.cluster_utils import Cluster
from cluster_runs import agreed_on, run
from unspoken.engines import local
from unspoken.engines.cluster import engine

def patiently(make, **how):
    """Ray waits 30 seconds for a machine to start, and a busy one may take longer."""
    for left in reversed(range(4)):
        try:
            return make(**how)
        except Exception:
            if not left:
                raise

head = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
machines = patiently(Cluster, initialize_head=True, head_node_args=head)
ray.init(address=machines.address, log_to_driver=False, logging_level="ERROR")
for protocol, moment in (("compute-nodes", "training"), ("secagg+", "exchanging keys and shares (2/3)")):
    machine = patiently(machines.add_node, num_cpus=1)
    lost = []

    def progress(what, done, parties):
        if what.startswith(moment) and done and not lost:
            lost.append(done)
            for kind in machine.all_processes.values():
                for one in kind:
                    os.kill(one.process.pid, signal.SIGKILL)

    found = run(engine.run, agreed_on(protocol), progress=progress)
    print(protocol, len(lost), (found == run(local.run, agreed_on(protocol))).all(), flush=True)
until = time.monotonic() + 120
while (gone := [node["Alive"] for node in ray.nodes()].count(False)) < 2 and time.monotonic() < until:
    time.sleep(0.1)  # A short run is over before the cluster misses a machine.
print("machines lost:", gone)
ray.shutdown()
machines.shutdown()
'''
DETECTED = {"initial_delay_ms": "0", "period_ms": "1000", "timeout_ms": "20000", "failure_threshold": "4"}
"""How soon a lost machine is missed, and how long one that is only slow is waited for"""
RAYS_OWN = "You have likely discovered a bug in Ray"
"""Ray's own words if a check of its driver fails: now and then it does when a lost machine answers late"""


def test_a_lost_machine_costs_a_retry_and_not_the_run(home: Path) -> None:
    """What a machine has made is lost with it, and so are its compute nodes."""
    health = {f"RAY_health_check_{name}": value for name, value in DETECTED.items()}
    where = {"RAY_TMPDIR": str(home), "RAY_max_direct_call_object_size": "1"}
    for _ in range(4):
        status, printed, errors = ended(program(home, LOSES, **health, **where))
        if status == 0 or RAYS_OWN not in errors:
            break
    else:
        pytest.skip("Ray ended itself four times when it lost a machine")
    assert status == 0, errors
    # Ray says on standard output what was lost.
    said = [line for line in printed.splitlines() if line.startswith(("compute-nodes", "secagg+", "machines"))]
    assert said == ["compute-nodes 1 True", "secagg+ 1 True", "machines lost: 2"]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """How a program has ended, and what it said; nothing that it has started is left."""
    known: set[int] = set()
    until = time.monotonic() + SECONDS
    try:
        while True:
            known.update(descendants(process.pid))
            try:
                printed, errors = process.communicate(timeout=0.5)
                return process.returncode, printed, errors
            except subprocess.TimeoutExpired:
                if time.monotonic() > until:
                    raise
    finally:
        process.kill()
        for one in known:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)


def program(home: Path, text: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program that finds what tests share. (What it starts itself does not: Ray has modules of such names.)"""
    begin = f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    (home / "program.py").write_text(begin + text)
    return start_python([str(home / "program.py"), *arguments], home, **(QUIET | environment))
