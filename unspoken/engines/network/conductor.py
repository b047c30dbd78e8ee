"""The coordinator of a study whose participants are on other machines: it waits for them, and closes stages when all
have answered or time is up. Subclasses say how messages travel: `network.server` and `flower.server`.

A stage has a deadline. Whoever has not answered by then counts as dropped in this attempt, and may come back for the
next one. Talliers count a vote in one stage with many messages to each other, so the deadline moves on with each of
them, though not for ever: to as many times the stage's seconds as messages are planned. Messages of parties do not move
it: the deadline is shown to everyone, and when a party answers may depend on its records.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.frames import PIECE_BYTES, Ending, Signatures, packed
from unspoken.engines.network.link import Arrived
from unspoken.engines.network.relay import Relay, some_of
from unspoken.engines.network.restraint import Restraint
from unspoken.engines.network.status import Watch, duration
from unspoken.engines.signing import canonical
from unspoken.errors import UnspokenError
from unspoken.roles.attempts import given_up
from unspoken.roles.coordinator import Coordinator
from unspoken.summation.base import Aborted, Rejected, Roster, address_of
from unspoken.summation.keys import Identity

FAREWELL_SECONDS = 10.0
"""How long to wait for someone who is there and takes nothing of the result, or does not sign"""
LEAVING = {
    "ledger": "its ledger does not allow more",
    "disk": "it could not keep its state",
    "plan": "it plans the study otherwise, so it has another version of something",
}
"""Why a participant takes part no more, in words"""


class Present(Protocol):
    """The way to someone who is there."""

    wake: asyncio.Event
    """Set when there is something to send"""

    def put(self, frame: Any) -> None:
        """Send something besides messages."""


Way = TypeVar("Way", bound=Present)


class Conductor(Generic[Way]):
    """Drives one study from the coordinator's side."""

    engine: ClassVar[str]
    """The engine, in words for the certificate"""
    farewell_seconds: ClassVar[float] = FAREWELL_SECONDS

    def __init__(
        self, coordinator: Coordinator, identity: Identity, roster: Roster, deadlines: Deadlines, events: Events
    ) -> None:
        self._identity, self._roster, self._deadlines = identity, roster, deadlines
        self._events = events
        self._study, self._helpers = coordinator.plan.study.digest(), list(coordinator.plan.helper_addresses)
        addresses = [address_of(party) for party in range(len(roster.parties))] + self._helpers
        self.relay = Relay(coordinator, addresses)
        self.watch = Watch(coordinator, roster, lambda: self.relay.bytes)
        plan = canonical(coordinator.plan.compared())
        self._plan = plan if len(plan) <= PIECE_BYTES else b""
        """Shown to everyone who signs in"""
        self._open: dict[str, Way] = {}
        """The connections to those who are there, by address"""
        self._gone: dict[str, float] = {}
        """When each participant that was there left, by address"""
        self._moved = asyncio.Event()
        self._failed: UnspokenError | None = None
        """What ended the attempt, or if it is no `Aborted`, the run"""
        self.signatures = coordinator.log.signatures
        """The certificate's signatures by participants, or nothing for those that decline"""
        self._until, self._since = 0.0, time.monotonic()
        self._tell = Restraint(lambda line: self._events.told(line))
        """For lines that others cause"""
        self._helped = self._since
        """When a helper's message was taken the last time"""
        self._lock = asyncio.Lock()
        """The relay does one thing at a time. What may take long runs in a thread, so that the event loop can answer
        pings"""

    async def run(self) -> None:
        """Wait for everyone, then drive the study to its end. `Aborted` if it ends without a release."""
        await self._gather()
        async with self._lock:
            self._woken(await asyncio.to_thread(self.relay.start))
        while self.relay.coordinator.stage != "done":
            await self._stage()
            await self._close_stage()
        await self._flush()

    async def _gather(self) -> None:
        """Wait until everyone is there; when time is up, go on if as many are there as the plan needs."""
        coordinator, deadline = self.relay.coordinator, time.monotonic() + self._deadlines.join_seconds
        # Those who were there when an earlier process was stopped come back soon, or are gone.
        soon = time.monotonic() + self._deadlines.grace_seconds if coordinator.has_begun else deadline
        while time.monotonic() < deadline:
            if not self._awaited() or (self._is_enough() and time.monotonic() >= soon):
                return
            self._news("waiting", deadline)
            await self._wait(deadline if time.monotonic() >= soon else soon)
        if not self._is_enough():
            raise self._too_few(self._deadlines.join_seconds)

    def _is_enough(self, hoped_for: Collection[str] = ()) -> bool:
        """Whether as many are there, or hoped for, as the plan needs; a study that has its result needs nobody."""
        coordinator, (parties, helpers) = self.relay.coordinator, _counted({*self._open, *hoped_for})
        least = coordinator.plan.trust.least_survivors
        return coordinator.is_over or (parties >= least and helpers == len(self._helpers))

    def _too_few(self, seconds: float) -> Aborted:
        """The end of a study that cannot begin, or go on, after so long a wait, and what it has cost."""
        coordinator, (parties, helpers) = self.relay.coordinator, _counted(self._open)
        there = f"{parties} of {len(self.relay.peers) - len(self._helpers)} parties"
        needed = f"{coordinator.plan.trust.least_survivors} parties"
        if self._helpers:
            there, needed = f"{there} and {helpers} of {len(self._helpers)} helpers", f"{needed} and all helpers"
        ended = Aborted(
            f"{there} are there after {duration(seconds)}, where {needed} are needed (not there: "
            f"{some_of(sorted(self._awaited()))})"
        )
        return given_up(coordinator.plan, coordinator.totals.participation, coordinator.attempts, ended)

    def _awaited(self) -> set[str]:
        """Who is not there, and has not said its last word either."""
        return self.relay.peers.keys() - self._open.keys() - self.signatures.keys()

    async def _stage(self) -> None:
        """Wait until the stage is complete, the attempt has failed, or time is up."""
        coordinator, began = self.relay.coordinator, time.monotonic()
        while await self._is_worth_waiting() and time.monotonic() < self._deadline(began):
            self._news(coordinator.stage, self._deadline(began))
            await self._wait(self._deadline(began))

    async def _close_stage(self) -> None:
        """Go on with those who are there; if they are too few, or a message has ended the attempt, with another one.

        The end of an attempt is dealt with here before the next one begins, and is never taken for the next one's.
        """
        async with self._lock:
            ended, self._failed = self._failed, None
            if ended is None:
                self.watch.closes()
                try:
                    self._woken(await asyncio.to_thread(self.relay.close_stage))
                except Aborted as too_few:
                    ended = too_few
            if ended is not None:
                await asyncio.to_thread(self._fail, ended)
        if ended is not None:
            self._events.told(f"this attempt has ended, and another is to be made: {ended}")
            await self._gather_again()
            async with self._lock:
                self._woken(await asyncio.to_thread(self.relay.again))

    def _fail(self, ended: UnspokenError) -> None:
        if not isinstance(ended, Aborted):
            raise ended
        self.relay.fail(ended)

    async def _gather_again(self) -> None:
        """Wait until as many are there as the plan needs: without them, another attempt would be spent for nothing.
        Who has said that it leaves is not waited for."""
        began = time.monotonic()
        deadline = began + self._deadlines.stage_seconds
        while not self._is_enough():
            coming = {address for address in self._awaited() if self._gone.get(address) != -math.inf}
            if time.monotonic() >= deadline or not self._is_enough(coming):
                async with self._lock:
                    await asyncio.to_thread(self.relay.give_up)
                raise self._too_few(time.monotonic() - began)
            self._news("waiting", deadline)
            await self._wait(deadline)

    def _deadline(self, began: float) -> float:
        """Until when a stage is waited for that has begun at a time."""
        latest = began + self.relay.coordinator.chain * self._deadlines.stage_seconds
        return min(max(began, self._helped) + self._deadlines.stage_seconds, latest)

    async def _is_worth_waiting(self) -> bool:
        """Whether the attempt goes on, and an answer is missing from someone who is connected or may come back in time.

        While a message is taken in, its sender is no longer missing, and those that it wakes are not yet.
        """
        async with self._lock:
            missing = self.relay.coordinator.missing
        last = time.monotonic() - self._deadlines.grace_seconds
        return self._failed is None and any(self._gone.get(address, last + 1) > last for address in missing)

    async def _wait(self, deadline: float) -> None:
        """Until something has moved since the last time, for a second at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._moved.wait(), max(0.0, min(1.0, deadline - time.monotonic())))
        self._moved.clear()

    def _news(self, stage: str, deadline: float) -> None:
        """Tell people at all sides, no more than once a second."""
        self.watch.waits(stage, deadline)
        now = time.monotonic()
        if now < self._until:
            return
        self._until = now + 1.0
        news = self.watch.news(self._open)
        self._events.news(news)
        for connection in self._open.values():
            connection.put(news)

    def _woken(self, addresses: set[str]) -> None:
        for address in addresses & self._open.keys():
            self._open[address].wake.set()

    async def _flush(self) -> None:
        """Wait until those who are there have got what is for them."""
        deadline = time.monotonic() + min(self.farewell_seconds, self._deadlines.stage_seconds)
        while time.monotonic() < deadline:
            if all(self.relay.peers[address].link.is_empty for address in self._open):
                return
            await self._wait(deadline)

    async def finish(self, ending: Ending, signed: Callable[[], Signatures] | None = None) -> None:
        """Give everyone the result, or the reason why there is none, and collect their signatures. `signed` makes these
        into the last message to everyone.

        Participants that left a moment ago may come back for it. Helpers get no model.
        """
        self.relay.coordinator.log.end(ending.certificate, ending.reason)
        self.watch.ended(ending.reason)
        self._events.news(self.watch.news(self._open))
        whole, short = packed(ending), packed(Ending(ending.certificate, ending.reason, ending.signature))
        for address, peer in self.relay.peers.items():
            peer.end(whole if address.startswith("party:") else short)
        self._woken(set(self._open))
        await self._farewell(lambda address: address not in self.signatures)
        if signed is not None:
            body = packed(signed())
            for peer in self.relay.peers.values():
                peer.end(body)
            self._woken(set(self._open))
            await self._farewell(lambda address: not self.relay.peers[address].link.is_empty)

    async def _farewell(self, lacks: Callable[[str], bool]) -> None:
        """Wait for those who lack something, as long as they are there and it moves, or may come back."""
        latest, quiet, left = time.monotonic() + self._deadlines.stage_seconds, 0.0, -1
        # Those who were there when an earlier process was stopped come back soon, or are gone.
        unseen = self._since if self.relay.coordinator.has_begun else -math.inf
        while (now := time.monotonic()) < latest:
            waiting = {address for address in self.relay.peers if lacks(address)}
            there, away = waiting & self._open.keys(), waiting - self._open.keys()
            still = sum(self.relay.peers[address].left for address in there)
            if still != left:
                quiet, left = now + min(self.farewell_seconds, self._deadlines.stage_seconds), still
            back = any(self._gone.get(address, unseen) > now - self._deadlines.grace_seconds for address in away)
            if not back and (not there or now > quiet):
                return
            self._news("giving out the result", latest)
            await self._wait(latest)

    async def _message(self, address: str, arrived: Arrived) -> None:
        try:
            async with self._lock:
                self._woken(await asyncio.to_thread(self.relay.arrived, address, arrived))
            if address in self._helpers:
                self._helped = time.monotonic()
            self._moved.set()
        except Rejected as reason:
            self._tell(address, f"a message of {address} is ignored: {reason}")
        except UnspokenError as ended:
            self._failed = ended
            self._moved.set()


def _counted(addresses: Collection[str]) -> tuple[int, int]:
    """How many of these are parties, and how many are helpers."""
    parties = sum(address.startswith("party:") for address in addresses)
    return parties, len(addresses) - parties
