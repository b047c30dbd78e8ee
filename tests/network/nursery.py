"""A process that starts others: it has imported everything, so that a program begins in a hundredth of a second.

Reads one JSON object a line from standard input, and answers each by one. What it starts are processes of their own
that run the command line; before that, each arms its fault and writes down what the checks need to know.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import skops.io  # noqa: F401 (imported once, for all)
import typer

from network.bad_lines import WorseLine
from unspoken.cli import app
from unspoken.cli.ledger import ledger_for
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import actors
from unspoken.engines.network.client import Client
from unspoken.engines.network.link import Link
from unspoken.engines.network.loading import warm_up
from unspoken.engines.network.relay import Relay
from unspoken.methods.base import Method, PartyRequest
from unspoken.methods.planning import Plan
from unspoken.methods.registry import method_for, plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report import results, terminal  # noqa: F401
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.coordinator_log import CoordinatorLog
from unspoken.roles.file_store import FileStore
from unspoken.roles.helper import Helper
from unspoken.roles.messages import Carried, request_of, unpacked
from unspoken.roles.party import Party
from unspoken.study import read_study

POINTS: dict[str, Any] = {
    "FileStore.sync": (FileStore, "sync"),
    "FileStore.replace": (FileStore, "replace"),
    "Relay.arrived": (Relay, "arrived"),
    "Relay.close_stage": (Relay, "close_stage"),
    "CoordinatorLog.end": (CoordinatorLog, "end"),
    "CoordinatorLog.sign": (CoordinatorLog, "sign"),
    "CoordinatorLog.close": (CoordinatorLog, "close"),
    "results.write": (results, "write"),
    "Party.receive": (Party, "receive"),
    "Helper.receive": (Helper, "receive"),
    "Ledger.charge": (Ledger, "charge"),
    "Link.put": (Link, "put"),
    "Client.signs": (Client, "_checked" if hasattr(Client, "_checked") else "_countersigned"),
}


def around(point: str, before: Callable[..., None], after: Callable[..., None]) -> None:
    """Have something happen at each call of a function, with its arguments."""
    owner, name = POINTS.get(point) or (Coordinator, point)
    original = getattr(owner, name)

    def wrapped(*given: Any, **named: Any) -> Any:
        before(*given)
        result = original(*given, **named)
        after(*given)
        return result

    setattr(owner, name, wrapped)


def nothing(*given: Any) -> None:
    pass


def arm(fault: dict[str, Any], command: dict[str, Any]) -> None:
    """Have the fault happen at its time."""
    seen = 0

    def strike() -> None:
        match fault["does"]:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "disk":
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            case "limit":
                data = Path(command["data"])
                ledger_for(None, None, [data], otherwise=data.stem).set_limit(1e-6, 1e-6)

    def count(*given: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == fault["count"]:
            strike()

    around(fault["point"], *((count, nothing) if fault["before"] else (nothing, count)))


def watch(tell: Callable[[dict[str, Any]], None]) -> None:
    """Write down attempts, totals, and vectors that leave and arrive."""
    parties: list[Party] = []

    def leaving(link: Link, to: str, body: bytes) -> None:
        party = parties[0] if parties else None
        if party is None or not party.has_sent or party._state.current is None:
            return
        if isinstance(request_of(party._state.current.ask), PartyRequest):
            message: Any = unpacked(body, Carried, len(body))
            tell({"vector": bytes(message.attempt).hex()})

    def arriving(relay: Relay, sender: str, arrived: Any) -> None:
        coordinator = relay.coordinator
        # What is rejected does not come to this: a message of the setup that is late.
        with suppress(Exception):
            message: Any = unpacked(arrived.body, Carried, len(arrived.body))
            asked = isinstance(coordinator.request, PartyRequest) and coordinator.stage == "vectors"
            if asked and sender.startswith("party:") and message.attempt == coordinator.attempt:
                tell({"arrived": bytes(message.attempt).hex(), "from": sender})

    around("Party.receive", lambda party, *_: parties.append(party), nothing)
    around("Link.put", leaving, nothing)
    around("Relay.arrived", nothing, arriving)
    around("_opened", nothing, lambda coordinator, *_: tell({"opened": coordinator.attempt.hex()}))
    around("_answered", lambda coordinator, *_: total(coordinator), nothing)

    def total(coordinator: Coordinator) -> None:
        if coordinator._stages is not None:
            survivors = [there.sent for turns in coordinator.totals.participation.values() for there in turns]
            tell({"total": coordinator.attempt.hex(), "fewest": min(survivors, default=None)})


def child(command: dict[str, Any]) -> int:
    """The command line, with its output and what it tells in pipes that outlive it."""
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(command[name], os.O_WRONLY), number)
    sys.stdout, sys.stderr = (open(number, "w", 1, "utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    telling = os.open(command["tells"], os.O_WRONLY)
    os.environ["UNSPOKEN_HOME"] = command["home"]
    os.chdir(command["folder"])
    sys.stdin = open(os.devnull)  # noqa: SIM115
    if fault := command.get("fault"):
        arm(fault, command)
    watch(lambda said: os.write(telling, json.dumps(said).encode() + b"\n") and None)
    try:
        COMMANDS(command["arguments"], prog_name="unspoken")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def line(command: dict[str, Any]) -> int:
    """A bad line in front of the coordinator."""

    async def play() -> None:
        bad = WorseLine(command["seed"])
        await bad.start(command["to"], command["port"])
        await asyncio.sleep(600.0)

    asyncio.run(play())
    return 0


def start(command: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        status = line(command) if "to" in command else child(command)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def poll(pid: int) -> list[Any]:
    """Whether a process runs, has stopped, or how it ended."""
    found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    if not found:
        return ["runs", 0]
    if os.WIFSTOPPED(status):
        return ["stopped", 0]
    return ["ended", os.waitstatus_to_exitcode(status)]


def warm(path: Path) -> None:
    """Make the plan of a study once, for all processes that begin later; and load what sums are compiled to."""
    study = read_study(path)
    if study.method.name == "cross-silo":
        import torch  # noqa: F401
    PLANS[study.digest()] = plan = plan_for(study)
    warm_up(plan)
    if study.summation.protocol == "secagg+" and study.method.name == "helmet":
        count, parties = study.parties.records, study.parties.count
        records = Records(np.zeros((count * parties, study.data.features or 0)), np.arange(count * parties) % 2)
        federation = ArrayFederation(study, records, np.repeat(np.arange(parties), count))
        actors.run(method_for(study), plan, federation)


def plan_once() -> None:
    """Let the methods of this process, and of those that it starts, use the plans that were made to warm it."""
    own: Any = Method.__dict__["agreed_plan"]

    def planned(method: Method) -> Plan:
        return PLANS.get(method.study.digest()) or own.func(method)

    Method.agreed_plan = property(planned)  # type: ignore[assignment]


COMMANDS = typer.main.get_command(app)
PLANS: dict[str, Plan] = {}


def main() -> None:
    plan_once()
    for content in sys.stdin:
        said = json.loads(content)
        answer: Any = None
        if "warm" in said:
            warm(Path(said["warm"]))
        elif "start" in said:
            answer = start(said["start"])
        elif "usage" in said:
            answer = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        else:
            answer = poll(said["poll"])
        print(json.dumps(answer), flush=True)
    os._exit(0)  # To tear down all that was imported takes seconds, and nobody needs it.


if __name__ == "__main__":
    main()
