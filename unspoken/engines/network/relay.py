"""The coordinator's side of a study on a network, without sockets and clocks: what is for whom, and when a stage ends.

Every participant has an outbox with all that was sent to it since its last answer. A participant whose process was
restarted gets all of that again, which is what roles expect after a crash (`roles.role`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from unspoken.engines.network.frames import ENDING, Done, Got, Piece
from unspoken.engines.network.link import Arrived, Link
from unspoken.engines.network.sign_in import PROCESS_BYTES
from unspoken.roles.coordinator import Coordinator
from unspoken.roles.messages import is_carried, is_over
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected

MOST_PASSED = 8
"""The most messages from one participant that may wait for another. Honest ones send one, and repeat it after a
crash"""
_NAMED = 5
"""The most participants that a reason names"""


@dataclass
class _Kept:
    sender: str
    body: bytes
    number: int
    begins: bool = False
    """Whether it begins or ends an attempt"""


@dataclass
class Peer:
    """A participant as the coordinator knows it.

    Connections use it in the event loop while the relay puts messages from another thread, so each method is done
    before another one begins.
    """

    address: str
    link: Link
    process: bytes = b""
    """The participant's process that the link belongs to"""
    kept: list[_Kept] = field(default_factory=list)
    """What was sent since the participant's last answer"""
    sent: int = 0
    """Bytes of messages that came from it"""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, sender: str, body: bytes) -> None:
        """Queue a message.

        When the next attempt begins, messages of attempts of which the participant has received nothing are dropped;
        otherwise it would send a vector in vain. Of an attempt that it has begun it gets the rest, which it may need
        (for example the end of a list of tokens), unless it was to hear that this attempt is over.
        """
        begins = not is_carried(body)
        with self._lock:
            if begins:
                self._drop_unheard()
            self.kept.append(_Kept(sender, body, self.link.put(sender, body), begins))

    def _drop_unheard(self) -> None:
        for kept in self.kept:
            if kept.begins and self.link.is_waiting(kept.number):
                first = 0 if is_over(kept.body) else kept.number
                self.kept = [each for each in self.kept if each.number < first]
                self.link.drop(first)
                return

    def next_piece(self) -> Piece | None:
        """What to send now; None: nothing for the time being."""
        with self._lock:
            return next(self.link.pieces(), None)

    def acknowledge(self, got: Got) -> None:
        """The participant has so much of a message. `Rejected` if it cannot have."""
        with self._lock:
            self.link.acknowledge(got)

    @property
    def left(self) -> int:
        """The number of bytes that are for the participant and have not arrived."""
        with self._lock:
            return self.link.left

    def waiting_of(self, sender: str) -> int:
        """The number of a sender's messages that the participant has not answered."""
        return sum(kept.sender == sender for kept in self.kept)

    def end(self, body: bytes) -> None:
        """Queue what is said when the study is over. It is kept: a process that has begun again gets it again."""
        with self._lock:
            self.kept.append(_Kept(ENDING, body, self.link.put(ENDING, body)))

    def begin(self, process: bytes, expects: tuple[int, int], largest: Callable[[], int]) -> None:
        """A connection begins: go on where it was cut, or begin again with a process that has not been here."""
        with self._lock:
            if process == self.process:
                self.link.resume(expects)
                return
            self.process, self.link = process, Link(largest)
            for kept in self.kept:
                kept.number = self.link.put(kept.sender, kept.body)

    def done(self, done: Done) -> None:
        """The participant needs nothing again that came before its last answer."""
        with self._lock:
            self.kept = [kept for kept in self.kept if kept.number > done.answered]


class Relay:
    """Everyone's outbox, and the coordinator in the middle."""

    def __init__(self, coordinator: Coordinator, addresses: list[str]) -> None:
        self.coordinator = coordinator
        self.process = os.urandom(PROCESS_BYTES)
        """Tells participants that the coordinator has begun again"""
        before = coordinator.log.traffic_before
        self.peers = {address: Peer(address, Link(self.largest), sent=before.get(address, 0)) for address in addresses}
        self.bytes = before.get("", 0)
        coordinator.log.traffic = self._traffic
        self._attempt, self._silent = b"", set[str]()
        """Who has not answered in a stage of the attempt under way when it was closed"""

    def _traffic(self) -> dict[str, int]:
        return {"": self.bytes} | {address: peer.sent for address, peer in self.peers.items()}

    def largest(self) -> int:
        """The largest message that anyone may send now."""
        return self.coordinator.largest

    def begin(self, address: str, process: bytes, expects: tuple[int, int]) -> tuple[int, int]:
        """A participant has proved who it is; where it is to go on."""
        peer = self.peers[address]
        peer.begin(process, expects, self.largest)
        return peer.link.expects

    def send(self, envelopes: list[Envelope], sender: str = COORDINATOR) -> set[str]:
        """Hand on messages; who has something to get now."""
        waiting, touched = list(envelopes), set[str]()
        for to, body in waiting:
            if to == COORDINATOR:
                touched |= self.send(self.coordinator.receive(body, sender))
            elif to in self.peers:
                if sender != COORDINATOR:
                    self._check_passed(sender, to, body)
                self.bytes += len(body)
                self.peers[to].put(sender, body)
                touched.add(to)
                if sender != COORDINATOR:
                    self.coordinator.passed(sender, to, body)
            else:
                raise Rejected(f"a message came for {to}, which does not take part")
        return touched

    def _check_passed(self, sender: str, to: str, body: bytes) -> None:
        """Reject messages between participants that no protocol has: a party never writes to a party, and only the
        coordinator begins and ends attempts."""
        if sender.startswith("party:") and to.startswith("party:"):
            raise Rejected(f"a message came for {to}, to which no party speaks")
        if not is_carried(body):
            raise Rejected(f"a message came for {to} that only the coordinator may send")
        if self.peers[to].waiting_of(sender) >= MOST_PASSED:
            raise Rejected(f"{MOST_PASSED} messages for {to} wait already")

    def arrived(self, sender: str, arrived: Arrived) -> set[str]:
        """A message came; who has something to get now."""
        self.peers[sender].sent += len(arrived.body)
        if arrived.peer == COORDINATOR:
            self.bytes += len(arrived.body)
        return self.send([Envelope(arrived.peer, arrived.body)], sender)

    def start(self) -> set[str]:
        """Begin, or go on where an earlier process was stopped; raises what ended the study if it cannot go on."""
        try:
            return self.send(self.coordinator.start())
        except Aborted:
            self.give_up()
            raise

    def close_stage(self) -> set[str]:
        """Go on with those who are there; `Aborted` if they are too few."""
        if self._attempt != self.coordinator.attempt:
            self._attempt, self._silent = self.coordinator.attempt, set()
        self._silent |= self.coordinator.missing
        try:
            return self.send(self.coordinator.close_stage())
        except Aborted as ended:
            raise _naming(sorted(self._silent), ended) from None

    def fail(self, ended: Aborted) -> None:
        """End an attempt; raises what ended it if there is no other one, after everyone is told."""
        try:
            self.coordinator.fail(ended)
        except Aborted:
            self.give_up()
            raise

    def again(self) -> set[str]:
        """Another attempt after one that has failed."""
        return self.send(self.coordinator.again())

    def give_up(self) -> None:
        """Tell everyone that the study is over."""
        self.send(self.coordinator.end())


def _naming(missing: list[str], ended: Aborted) -> Aborted:
    """What ended an attempt, with the names of some who had not answered in time."""
    if not missing or ended.blamed:
        return ended
    told = f"{str(ended).rstrip('.')} (no answer came from {some_of(missing)})"
    return Aborted(told, ended.faults or ended.blamed, ended.evidence)


def some_of(addresses: list[str]) -> str:
    """The first few of these addresses, and how many more there are.

    >>> some_of([f"party:{number}" for number in range(7)])
    'party:0, party:1, party:2, party:3, party:4 and 2 more'
    """
    more = f" and {len(addresses) - _NAMED} more" if len(addresses) > _NAMED else ""
    return ", ".join(addresses[:_NAMED]) + more
