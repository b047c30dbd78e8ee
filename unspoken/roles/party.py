"""The party: a data holder's side of a whole study.

It trusts nobody. The plan is its own, made from its own copy of the study. It takes a request only if the plan has it:
the name, the turn by its own count, an attempt that was never used, parameters within the stated bounds. It never fails
because of what is in its records. What must survive a crash is in its store before a message leaves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from unspoken.data.block import Block
from unspoken.methods.base import Collect, Method, PartyRequest, Request, TokenPositions, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.plan import Plan
from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.roles.attempts import (
    check_planned,
    counted_as,
    draws_by_tokens,
    largest_message,
    largest_request,
    protocol_for,
)
from unspoken.roles.contributor import Contributor
from unspoken.roles.courses import Course, Shuffling, Summing
from unspoken.roles.messages import Ask, Carried, carried, request_of, unpacked
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.store import Keeper, MemoryStore, Store
from unspoken.summation.base import Envelope, Rejected, Roster
from unspoken.summation.keys import Identity
from unspoken.types import Words


class _Attempt(msgspec.Struct):
    """The attempt under way."""

    ask: Ask
    root: bytes
    """Where its secrets come from: forgotten when the turn is spent."""
    endpoint: bytes = b""
    spent: bool = False


class _Tokens(msgspec.Struct):
    """What the party knows of a list of tokens."""

    turn: int
    """The one turn that it serves."""
    places: bytes
    count: int
    seed: str


class _State(msgspec.Struct):
    """All that a party remembers."""

    used: list[bytes] = []
    """Every attempt that was ever answered."""
    turns: dict[str, int] = {}
    """The first turn that may still be answered, by what is asked for: those before are spent or missed."""
    prepared: dict[str, dict[int, bytes]] = {}
    """The keys of the noise that was prepared, by the name of the messages that it is for, and by the turn."""
    tokens: _Tokens | None = None
    current: _Attempt | None = None


class Party:
    """One party of a study."""

    def __init__(
        self,
        method: Method,
        records: Block,
        identity: Identity,
        roster: Roster,
        *,
        plan: Plan | None = None,
        store: Store | None = None,
        root_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`records` is a block of this one party. `root_of` gives an attempt's secret root: the operating system's
        randomness, unless a test injects another. `plan` saves the time to make it again."""
        self._records, self._identity, self._roster = records, identity, roster
        self._index = _place(identity, roster)
        self._plan = plan or method.plan()
        self._contributor, self._largest_request = Contributor(method, self._plan), largest_request(method, self._plan)
        self._root_of = root_of or (lambda attempt: os.urandom(KEY_BYTES))
        self._course: Course | None = None
        self._keeper = Keeper(store or MemoryStore(), "party", _State)
        self._restore()

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message and say what to send, once that is kept. `Refused` and `Rejected` change nothing."""
        message: Any = unpacked(incoming, Ask | Carried, self._largest)
        with self._keeper.change(self._dump, self._restore):
            return self._take(message) if isinstance(message, Carried) else self._begin(message)

    @property
    def has_sent(self) -> bool:
        """Has the vector of the attempt under way left?"""
        return self._state.current is not None and self._state.current.spent

    def _begin(self, ask: Ask) -> list[Envelope]:
        """A new attempt: nothing of the one before is sent any more."""
        if ask.attempt in self._state.used:
            raise Refused(f'the request for "{ask.name}" comes with an attempt that was used before.')
        self._check(request_of(ask), ask)
        self._state.used.append(ask.attempt)
        self._state.current = current = _Attempt(ask, self._root_of(ask.attempt))
        self._open(current)
        return self._step(b"", current)

    def _take(self, message: Carried) -> list[Envelope]:
        """A message of the protocol under way."""
        current = self._state.current
        if current is None or message.attempt != current.ask.attempt:
            raise Rejected("a message of an attempt that is not under way came")
        return self._step(bytes(message.body), current)

    def _check(self, request: Request, ask: Ask) -> None:
        """Refuse a request unless the plan has it at this point."""
        # A party that was away may have missed turns; it never goes back to one.
        turn = max(self._state.turns.get(counted_as(request), 0), ask.turn)
        if isinstance(request, Tokens | ZeroSum):
            check_planned(self._plan, request, turn)
            if ask.turn != turn:
                raise Refused(f'turn {ask.turn} of "{ask.name}" is over: it is not made again.')
        elif isinstance(request, PartyRequest):
            self._contributor.check(request, turn)
            self._check_before(request)

    def _check_before(self, request: PartyRequest) -> None:
        """Refuse a request if what comes before it in the plan has not come, or if it is not for this party."""
        planned, tokens = self._plan.planned(request.name), self._state.tokens
        if isinstance(request, Collect) and request.only not in (None, self._index):
            raise Refused(f'the request for "{request.name}" is for party {request.only} alone.')
        if planned.noise.prepares and request.turn not in self._state.prepared.get(request.name, {}):
            raise Refused(f'no noise was prepared for turn {request.turn} of "{request.name}".')
        if draws_by_tokens(planned) and (tokens is None or tokens.turn != request.turn):
            raise Refused(f'there is no list of tokens for turn {request.turn} of "{request.name}".')

    def _open(self, current: _Attempt) -> Course:
        """This party's side of the protocol that answers the request."""
        request, attempt, secrets = request_of(current.ask), current.ask.attempt, self._secrets(current)
        self._largest = max(self._largest_request, largest_message(self._plan, request, current.ask.turn))
        if isinstance(request, Tokens):
            shuffle = self._plan.shuffle(request.turn, attempt).with_roster(self._roster)
            count = int(self._records.counts[0])
            self._course = Shuffling(shuffle.party(self._index, self._identity, secrets.stream("tokens"), count))
            return self._course
        protocol = protocol_for(self._plan, request, current.ask.turn, attempt).with_roster(self._roster)
        endpoint = protocol.party(self._index, self._identity, secrets.stream("keys"))

        def vector(seeds: Sequence[bytes]) -> Words:
            return self._vector(request, secrets, None if protocol.reveals_contributions else seeds)

        self._course = Summing(endpoint, vector, current.spent)
        return self._course

    def _vector(self, request: Request, secrets: PartySecrets, seeds: Sequence[bytes] | None) -> Words:
        """What this party puts into the sum. Without seeds no noise is added."""
        if isinstance(request, ZeroSum):
            return self._contributor.common_noise(request.name, secrets)
        if not isinstance(request, PartyRequest):
            raise RuntimeError("There is no vector in this request.")
        key = self._state.prepared.get(request.name, {}).get(request.turn)
        common = None if key is None else SecretStream(key)
        sources = None if seeds is None else [secrets.noise(seeds, common)]
        return self._contributor.vectors(request, self._records, [secrets.context(self._positions())], sources)[0]

    def _step(self, body: bytes, current: _Attempt) -> list[Envelope]:
        if self._course is None:
            raise RuntimeError("There is no attempt under way.")
        envelopes = self._course.step(body)
        if self._course.spent and not current.spent:
            self._spend(self._course, current)
        return carried(envelopes, current.ask.attempt)

    def _spend(self, course: Course, current: _Attempt) -> None:
        """The turn is over: remember what later turns need, and forget what made this one secret."""
        request, state, turn = request_of(current.ask), self._state, current.ask.turn
        state.turns[counted_as(request)] = turn + 1
        if isinstance(request, ZeroSum):
            secrets, turns = self._secrets(current), range(self._plan.planned(request.name).count)
            state.prepared[request.name] = {turn: secrets.common_key(turn) for turn in turns}
        elif keys := state.prepared.get(current.ask.name):
            state.prepared[current.ask.name] = {later: key for later, key in keys.items() if later > turn}
        current.root, current.spent = b"", True
        if (found := course.positions()) is not None:
            state.tokens = _Tokens(turn, found.places.tobytes(), found.count, str(found.seed))
            state.current = self._course = None

    def _positions(self) -> TokenPositions | None:
        if (tokens := self._state.tokens) is None:
            return None
        return TokenPositions(np.frombuffer(tokens.places, dtype=np.int64), tokens.count, int(tokens.seed))

    def _secrets(self, current: _Attempt) -> PartySecrets:
        return PartySecrets(current.root, self._index)

    def _dump(self) -> _State:
        """All that is to be kept."""
        if self._state.current is not None and self._course is not None:
            self._state.current.endpoint = self._course.endpoint.dump()
        return self._state

    def _restore(self) -> None:
        """Be what the store says."""
        self._state, self._course, self._largest = self._keeper.read(), None, self._largest_request
        if (current := self._state.current) is not None:
            self._open(current).endpoint.load(current.endpoint)


def _place(identity: Identity, roster: Roster) -> int:
    """The party's index: the roster has the identities in their order."""
    public = identity.public
    for index, listed in enumerate(roster.parties):
        if bytes(listed) == public:
            return index
    raise ValueError("Expected an identity that is in the roster.")
