"""The coordinator's side of a study across machines."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from unspoken.engines.network.cards import find_identity
from unspoken.engines.network.conductor import Conductor
from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.door import Door
from unspoken.engines.network.frames import Ending, Signatures
from unspoken.engines.network.loading import warm_up
from unspoken.engines.network.server import STRANGERS, Server
from unspoken.engines.network.status import names_of, with_names
from unspoken.engines.network.window import Viewers
from unspoken.engines.outcome import Outcome
from unspoken.engines.signing import Signature, canonical, sign, valid
from unspoken.errors import UnspokenError
from unspoken.methods.base import Method
from unspoken.methods.planning import Plan
from unspoken.methods.registry import method_for
from unspoken.report.certificate import certificate
from unspoken.report.countersigning import largest_file, received
from unspoken.report.endings import Served
from unspoken.report.results import ResultFile
from unspoken.roles.attempts import EARLIEST
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.coordinator_log import Ended
from unspoken.sites.states import check_apart, check_helpers, has_state, store_of
from unspoken.study import Study
from unspoken.summation.addresses import is_party
from unspoken.summation.base import COORDINATOR, Aborted, Roster
from unspoken.summation.keys import Identity


@dataclass(frozen=True)
class Entrance:
    """Where parties join and others look."""

    host: str = "0.0.0.0"  # noqa: S104 (parties are elsewhere)
    port: int = 8765
    """0: any port that is free"""
    encrypted: bool = True
    """Without encryption it is only for a proxy on this machine that ends TLS."""
    viewers: Viewers | None = None
    """Who may look at the live page: "here" (this machine), "anyone" or "nobody"; None: as is right with or without
    TLS"""


_USUAL = Entrance()


def serve(
    study: Study,
    entrance: Entrance = _USUAL,
    *,
    key: Path | None = None,
    deadlines: Deadlines | None = None,
    events: Events | None = None,
) -> Served:
    """Coordinate a study.

    If it was stopped in the middle, it goes on; if the study has ended, there is nothing left to do.
    """
    events = events or Events()
    ready = _checked(study, key, events)
    with _door(ready, entrance) as door, _opened(ready) as coordinator:
        server = Server(coordinator, ready.identity, ready.roster, deadlines or Deadlines(), events)
        if coordinator.log.closed:
            return served_before(server, ready.roster, ready.identity)
        if coordinator.has_begun:
            events.told(_resumed(coordinator))
        return asyncio.run(_serve(server, ready, entrance, door, events))


def _resumed(coordinator: Coordinator) -> str:
    """How far a study had come when its coordinator was stopped, for people."""
    made = sum(map(len, coordinator.totals.participation.values()))
    planned = sum(each.count for each in coordinator.plan.sums)
    failed = sum(coordinator.attempts.failed.values())
    spent = f", and {failed:,} more attempt{'' if failed == 1 else 's'} spent" if failed else ""
    return f"this study was begun before, and goes on: {made:,} of {planned:,} totals are made{spent}"


@contextmanager
def coordinator_of(study: Study, key: Path | None, events: Events) -> Iterator[tuple[Coordinator, Identity, Roster]]:
    """The study's coordinator, in the state of its store."""
    ready = _checked(study, key, events)
    with _opened(ready) as coordinator:
        yield coordinator, ready.identity, ready.roster


class _Ready(NamedTuple):
    """A coordinator that can begin, or go on. Nothing is stored yet."""

    method: Method
    plan: Plan
    roster: Roster
    identity: Identity
    file: Path
    """Its secret"""

    @property
    def has_state(self) -> bool:
        return has_state(self.plan.study, _STATE, self.file)


_STATE = "coordinator"
"""The name of the coordinator's state"""


def _checked(study: Study, key: Path | None, events: Events) -> _Ready:
    roster = Roster.of(study)
    file, identity = find_identity(study, {roster.coordinator.hex()}, key)
    method = method_for(study)
    plan = method.agreed_plan
    check_apart(plan)
    events.planned(plan)
    check_helpers(study, plan, roster)
    method.directions  # noqa: B018 (a file that is missing is noticed before anyone is asked)
    ready = _Ready(method, plan, roster, identity, file)
    if not ready.has_state:
        method.check_coordinator()
    return ready


@contextmanager
def _door(ready: _Ready, entrance: Entrance) -> Iterator[Door | None]:
    """The port of a study that has not begun: if it cannot be opened, nothing is stored. A study that has begun may
    have ended, and needs no port then."""
    if ready.has_state:
        yield None
        return
    with closing(Door(entrance.host, entrance.port, STRANGERS)) as door:
        yield door


@contextmanager
def _opened(ready: _Ready) -> Iterator[Coordinator]:
    """The coordinator in the state of its store, which begins with this if there is none."""
    if not ready.has_state:
        _check_clock()
    with closing(store_of(ready.plan.study, _STATE, ready.identity, ready.file)) as store:
        coordinator = Coordinator(ready.method, ready.identity, ready.roster, plan=ready.plan, store=store)
        if not coordinator.has_begun:
            _check_clock()
        yield coordinator


def _check_clock() -> None:
    if datetime.now(UTC) < EARLIEST:
        raise UnspokenError(
            f"this machine's clock says {datetime.now(UTC):%Y-%m-%d}, when no study can have begun; set it right, or "
            "no party will sign the certificate."
        )


def served_before(server: Conductor[Any], roster: Roster, identity: Identity) -> Served:
    """A study that has ended, as it ended."""
    ended = server.relay.coordinator.log.ended
    if ended is None or not ended.certificate:
        raise Aborted(f"this study has ended before, without a result: {ended.reason if ended else ''}")
    signatures = _signatures(server, roster, sign(identity, ended.certificate), ended.certificate)
    # The log has what was moved before the last total, the certificate all of it.
    moved = int(json.loads(ended.certificate)["happened"]["bytes"])
    outcome = replace(_outcome(server, server.relay.coordinator, 0.0), bytes=moved)
    return _served(server, outcome, ended, signatures, is_old=True)


def _served(
    server: Conductor[Any], outcome: Outcome, ended: Ended, signatures: list[Signature], *, is_old: bool
) -> Served:
    coordinator = server.relay.coordinator
    plan, blame = coordinator.plan, (dict(coordinator.blamed), coordinator.evidence)
    file = received(plan.study, ended.certificate, ended.name, ended.file)
    return Served(plan, outcome, file, json.loads(ended.certificate), signatures, is_old, *blame)


async def _serve(server: Server, ready: _Ready, entrance: Entrance, door: Door | None, events: Events) -> Served:
    open_port = await server.listen(
        entrance.host, entrance.port, encrypted=entrance.encrypted, viewers=entrance.viewers, door=door
    )
    try:
        events.listening(open_port.sockets[0].getsockname()[1])
        return await conducted(server, ready.identity, ready.roster)
    finally:
        open_port.close()
        await open_port.wait_closed()


async def conducted(server: Conductor[Any], identity: Identity, roster: Roster) -> Served:
    """Drive the study to its end, whatever carries its messages."""
    started, coordinator = time.perf_counter(), server.relay.coordinator
    # Done now, while people join, so that they need not wait for it at the end.
    loading = asyncio.create_task(asyncio.to_thread(warm_up, coordinator.plan, writes=True))
    try:
        await server.run()
    except Aborted as ended:
        ended.args = (with_names(str(ended), names_of(coordinator, roster)),)
        ended_so = coordinator.log.end(b"", str(ended))
        await server.finish(Ending(reason=ended_so.reason))
        coordinator.log.close()
        raise
    outcome = _outcome(server, coordinator, time.perf_counter() - started)
    await loading
    served = await _finish(server, outcome, identity, roster)
    coordinator.log.close()
    return served


def _outcome(server: Conductor[Any], coordinator: Coordinator, seconds: float) -> Outcome:
    relay = server.relay
    moved = relay.bytes, max(peer.sent for address, peer in relay.peers.items() if is_party(address))
    began = datetime.fromtimestamp(coordinator.log.began or time.time(), UTC)
    return Outcome.of(coordinator, server.engine, began, seconds, moved, simulated=False)


async def _finish(server: Conductor[Any], outcome: Outcome, identity: Identity, roster: Roster) -> Served:
    """Give the result to everyone, and have it signed. If the log has a result already, that one counts, because some
    participants may have seen it."""
    coordinator = server.relay.coordinator
    plan = coordinator.plan
    # Off the event loop, which goes on to answer pings: a large model takes its time.
    file = await asyncio.to_thread(ResultFile.of, outcome.release, plan.study)
    content = canonical(certificate(plan, outcome, file))
    ended = coordinator.log.end(content, name=file.name, file=file.content)
    mine = sign(identity, ended.certificate)
    is_sent = len(ended.file) <= largest_file(plan)
    ending = Ending(ended.certificate, "", mine, *((ended.name, ended.file) if is_sent else ()))

    def signatures() -> list[Signature]:
        return _signatures(server, roster, mine, ended.certificate)

    def all_of_them() -> Signatures:
        return Signatures({each.address: bytes.fromhex(each.signature) for each in signatures()})

    await server.finish(ending, all_of_them)
    return _served(server, outcome, ended, signatures(), is_old=False)


def _signatures(server: Conductor[Any], roster: Roster, mine: bytes, content: bytes) -> list[Signature]:
    """The coordinator's signature, and those of all who agree."""
    return valid(roster, content, {**server.signatures, COORDINATOR: mine})
