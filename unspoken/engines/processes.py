"""Talliers in operating-system processes of their own: one that dies or hangs ends a vote within a stated time.

The engine keeps a stand-in for each tallier, which forwards messages to the process and waits for its answers, no
longer than a deadline. The two talk over a pair of sockets, in frames of a length and a msgpack message. The first
frame is the setup with the tallier's secret keys, which are neither on a command line nor on disk. A process ends when
its pair of sockets is closed, so none outlives its parent, however the parent ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import msgspec

from unspoken.errors import UnspokenError
from unspoken.summation.base import Aborted, Endpoint, Envelope, Message, Protocol, Rejected, SignedStatement
from unspoken.summation.tallier import TallierSetup

if TYPE_CHECKING:
    from unspoken.summation.keys import Identity
    from unspoken.summation.simulated_keys import SimulatedKeys

_LENGTH_BYTES = 4
_STARTING = 60.0
"""The seconds that a process may take to begin, as it must first load its libraries"""
_DYING = 5.0
"""The seconds that the operating system may take to end a killed process"""


class Ready(Message, frozen=True, tag="process/ready"):
    """Tallier to stand-in: the setup is understood."""


class Stepped(Message, frozen=True, tag="process/answer"):
    """Tallier to stand-in: envelopes to send, and whether shares of the result have been opened."""

    envelopes: list[Envelope]
    opened: bool


class Refusal(Message, frozen=True, tag="process/refusal"):
    """Helper to stand-in: the message was rejected, or has ended the sum or vote."""

    rejected: bool
    text: str
    blamed: tuple[str, ...] = ()
    evidence: tuple[SignedStatement, ...] = ()

    @classmethod
    def of(cls, error: Rejected | Aborted) -> Refusal:
        if isinstance(error, Rejected):
            return cls(True, str(error))
        return cls(False, str(error), error.blamed, error.evidence)

    def error(self) -> Rejected | Aborted:
        return Rejected(self.text) if self.rejected else Aborted(self.text, self.blamed, self.evidence)


Reply: TypeAlias = Ready | Stepped | Refusal


@typing.runtime_checkable
class Separable(typing.Protocol):
    """A summation protocol whose talliers can be set up in another process."""

    deadline: float
    """The seconds within which a tallier must answer"""

    def setup(self, index: int, identity: Identity, root: bytes) -> TallierSetup: ...


class HelperProcess(Endpoint):
    """Stands in for a tallier that runs in a process of its own.

    `opened` is common to all stand-ins of a vote: the names of the talliers that have opened shares of the winners.
    """

    def __init__(self, name: str, setup: TallierSetup, deadline: float, opened: set[str]) -> None:
        self._name, self._deadline, self._opened, self._failed = name, deadline, opened, ""
        self._setup, poll = msgspec.msgpack.encode(setup), setup.poll
        # One message may complete many rounds, in each of which words go to other talliers.
        self._most = poll.largest_message * poll.talliers * (poll.rounds + 3)
        self._socket, theirs = socket.socketpair()
        try:
            # In a session of its own: an interrupt from the keyboard is for the parent, which then ends its children.
            # It imports what this process does, from the same places, and not what lies in the present folder (-P).
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", __name__],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Hand over the setup, and wait until it is understood."""
        if not isinstance(self._ask(self._setup, _STARTING), Ready):
            self._fail("sent an answer to another question")
        self._setup = b""

    def step(self, incoming: bytes) -> list[Envelope]:
        reply = self._ask(incoming, self._deadline)
        if isinstance(reply, Refusal):
            raise reply.error()
        if not isinstance(reply, Stepped):
            self._fail("sent an answer to another question")
        if reply.opened:
            self._opened.add(self._name)
        return reply.envelopes

    def dump(self) -> bytes:
        raise TypeError(f"The state of {self._name} stays in its process; dump it there.")

    def load(self, dumped: bytes) -> None:
        raise TypeError(f"The state of {self._name} stays in its process; load it there.")

    def close(self) -> None:
        """End the process, whatever its state, and free its resources."""
        self._socket.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)

    def _ask(self, request: bytes, seconds: float) -> Reply:
        if self._failed:
            raise Aborted(self._failed, (self._name,))
        until = time.monotonic() + seconds
        try:
            _send(self._socket, request, until)
            reply = _receive(self._socket, until, self._most)
        except TimeoutError:
            self._fail(f"did not answer within {seconds:g} s")
        except OverflowError as error:
            self._fail(f"answered with {error}")
        except OSError:
            reply = None
        if reply is None:
            self._fail(f"died ({self._end()})")
        try:
            answer: Reply = msgspec.msgpack.decode(reply, type=Reply)
        except msgspec.DecodeError as error:
            self._fail(f"answered in a way that is not understood ({error})")
        return answer

    def _end(self) -> str:
        """The end of the process, in words: its exit code, or the signal that killed it."""
        try:
            code = self._process.wait(_DYING)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def _fail(self, what: str) -> NoReturn:
        """Abort, now and whenever the tallier is asked again."""
        opened = ", ".join(sorted(self._opened))
        spent = f"shares of the winners were opened by {opened}: count the vote as spent"
        self._failed = f"{self._name} {what}; {spent if opened else 'nothing was revealed'}"
        self.close()
        raise Aborted(self._failed, (self._name,))


@contextlib.contextmanager
def tallier_processes(protocol: Protocol, keys: SimulatedKeys) -> Iterator[dict[str, Endpoint]]:
    """Stand-ins, by address, for the talliers of a simulated vote. Each tallier runs in a process of its own.

    On the way out, whatever the reason, all processes are gone.
    """
    if not isinstance(protocol, Separable):
        raise UnspokenError(
            f"{type(protocol).__name__} cannot run its helpers in processes of their own; leave processes out."
        )
    opened: set[str] = set()
    with contextlib.ExitStack() as stack:
        helpers: dict[str, HelperProcess] = {}
        for index, name in enumerate(protocol.helper_addresses):
            setup = protocol.setup(index, keys.helper(index), keys.helper_root(index))
            helpers[name] = HelperProcess(name, setup, protocol.deadline, opened)
            stack.callback(helpers[name].close)
        # All of them are loading their libraries now, at the same time.
        for helper in helpers.values():
            helper.start()
        yield {**helpers}


def serve(connection: socket.socket) -> None:
    """The process's side: read a setup, then be its tallier until the connection is closed."""
    setup = _receive(connection)
    if setup is None:
        return
    tallier = msgspec.msgpack.decode(setup, type=TallierSetup).tallier()
    _send(connection, msgspec.msgpack.encode(Ready()))
    while (incoming := _receive(connection)) is not None:
        reply: Reply
        try:
            envelopes = tallier.step(incoming)
            reply = Stepped(envelopes, bool(tallier.state.opening))
        except (Rejected, Aborted) as error:
            reply = Refusal.of(error)
        _send(connection, msgspec.msgpack.encode(reply))


def _send(connection: socket.socket, body: bytes, until: float | None = None) -> None:
    connection.settimeout(_left(until))
    connection.sendall(len(body).to_bytes(_LENGTH_BYTES, "big"))
    connection.settimeout(_left(until))
    connection.sendall(body)


def _receive(connection: socket.socket, until: float | None = None, most: int = 1 << 32) -> bytes | None:
    """The body of a frame; nothing if the other side is gone, `OverflowError` if it is larger than expected."""
    length = _receive_bytes(connection, _LENGTH_BYTES, until)
    if length is None:
        return None
    if (count := int.from_bytes(length, "big")) > most:
        raise OverflowError(f"{count:,} bytes where {most:,} are the most")
    return _receive_bytes(connection, count, until)


def _receive_bytes(connection: socket.socket, count: int, until: float | None) -> bytes | None:
    buffer = bytearray(count)
    rest = memoryview(buffer)
    while rest:
        connection.settimeout(_left(until))
        received = connection.recv_into(rest)
        if not received:
            return None
        rest = rest[received:]
    return bytes(buffer)


def _left(until: float | None) -> float | None:
    """The seconds until a deadline, always above 0, since for a socket 0 means not to wait; None: there is none."""
    if until is None:
        return None
    if (left := until - time.monotonic()) <= 0.0:
        raise TimeoutError
    return left


if __name__ == "__main__":
    # The parent may be gone at any time: then there is nobody to tell.
    with socket.socket(fileno=0) as connection, contextlib.suppress(ConnectionError):
        serve(connection)
