"""The party: a data holder's side of a whole study.

It trusts nobody. The plan is its own, made from its own copy of the study. It takes a request only if the plan has it:
the name, the turn by its own count, an attempt that was never used, parameters within the stated bounds. It never fails
because of what is in its records. What must survive a crash is in its store before a message leaves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from unspoken.data.block import Block
from unspoken.methods.base import Collect, Method, Request, Sum, TokenPositions, Tokens, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.plan import Plan
from unspoken.noise.stream import KEY_BYTES
from unspoken.roles.attempts import TOKENS, largest_message, largest_request, protocol_for
from unspoken.roles.contributor import Contributor
from unspoken.roles.messages import Ask, Carried, carried, request_of, unpacked
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.store import MemoryStore, Store
from unspoken.summation.base import Endpoint, Envelope, Rejected, Roster
from unspoken.summation.base import Party as SummationParty
from unspoken.summation.keys import Identity
from unspoken.summation.record_shuffle import ShuffleParty
from unspoken.types import Words


class _Attempt(msgspec.Struct):
    """The attempt under way."""

    ask: Ask
    root: bytes
    endpoint: bytes = b""
    submitted: bool = False


class _State(msgspec.Struct):
    """All that a party remembers."""

    used: list[bytes] = []
    """Every attempt that was ever answered."""
    turns: dict[str, int] = {}
    """The first turn that may still be answered, by the name of the sum: those before are spent or missed."""
    prepared: dict[str, bytes] = {}
    """The root of the noise that was prepared, by the name of the messages that it is for."""
    tokens: tuple[bytes, int, str] | None = None
    """The positions of this party's tokens in the round's list, the length of the list, and its seed."""
    current: _Attempt | None = None


class Party:
    """One party of a study."""

    def __init__(
        self,
        method: Method,
        records: Block,
        index: int,
        identity: Identity,
        roster: Roster,
        *,
        plan: Plan | None = None,
        store: Store | None = None,
        root_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`records` is a block of this one party. `root_of` gives an attempt's secret root: the operating system's
        randomness, unless a test injects another. `plan` saves the time to make it again."""
        if bytes(roster.parties[index]) != identity.public:
            raise ValueError(f"Expected the identity of party {index} in the roster.")
        self._method, self._records, self._index, self._identity = method, records, index, identity
        self._roster, self._plan = roster, plan or method.plan()
        self._contributor, self._largest_request = Contributor(method, self._plan), largest_request(method, self._plan)
        self._store, self._root_of = store or MemoryStore(), root_of or (lambda attempt: os.urandom(KEY_BYTES))
        self._endpoint: Endpoint | None = None
        self._state = _State()
        if kept := self._store.read("party"):
            self._state = msgspec.msgpack.decode(kept, type=_State)
            self._resume()

    def receive(self, incoming: bytes) -> list[Envelope]:
        """Take a message and say what to send. `Refused` and `Rejected` change nothing."""
        message: Any = unpacked(incoming, Ask | Carried, self._largest())
        envelopes = self._take(message) if isinstance(message, Carried) else self._begin(message)
        self._keep()
        return envelopes

    @property
    def has_sent(self) -> bool:
        """Has the vector of the attempt under way left?"""
        return self._state.current is not None and self._state.current.submitted

    def _begin(self, ask: Ask) -> list[Envelope]:
        """A new attempt: nothing of the one before is sent any more."""
        if ask.attempt in self._state.used:
            raise Refused(f'the request for "{ask.name}" comes with an attempt that was used before.')
        request = self._checked(ask)
        self._state.used.append(ask.attempt)
        self._state.current = current = _Attempt(ask, self._root_of(ask.attempt))
        self._endpoint = self._open(request, current)
        if self._is_ready():
            return carried(self._submit(), ask.attempt)
        return carried(self._endpoint.step(b""), ask.attempt)

    def _checked(self, ask: Ask) -> Request:
        """The request, if the plan has it at this point."""
        request, turn = request_of(ask), self._state.turns.get(ask.name, 0)
        # A party that was away may have missed turns; it never goes back to one.
        turn = max(turn, ask.turn)
        match request:
            case Sum() | Vote() | Collect():
                if isinstance(request, Collect) and request.only not in (None, self._index):
                    raise Refused(f'the request for "{ask.name}" is for party {request.only} alone.')
                self._contributor.check(request, turn)
            case ZeroSum():
                if not self._contributor.planned(ask.name).noise.prepares or turn:
                    raise Refused(f'there is no noise to prepare for "{ask.name}" at this point.')
            case Tokens():
                if not self._shuffles() or ask.turn != turn:
                    raise Refused(f"there is no list of tokens in turn {ask.turn} of the plan.")
        return request

    def _open(self, request: Request, current: _Attempt) -> Endpoint:
        """This party's endpoint of the protocol that answers the request."""
        if isinstance(request, Tokens):
            shuffle = self._plan.shuffle(request.turn, current.ask.attempt).with_roster(self._roster)
            count = int(self._records.counts[0])
            return shuffle.party(self._index, self._identity, self._secrets(current).stream("tokens"), count)
        protocol = protocol_for(self._plan, request, current.ask.turn, current.ask.attempt).with_roster(self._roster)
        return protocol.party(self._index, self._identity, self._secrets(current).stream("keys"))

    def _shuffles(self) -> bool:
        return any(planned.sampling is not None and planned.sampling.by_tokens for planned in self._plan.sums)

    def _take(self, message: Carried) -> list[Envelope]:
        """A message of the protocol under way."""
        current = self._state.current
        if current is None or self._endpoint is None or message.attempt != current.ask.attempt:
            raise Rejected("a message of an attempt that is not under way came")
        envelopes = self._endpoint.step(bytes(message.body))
        if not current.submitted and self._is_ready():
            envelopes += self._submit()
        elif isinstance(self._endpoint, ShuffleParty) and self._endpoint.complete:
            self._remember_tokens(self._endpoint)
        return carried(envelopes, current.ask.attempt)

    def _is_ready(self) -> bool:
        return isinstance(self._endpoint, SummationParty) and self._endpoint.ready

    def _submit(self) -> list[Envelope]:
        """The vector leaves: from here on the turn is spent."""
        current, endpoint = self._state.current, self._endpoint
        if current is None or not isinstance(endpoint, SummationParty):
            raise RuntimeError("There is no attempt under way.")
        envelopes = endpoint.submit(self._vector(request_of(current.ask), current, endpoint))
        endpoint.forget_vector()
        current.submitted = True
        if current.ask.kind != "prepare":
            self._state.turns[current.ask.name] = current.ask.turn + 1
        return envelopes

    def _vector(self, request: Request, current: _Attempt, endpoint: SummationParty) -> Words:
        secrets = self._secrets(current)
        if isinstance(request, ZeroSum):
            self._state.prepared[request.name] = current.root
            return self._contributor.common_noise(request.name, secrets)
        if not isinstance(request, Sum | Vote | Collect):
            raise RuntimeError("There is no vector in this request.")
        sources = None
        if not protocol_for(self._plan, request, request.turn, current.ask.attempt).reveals_contributions:
            prepared = self._state.prepared.get(request.name)
            common = None if prepared is None else PartySecrets(prepared, self._index).common(request.turn)
            sources = [secrets.noise(endpoint.seeds, common)]
        context = secrets.context(self._positions())
        return self._contributor.vectors(request, self._records, [context], sources)[0]

    def _secrets(self, current: _Attempt) -> PartySecrets:
        return PartySecrets(current.root, self._index)

    def _remember_tokens(self, endpoint: ShuffleParty) -> None:
        positions = endpoint.positions()
        self._state.tokens = (positions.tobytes(), len(endpoint.all_tokens()), str(endpoint.seed()))
        self._state.turns[TOKENS] = (0 if self._state.current is None else self._state.current.ask.turn) + 1
        self._state.current = self._endpoint = None

    def _positions(self) -> TokenPositions | None:
        if self._state.tokens is None:
            return None
        places, count, seed = self._state.tokens
        return TokenPositions(np.frombuffer(places, dtype=np.int64), count, int(seed))

    def _largest(self) -> int:
        """The most bytes of a message that may come now."""
        if (current := self._state.current) is None:
            return self._largest_request
        message = largest_message(self._plan, request_of(current.ask), current.ask.turn)
        return max(self._largest_request, message)

    def _keep(self) -> None:
        if self._state.current is not None and self._endpoint is not None:
            self._state.current.endpoint = self._endpoint.dump()
        self._store.write("party", msgspec.msgpack.encode(self._state))

    def _resume(self) -> None:
        """Go on where the store says."""
        if (current := self._state.current) is not None:
            self._endpoint = self._open(request_of(current.ask), current)
            self._endpoint.load(current.endpoint)
