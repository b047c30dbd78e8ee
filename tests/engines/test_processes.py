"""Talliers in processes: the same vote, or an abort in time that names who failed, and never a process left behind.

The processes are real, and so are the signals. Only a test of the deadline has one that a busy machine could miss.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from unspoken.engines import processes
from unspoken.engines.processes import HelperProcess, tallier_processes
from unspoken.errors import UnspokenError
from unspoken.noise.stream import SecretStream
from unspoken.summation import ideal
from unspoken.summation.ballots import address
from unspoken.summation.base import COORDINATOR, Aborted, Endpoint, Envelope, Rejected, Session, VoteShape
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.summation.tally import Options, Tally
from unspoken.types import Integers

DEADLINE = 2.0
NEVER = 500.0
SLACK = 60.0
"""How much later than at once a busy machine may be."""


def vote(talliers: int = 3, deadline: float = NEVER) -> SimulatedEndpoints[Tally]:
    session = Session("digest", "labels", 5, 0, 3, 160, 64, vote=VoteShape(40, 4, 2**40))
    return SimulatedEndpoints(
        Tally(session, Options(talliers=talliers, deadline=deadline)), SecretStream(bytes(range(32)))
    )


def separate(simulated: SimulatedEndpoints[Tally]) -> AbstractContextManager[dict[str, Endpoint]]:
    return tallier_processes(simulated.protocol, simulated.keys)


def test_a_protocol_that_cannot_set_up_talliers_elsewhere_is_refused() -> None:
    summed = SimulatedEndpoints(ideal.Ideal(Session("digest", "sum", 5, 0, 3, 4, 64), ideal.Options()), SecretStream())
    with (
        pytest.raises(UnspokenError, match="Ideal cannot run its helpers in processes of their own"),
        tallier_processes(summed.protocol, summed.keys),
    ):
        pass


def ballots() -> Integers:
    return np.random.default_rng(0).integers(-3, 3, (5, 40, 4))


def hold(
    protocol: SimulatedEndpoints[Tally], helpers: dict[str, Endpoint], before_each: Callable[[int, Envelope], None]
) -> Integers:
    """The vote, with what happens before each message between the endpoints."""
    coordinator = protocol.coordinator()
    endpoints: dict[str, Endpoint] = {**helpers, COORDINATOR: coordinator}
    count = 0

    def deliver(envelopes: list[Envelope]) -> None:
        nonlocal count
        waiting = deque(envelopes)
        while waiting:
            envelope = waiting.popleft()
            before_each(count, envelope)
            count += 1
            waiting.extend(endpoints[envelope.to].step(envelope.body))

    for index, rows in enumerate(ballots()):
        deliver(protocol.party(index, SecretStream(bytes([index]) * 32)).submit(rows))
    deliver(coordinator.settle())
    deliver(coordinator.agree())
    deliver(coordinator.finish())
    return coordinator.winners()


def nothing_happens(count: int, envelope: Envelope) -> None:
    """What happens before each message of a vote that nobody disturbs."""


def pids(helpers: dict[str, Endpoint]) -> dict[str, int]:
    return {name: helper.pid for name, helper in helpers.items() if isinstance(helper, HelperProcess)}


def is_alive(pid: int) -> bool:
    """Is it running? A process that ended and that nobody has asked for yet is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def assert_gone(children: list[int], within: float = SLACK) -> None:
    until = time.monotonic() + within
    while time.monotonic() < until and any(map(is_alive, children)):
        time.sleep(0.02)
    assert not [pid for pid in children if is_alive(pid)]


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[SimulatedEndpoints[Tally], dict[str, Endpoint]]]:
    """A vote whose talliers have begun, for tests that let them be."""
    protocol = vote()
    with separate(protocol) as helpers:
        yield protocol, helpers


def test_the_winners_are_those_of_talliers_in_this_process(runs: Callable[[int, int], int]) -> None:
    talliers = runs(3, 5)
    protocol = vote(talliers)
    with separate(protocol) as helpers:
        children = pids(helpers)
        assert list(children) == [address(index) for index in range(talliers)]
        assert len({*children.values(), os.getpid()}) == talliers + 1
        assert all(map(is_alive, children.values()))
        # Interrupts from a keyboard reach the parent alone.
        assert all(os.getsid(child) == child for child in children.values())
        winners = hold(protocol, helpers, nothing_happens)
    assert_gone(list(children.values()), within=0.0)
    assert (winners == hold(protocol, vote(talliers).helpers(), nothing_happens)).all()


def test_talliers_import_what_this_process_does_and_nothing_of_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not this one')")
    # Installed here or not: this process has found the package, and says where. (Python itself imports the other one.)
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "sitecustomize.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    found = [str(Path(processes.__file__).parents[2]), str(tmp_path / "packages")]
    monkeypatch.setattr(sys, "path", [*found, *sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    protocol = vote()
    with separate(protocol) as helpers:
        winners = hold(protocol, helpers, nothing_happens)
    assert (winners == hold(protocol, vote().helpers(), nothing_happens)).all()
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize(("few", "many"), [pytest.param((3, 3), (7, 5), marks=pytest.mark.long), ((60, 3), (250, 5))])
def test_a_tallier_that_is_killed_ends_the_vote_by_its_name(
    few: tuple[int, int], many: tuple[int, int], runs: Callable[[int, int], int]
) -> None:
    """While ballots come, and in the midst of the rounds; with --soak of five talliers instead of three."""
    moment, talliers = map(runs, few, many)
    protocol = vote(talliers)
    with separate(protocol) as helpers:
        children = pids(helpers)
        victim, killed = address(talliers - 1), 0.0

        def kill(count: int, envelope: Envelope) -> None:
            nonlocal killed
            if count == moment:
                os.kill(children[victim], signal.SIGKILL)
                killed = time.monotonic()

        with pytest.raises(Aborted, match=f"^{victim} died .killed by SIGKILL.; nothing was revealed$") as raised:
            hold(protocol, helpers, kill)
        assert raised.value.blamed == (victim,)
        assert 0.0 < time.monotonic() - killed < SLACK
        with pytest.raises(Aborted, match=f"^{victim} died"):
            helpers[victim].step(b"")
    assert_gone(list(children.values()), within=0.0)


def test_a_tallier_that_hangs_ends_the_vote_at_the_deadline() -> None:
    protocol = vote(deadline=DEADLINE)
    with separate(protocol) as helpers:
        children = pids(helpers)
        stopped = 0.0

        def stop(count: int, envelope: Envelope) -> None:
            nonlocal stopped
            if count == 60:
                os.kill(children["tallier:1"], signal.SIGSTOP)
                stopped = time.monotonic()

        with pytest.raises(Aborted, match=r"^tallier:1 did not answer within 2 s; nothing was revealed$"):
            hold(protocol, helpers, stop)
        assert DEADLINE <= time.monotonic() - stopped < DEADLINE + SLACK
        assert_gone([children["tallier:1"]], within=0.0)
    assert_gone(list(children.values()), within=0.0)


@pytest.mark.long
def test_a_message_that_a_hanging_tallier_does_not_read_ends_at_the_deadline() -> None:
    """Larger than what the connection holds: it is the sending that waits."""
    with separate(vote(deadline=0.5)) as helpers:
        os.kill(pids(helpers)["tallier:0"], signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(Aborted, match=r"^tallier:0 did not answer within 0.5 s"):
            helpers["tallier:0"].step(bytes(50_000_000))
        assert 0.5 <= time.monotonic() - started < 0.5 + SLACK


def test_when_shares_of_the_winners_were_opened_before_the_vote_counts_as_spent() -> None:
    protocol, opened = vote(), set[str]()
    with separate(protocol) as helpers:
        children = pids(helpers)

        def kill_the_next(count: int, envelope: Envelope) -> None:
            if not opened:
                opened.update(*(helper._opened for helper in helpers.values() if isinstance(helper, HelperProcess)))
                for name in set(helpers) - opened if opened else ():
                    os.kill(children[name], signal.SIGKILL)

        with pytest.raises(Aborted, match=r"killed by SIGKILL.*opened by tallier:\d: count the vote as spent$"):
            hold(protocol, helpers, kill_the_next)
    assert len(opened) == 1
    assert_gone(list(children.values()), within=0.0)


def test_what_a_tallier_refuses_is_refused_in_the_same_words(
    standing: tuple[SimulatedEndpoints[Tally], dict[str, Endpoint]],
) -> None:
    protocol, helpers = standing
    here, envelopes = protocol.helpers(), protocol.party(0, SecretStream()).submit(ballots()[0])
    for endpoints in (here, helpers):
        endpoints["tallier:0"].step(envelopes[0].body)
    for body in (b"garbage", envelopes[0].body, envelopes[1].body):
        texts = []
        for endpoints in (here, helpers):
            with pytest.raises(Rejected) as raised:
                endpoints["tallier:0"].step(body)
            texts.append(str(raised.value))
        assert texts[0] == texts[1]


def test_an_abort_in_the_process_is_an_abort_here() -> None:
    """Too few parties: the coordinator would not ask, but one that does gets the talliers' own words."""
    protocol = vote()
    coordinator = protocol.coordinator()
    with separate(protocol) as helpers:
        waiting = deque(coordinator.settle())
        endpoints: dict[str, Endpoint] = {**helpers, COORDINATOR: coordinator}
        while waiting:
            envelope = waiting.popleft()
            waiting.extend(endpoints[envelope.to].step(envelope.body))
        coordinator.state.counting = bytes(1)
        for _ in range(2):
            with pytest.raises(Aborted, match="only 0 of 5 parties are left") as raised:
                helpers["tallier:0"].step(coordinator.finish()[0].body)
            assert raised.value.blamed == (COORDINATOR,)


@pytest.mark.long
def test_no_process_is_left_when_the_engine_fails() -> None:
    children: list[int] = []

    def fail() -> None:
        with separate(vote()) as helpers:
            children.extend(pids(helpers).values())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert len(children) == 3
    assert_gone(children, within=0.0)


@pytest.fixture
def broken_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a script take Python's place in new processes."""

    def put(script: str) -> None:
        broken = tmp_path / "python"
        broken.write_text(f"#!/bin/sh\n{script}\n")
        broken.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(broken))

    return put


def test_a_process_that_cannot_begin_is_named(broken_python: Callable[[str], None]) -> None:
    broken_python("exit 7")
    with pytest.raises(Aborted, match=r"^tallier:0 died .exit code 7.; nothing was revealed$"), separate(vote()):
        pass


def test_a_process_that_does_not_begin_is_named(
    broken_python: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_python("exec sleep 60")
    monkeypatch.setattr(processes, "_STARTING", 0.3)
    with pytest.raises(Aborted, match=r"^tallier:0 did not answer within 0.3 s"), separate(vote()):
        pass


def test_an_answer_that_is_larger_than_any_is_not_read(broken_python: Callable[[str], None]) -> None:
    """Four gigabytes are announced; none of them is set aside."""
    broken_python("printf '\\377\\377\\377\\377' >&0\nexec sleep 60")
    with pytest.raises(Aborted, match=r"^tallier:0 answered with 4,294,967,295 bytes where"), separate(vote()):
        pass


PARENT = """
import signal, sys, time
from unspoken.engines.processes import tallier_processes
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Session, VoteShape
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.summation.tally import Options, Tally

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
session = Session("digest", "labels", 5, 0, 3, 160, 64, vote=VoteShape(40, 4, 2**40))
vote = SimulatedEndpoints(Tally(session, Options()), SecretStream())
with tallier_processes(vote.protocol, vote.keys) as helpers:
    helpers["tallier:0"].step(b"")
    print(*(helper.pid for helper in helpers.values()), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_parent_leaves_no_children(how: signal.Signals, runs: Callable[[int, int], int]) -> None:
    if how != signal.SIGKILL and not runs(0, 1):
        pytest.skip("one that is killed can do least about its children; runs with --soak")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 3
        assert all(map(is_alive, children))
        parent.send_signal(how)
        parent.wait(SLACK)
    assert_gone(children)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_no_secret_is_on_a_command_line_or_in_an_environment(
    standing: tuple[SimulatedEndpoints[Tally], dict[str, Endpoint]],
) -> None:
    protocol, helpers = standing
    for pid in pids(helpers).values():
        seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert b"unspoken.engines.processes" in seen
        for index in range(len(helpers)):
            for secret in (protocol.keys.helper(index).secret, protocol.keys.helper_root(index)):
                assert secret not in seen
                assert secret.hex().encode() not in seen


def test_the_state_of_a_tallier_stays_in_its_process(
    standing: tuple[SimulatedEndpoints[Tally], dict[str, Endpoint]],
) -> None:
    for helper in standing[1].values():
        with pytest.raises(TypeError, match="stays in its process"):
            helper.dump()
        with pytest.raises(TypeError, match="stays in its process"):
            helper.load(b"")


def test_a_tallier_loads_no_more_than_it_needs() -> None:
    heavy = {
        "numba",
        "pandas",
        "pyarrow",
        "pydantic",
        "rich",
        "scipy",
        "sklearn",
        "torch",
        "typer",
        "unspoken.summation.tally",
    }
    program = f"import sys, unspoken.engines.processes; print({heavy!r} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"
