"""Talliers in operating-system processes of their own: one that dies or hangs ends a vote within a stated time.

The engine keeps a stand-in for each tallier. It sends the process what the tallier is to take, and waits for what it
answers, no longer than a deadline. They talk over a pair of sockets, in frames of a length and a msgpack message: the
setup, with the tallier's secret keys, is the first of them and is nowhere else (not on a command line, not on disk). A
process ends when its side of the pair is closed, so none outlives its parent, however that ended.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import msgspec

from unspoken.summation.base import Aborted, Endpoint, Envelope, Message, Rejected
from unspoken.summation.tallier import TallierSetup

if TYPE_CHECKING:
    from unspoken.summation.simulated_keys import SimulatedKeys
    from unspoken.summation.tally import Tally

_LENGTH_BYTES = 4
_STARTING = 60.0
"""How many seconds a process may take to begin, as it must first load its libraries."""
_DYING = 5.0
"""How many seconds the operating system may take to end a process that was killed."""


class Ready(Message, frozen=True, tag="process/ready"):
    """Tallier to stand-in: the setup is understood."""


class Answer(Message, frozen=True, tag="process/answer"):
    """Tallier to stand-in: what to send, and whether shares of the result have been opened."""

    envelopes: list[Envelope]
    opened: bool


class Refusal(Message, frozen=True, tag="process/refusal"):
    """Tallier to stand-in: the message was rejected, or has ended the vote."""

    rejected: bool
    text: str


Reply: TypeAlias = Ready | Answer | Refusal


class HelperProcess(Endpoint):
    """Stands in for a tallier that runs in a process of its own. `opened` has the names of those that have opened."""

    def __init__(self, name: str, setup: TallierSetup, deadline: float, opened: set[str]) -> None:
        self._name, self._deadline, self._opened, self._failed = name, deadline, opened, ""
        self._setup = msgspec.msgpack.encode(setup)
        self._socket, theirs = socket.socketpair()
        try:
            # In a session of its own: an interrupt from the keyboard is for the parent, which then ends its children.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", __name__],
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
            self._fail("answered what it was not asked")
        self._setup = b""

    def step(self, incoming: bytes) -> list[Envelope]:
        reply = self._ask(incoming, self._deadline)
        if isinstance(reply, Refusal):
            raise (Rejected if reply.rejected else Aborted)(reply.text)
        if not isinstance(reply, Answer):
            self._fail("answered what it was not asked")
        if reply.opened:
            self._opened.add(self._name)
        return reply.envelopes

    def dump(self) -> bytes:
        raise TypeError(f"The state of {self._name} stays in its process; dump it there.")

    def load(self, dumped: bytes) -> None:
        raise TypeError(f"The state of {self._name} stays in its process; load it there.")

    def close(self) -> None:
        """End the process, however it is, and give back all that it took."""
        self._socket.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)

    def _ask(self, request: bytes, seconds: float) -> Reply:
        if self._failed:
            raise Aborted(self._failed)
        until = time.monotonic() + seconds
        try:
            _send(self._socket, request, until)
            reply = _receive(self._socket, until)
        except TimeoutError:
            self._fail(f"did not answer within {seconds:g} s")
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
        """How the process ended: an exit code, or the signal that killed it."""
        try:
            code = self._process.wait(_DYING)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def _fail(self, what: str) -> NoReturn:
        """Give the tallier up, now and whenever it is asked again."""
        opened = ", ".join(sorted(self._opened))
        spent = f"shares of the winners were opened by {opened}: count the vote as spent"
        self._failed = f"{self._name} {what}; {spent if opened else 'nothing was revealed'}"
        self.close()
        raise Aborted(self._failed)


@contextlib.contextmanager
def tallier_processes(protocol: Tally, keys: SimulatedKeys) -> Iterator[dict[str, Endpoint]]:
    """The talliers of a simulated vote, each in a process of its own, by address.

    On the way out, whatever the reason, all processes are gone.
    """
    opened: set[str] = set()
    with contextlib.ExitStack() as stack:
        helpers: dict[str, HelperProcess] = {}
        for index, name in enumerate(protocol.helper_addresses):
            setup = protocol.setup(index, keys.helper(index), keys.helper_root(index))
            helpers[name] = HelperProcess(name, setup, protocol.deadline, opened)
            stack.callback(helpers[name].close)
        # All of them load their libraries by now, at the same time.
        for helper in helpers.values():
            helper.start()
        yield {**helpers}


def serve(connection: socket.socket) -> None:
    """The process's side: be the tallier of the setup that comes first, until the connection is closed."""
    setup = _receive(connection)
    if setup is None:
        return
    tallier = msgspec.msgpack.decode(setup, type=TallierSetup).tallier()
    _send(connection, msgspec.msgpack.encode(Ready()))
    while (incoming := _receive(connection)) is not None:
        reply: Reply
        try:
            envelopes = tallier.step(incoming)
            reply = Answer(envelopes, bool(tallier.state.opening))
        except (Rejected, Aborted) as error:
            reply = Refusal(isinstance(error, Rejected), str(error))
        _send(connection, msgspec.msgpack.encode(reply))


def _send(connection: socket.socket, body: bytes, until: float | None = None) -> None:
    connection.settimeout(_left(until))
    connection.sendall(len(body).to_bytes(_LENGTH_BYTES, "big"))
    connection.settimeout(_left(until))
    connection.sendall(body)


def _receive(connection: socket.socket, until: float | None = None) -> bytes | None:
    """The body of a frame; nothing if the other side is gone."""
    length = _receive_bytes(connection, _LENGTH_BYTES, until)
    return None if length is None else _receive_bytes(connection, int.from_bytes(length, "big"), until)


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
    """The seconds that are left, or without end. (To a socket, zero seconds would mean something else.)"""
    if until is None:
        return None
    if (left := until - time.monotonic()) <= 0.0:
        raise TimeoutError
    return left


if __name__ == "__main__":
    # The parent may be gone at any time: then there is nobody to tell.
    with socket.socket(fileno=0) as connection, contextlib.suppress(ConnectionError):
        serve(connection)
