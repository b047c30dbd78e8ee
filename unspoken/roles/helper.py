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
from unspoken.roles.attempts import check_planned, protocol_for
from unspoken.roles.messages import Assist, Carried, carried, largest_ask, largest_carried, unpacked
from unspoken.roles.store import Keeper, MemoryStore, Store
from unspoken.summation.base import Endpoint, Envelope, Rejected, Roster

_KINDS = {"sum": Sum, "vote": Vote, "prepare": ZeroSum}


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
        self._root_of = root_of or (lambda attempt: os.urandom(KEY_BYTES))
        self._endpoint: Endpoint | None = None
        self._state = _State()
        self._keeper = Keeper(store or MemoryStore(), "helper", _State)
        self._restore()

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message and say what to send, once that is kept. `Refused` and `Rejected` change nothing."""
        message: Any = unpacked(incoming, Assist | Carried, self._largest)
        with self._keeper.change(self._dump, self._restore):
            envelopes = self._begin(message) if isinstance(message, Assist) else self._take(message)
            return carried(envelopes, message.attempt)

    def _begin(self, assist: Assist) -> list[Envelope]:
        """A new attempt: nothing of the one before is assisted any more."""
        if assist.attempt in self._state.used:
            raise Refused(f'"{assist.name}" comes with an attempt that was used before.')
        check_planned(self._plan, _KINDS[assist.kind](assist.name), assist.turn)
        self._state = _State([*self._state.used, assist.attempt], assist, self._root_of(assist.attempt))
        self._open(assist)
        return []

    def _take(self, message: Carried) -> list[Envelope]:
        """A message of the protocol under way."""
        current = self._state.current
        if self._endpoint is None or current is None or message.attempt != current.attempt:
            raise Rejected("a message of an attempt that is not under way came")
        return self._endpoint.step(bytes(message.body))

    def _open(self, assist: Assist) -> Endpoint:
        """This helper's side of the protocol."""
        protocol = protocol_for(self._plan, _KINDS[assist.kind](assist.name), assist.turn, assist.attempt)
        self._largest = max(largest_ask(0), largest_carried(protocol.session))
        secrets = SecretStream(self._state.root)
        self._endpoint = endpoint = protocol.with_roster(self._roster).helper(self._index, self._secret, secrets)
        return endpoint

    def _dump(self) -> _State:
        """All that is to be kept."""
        if self._endpoint is not None:
            self._state.endpoint = self._endpoint.dump()
        return self._state

    def _restore(self) -> None:
        """Be what the store says."""
        self._state, self._endpoint, self._largest = self._keeper.read(), None, largest_ask(0)
        if self._state.current is not None:
            self._open(self._state.current).load(self._state.endpoint)
