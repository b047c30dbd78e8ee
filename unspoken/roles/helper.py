"""The helper: a compute node or a tallier, for a whole study. It sees no records and adds no noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from unspoken.methods.base import Sum, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.plan import Plan
from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.roles.attempts import protocol_for
from unspoken.roles.messages import Assist, Carried, carried, largest_ask, largest_carried, unpacked
from unspoken.roles.store import MemoryStore, Store
from unspoken.summation.base import Endpoint, Envelope, Protocol, Rejected, Roster


class _State(msgspec.Struct):
    """All that a helper remembers."""

    used: list[bytes] = []
    """Every attempt that was ever assisted."""
    current: Assist | None = None
    root: bytes = b""
    endpoint: bytes = b""


class Helper:
    """One helper of a study."""

    def __init__(
        self,
        plan: Plan,
        index: int,
        secret: bytes,
        roster: Roster,
        *,
        store: Store | None = None,
        root_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`secret` is the helper's X25519 key. `root_of` gives an attempt's secret root: the operating system's
        randomness, unless a test injects another."""
        self._plan, self._index, self._secret, self._roster = plan, index, secret, roster
        self._store, self._root_of = store or MemoryStore(), root_of or (lambda attempt: os.urandom(KEY_BYTES))
        self._endpoint: Endpoint | None = None
        self._state = _State()
        if kept := self._store.read("helper"):
            self._state = msgspec.msgpack.decode(kept, type=_State)
            if self._state.current is not None:
                self._endpoint = self._open(self._state.current)
                self._endpoint.load(self._state.endpoint)

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message and say what to send. `Refused` and `Rejected` change nothing."""
        message: Any = unpacked(incoming, Assist | Carried, self._largest())
        if isinstance(message, Assist):
            self._begin(message)
            envelopes: list[Envelope] = []
        else:
            if self._endpoint is None or self._state.current is None or message.attempt != self._state.current.attempt:
                raise Rejected("a message of an attempt that is not under way came")
            envelopes = self._endpoint.step(bytes(message.body))
        if self._endpoint is not None:
            self._state.endpoint = self._endpoint.dump()
        self._store.write("helper", msgspec.msgpack.encode(self._state))
        return carried(envelopes, message.attempt)

    def _begin(self, assist: Assist) -> None:
        if assist.attempt in self._state.used:
            raise Refused(f'"{assist.name}" comes with an attempt that was used before.')
        if assist.name not in [planned.name for planned in self._plan.sums]:
            raise Refused(f'the request is for "{assist.name}", which is not in the plan.')
        root = self._root_of(assist.attempt)
        self._state = _State([*self._state.used, assist.attempt], assist, root)
        self._endpoint = self._open(assist)

    def _open(self, assist: Assist) -> Endpoint:
        return self._protocol(assist).helper(self._index, self._secret, SecretStream(self._state.root))

    def _protocol(self, assist: Assist) -> Protocol:
        kind = {"sum": Sum, "vote": Vote, "prepare": ZeroSum}[assist.kind]
        return protocol_for(self._plan, kind(assist.name), assist.turn, assist.attempt).with_roster(self._roster)

    def _largest(self) -> int:
        """The most bytes of a message that may come now."""
        if self._state.current is None:
            return largest_ask(0)
        return largest_carried(self._protocol(self._state.current).session)
