"""The helper: a compute node or a tallier, for a whole study. It sees no records and adds no noise."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.roles.messages import Assist, Carried, Over, assisted, largest_carried
from unspoken.roles.planned_requests import check_planned, largest_assist, largest_of_study, protocol_for
from unspoken.roles.role import Reaction, Role
from unspoken.roles.store import Store
from unspoken.summation.base import Endpoint, Envelope, Roster
from unspoken.summation.keys import Identity


class _Attempt(msgspec.Struct):
    """The attempt under way."""

    assist: Assist
    endpoint: bytes = b""
    asked: bytes = b""
    """The last message, and the answer to it"""
    answer: list[Envelope] = []


class _State(msgspec.Struct):
    """All that a helper remembers."""

    last: bytes = b""
    """The last attempt that was assisted. A new attempt must be larger."""
    current: _Attempt | None = None


class Helper(Role[_State]):
    """One helper of a study."""

    takes = Assist | Carried | Over
    names = True

    def __init__(
        self,
        plan: Plan,
        index: int,
        identity: Identity,
        roster: Roster,
        *,
        store: Store | None = None,
        root_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`root_of` gives an attempt's secret root: the system's randomness, unless a test injects another."""
        self._plan, self._index, self._identity, self._roster = plan, index, identity, roster
        self._root_of = root_of or (lambda attempt: os.urandom(KEY_BYTES))
        self._largest_assist = largest_assist(plan)
        self.largest = max(self._largest_assist, largest_of_study(plan))
        self._endpoint: Endpoint | None = None
        super().__init__(store, _State)

    @property
    def _attempt(self) -> bytes | None:
        return None if self._state.current is None else self._state.current.assist.attempt

    def _begin(self, assist: Assist) -> list[Envelope]:
        """Begin a new attempt, and forget the one before."""
        if assist.attempt <= self._state.last:
            raise Refused(f'"{assist.name}" comes with an attempt that is not newer than those before.')
        check_planned(self._plan, assisted(assist), assist.turn)
        self._state = _State(assist.attempt, _Attempt(assist))
        self._open(self._state.current, SecretStream(self._root_of(assist.attempt)))
        return []

    def _step(self, body: bytes) -> Reaction:
        if (endpoint := self._endpoint) is None:
            raise RuntimeError("There is no attempt under way.")
        before = endpoint.has_forgotten
        envelopes = endpoint.step(body)
        # With a snapshot, so that what the endpoint forgot is gone from the store too, even if the coordinator never
        # ends the attempt.
        return Reaction(envelopes, endpoint.has_forgotten and not before, is_repeated=before)

    def _forget(self) -> None:
        self._state.current = self._endpoint = None
        self._largest = self._largest_assist

    def _open(self, current: _Attempt | None, secrets: SecretStream) -> Endpoint | None:
        """This helper's side of the protocol. The endpoint's state holds the secrets that it drew, until it forgets
        them."""
        self._endpoint, self._largest = None, self._largest_assist
        if current is None:
            return None
        assist = current.assist
        protocol = protocol_for(self._plan, assisted(assist), assist.turn, assist.attempt)
        self._largest = max(self._largest, largest_carried(protocol.largest_message))
        self._endpoint = protocol.with_roster(self._roster).helper(self._index, self._identity, secrets)
        return self._endpoint

    def _snapshot(self, incoming: bytes, envelopes: list[Envelope]) -> _State:
        if (current := self._state.current) is not None and self._endpoint is not None:
            current.endpoint, current.asked, current.answer = self._endpoint.dump(), incoming, envelopes
        return self._state

    def _load(self) -> tuple[bytes, list[Envelope]]:
        current = self._state.current
        endpoint = self._open(current, SecretStream())
        if current is None or endpoint is None:
            return b"", []
        endpoint.load(current.endpoint)
        return current.asked, current.answer
