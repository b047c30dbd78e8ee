"""The coordinator's log: what it needs in order to go on after its process was stopped at any moment.

The coordinator logs three things before it acts on them: an attempt, before anyone is told of it; that vectors may
leave, before it sends the messages that let them; and each answer. After a restart the logged answers are fed to the
method's generator again, up to the request that was under way. The attempt at this request has ended with the process
and is never continued, so no attempt has two totals. It counts as free if no vector can have left, and as a spent one
otherwise (`roles.attempts`).

At the end the log has the released file and the certificate, or the reason why there is none, and who has signed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from unspoken.methods.base import Answer, Request, Total
from unspoken.roles.kept_answers import KeptAnswer
from unspoken.roles.store import Store, StoreError, not_kept
from unspoken.roles.totals import Totals


class _Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One record of the log."""


class _Opened(_Record, frozen=True):
    """An attempt at a request."""

    attempt: bytes
    request: str
    left: bool
    """Whether vectors may leave as soon as parties hear of the attempt"""
    when: float
    traffic: dict[str, int]


class _Left(_Record, frozen=True):
    """Vectors may have left in the attempt under way."""


class _Answered(_Record, frozen=True):
    """The answer of the attempt under way."""

    kept: KeptAnswer
    traffic: dict[str, int]
    rest: list[bytes] = []
    """The last messages to all parties, which may not have arrived before the process was stopped"""


class Ended(_Record, frozen=True):
    """The study is over, with this certificate, or without one for this reason."""

    certificate: bytes
    reason: str = ""
    name: str = ""
    """The end of the released file's name"""
    file: bytes = b""
    """Its content, stored because another processor might make a slightly different file"""


class _Signed(_Record, frozen=True):
    """A participant's answer to the end of the study: its signature of the certificate, or nothing."""

    address: str
    signature: bytes


class _Closed(_Record, frozen=True):
    """Everyone who was there has been told."""


_RECORDS = msgspec.msgpack.Decoder(_Opened | _Left | _Answered | Ended | _Signed | _Closed)


@dataclass
class Attempt:
    """An attempt of the log."""

    attempt: bytes
    request: str
    left: bool
    answered: _Answered | None = None

    def check(self, request: Request) -> None:
        """Refuse a log whose request here is not the one that the method makes now."""
        if self.request != _label(request):
            raise StoreError(
                f'the coordinator\'s state asked for "{self.request}" where "{_label(request)}" is due: it was '
                "written by another version of unspoken; use that version."
            )

    @property
    def rest(self) -> list[bytes]:
        """The last messages to all parties."""
        return self.answered.rest if self.answered else []

    def recall(self, request: Request, totals: Totals) -> Total | None:
        """The logged answer, if there is one; `totals` is told who took part."""
        return self.answered.kept.recall(request, totals) if self.answered else None


@dataclass
class CoordinatorLog:
    """A coordinator's log. Without a store it ends with the process."""

    store: Store | None = None
    attempts: list[Attempt] = field(default_factory=list)
    """The attempts of earlier processes, in their order"""
    ended: Ended | None = None
    signatures: dict[str, bytes] = field(default_factory=dict)
    closed: bool = False
    began: float | None = None
    """When the first attempt was opened, in seconds since 1970"""
    traffic_before: dict[str, int] = field(default_factory=dict)
    """The number of bytes received from each address, and of all bytes under the empty address, as logged by earlier
    processes"""
    traffic: Callable[[], dict[str, int]] = dict
    """Gives these numbers as they are now; an engine sets it"""

    def __post_init__(self) -> None:
        for content in self.store.read() if self.store else ():
            try:
                self._take(_RECORDS.decode(content))
            except (msgspec.MsgspecError, IndexError):
                raise StoreError(
                    "the coordinator's state was written by another version of unspoken; use that version."
                ) from None

    def _take(self, record: _Record) -> None:
        match record:
            case _Opened(attempt, request, left, when, traffic):
                self.attempts.append(Attempt(attempt, request, left))
                self.began, self.traffic_before = self.began or when, traffic
            case _Left():
                self.attempts[-1].left = True
            case _Answered():
                self.attempts[-1].answered, self.traffic_before = record, record.traffic
            case Ended():
                self.ended = record
            case _Signed(address, signature):
                self.signatures[address] = signature
            case _Closed():
                self.closed = True

    def _keep(self, record: _Record) -> None:
        if self.store is not None and self.began is not None:
            try:
                self.store.append(msgspec.msgpack.encode(record))
                self.store.sync()
            except OSError as error:
                raise not_kept(error) from None

    def open(self, attempt: bytes, request: Request, left: bool) -> None:
        """Log an attempt before anyone is told of it. `left`: vectors may leave at once."""
        self.began = self.began or time.time()
        self._keep(_Opened(attempt, _label(request), left, time.time(), self.traffic()))

    def leave(self) -> None:
        """Log that vectors may leave from now on."""
        self._keep(_Left())

    def answer(self, request: Request, answer: Answer, totals: Totals, rest: list[bytes]) -> None:
        """Log the answer of the attempt under way, what `totals` noted of it, and the attempt's last messages."""
        if self.store is None or not isinstance(answer, Total):
            return
        self._keep(_Answered(KeptAnswer.of(request, answer, totals), self.traffic(), rest))

    def end(self, certificate: bytes, reason: str = "", name: str = "", file: bytes = b"") -> Ended:
        """Log the end of the study, unless the log has one already, and return the logged end.

        If nobody was asked anything, the study has not begun: it may be served again, so its end is not logged.
        """
        if self.ended is None:
            self.ended = Ended(certificate, reason, name, file)
            self._keep(self.ended)
        return self.ended

    def sign(self, address: str, signature: bytes) -> None:
        """Log that a participant has heard of the end."""
        if self.ended is not None and address not in self.signatures:
            self.signatures[address] = signature
            self._keep(_Signed(address, signature))

    def close(self) -> None:
        """Log that everyone who was there has heard of the end."""
        if not self.closed:
            self.closed = True
            self._keep(_Closed())


def _label(request: Request) -> str:
    """A request without its numbers, which another processor may compute a little differently."""
    only = getattr(request, "only", None)
    return f"{request.counted_as}, turn {request.turn}" + ("" if only is None else f", party {only}")
