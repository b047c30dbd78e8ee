"""The party: a data holder's side of a whole study.

A party trusts nobody. It makes the plan itself, from its own copy of the study. It answers a request only if the plan
has it: the name, the turn by the party's own count, an attempt that was never used, parameters within the stated
bounds. It counts in how many attempts its vector left, and sends no more than planned. It never fails because of what
is in its records. What must survive a crash is in its store before a message leaves.

With a ledger, a vector leaves only after its cost is on disk in the ledger. The order is: store which attempt will be
charged, charge, store the state, send. After a crash in between, the party repeats the same attempt, which is not
charged twice; if it never does, the charge stays. A charge that the state has not announced shows that the state is an
old copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from unspoken.data.block import Block
from unspoken.data.federation import check_bounded
from unspoken.methods.base import Cancel, Collect, Method, PartyRequest, Request, TokenPositions, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.privacy.ledger import Charges, OverLimit
from unspoken.roles.attempts import check_clock
from unspoken.roles.charging import LimitReached, check_costs, check_new, check_newest, place_of, run_name
from unspoken.roles.contributor import Contributor, PartyInput
from unspoken.roles.courses import Course, Gate, Shuffling, Summing
from unspoken.roles.messages import Ask, Carried, Over, request_of
from unspoken.roles.planned_requests import (
    check_planned,
    largest_message,
    largest_of_study,
    largest_request,
    protocol_for,
)
from unspoken.roles.role import Reaction, Role
from unspoken.roles.secrets import PartySecrets
from unspoken.roles.store import Store, StoreError
from unspoken.summation.base import Envelope, Roster, address_of
from unspoken.summation.keys import Identity
from unspoken.types import Words


class _Attempt(msgspec.Struct):
    """The attempt under way."""

    ask: Ask
    root: bytes
    """The root that the attempt's secrets are derived from, forgotten when the vector leaves"""
    endpoint: bytes = b""
    spent: bool = False
    asked: bytes = b""
    """The last message, whose answer is kept with it: a lost vector is sent again byte for byte, or never."""
    answer: list[Envelope] = []


class _Tokens(msgspec.Struct):
    """What the party knows of a list of tokens."""

    turn: int
    """The one turn that the list serves"""
    places: bytes
    count: int
    seed: str


class _TurnCounts(msgspec.Struct):
    """The numbers of attempts at one turn."""

    turn: int = 0
    begun: int = 0
    """Attempts that the party answered"""
    spent: int = 0
    """Those of them in which its vector left"""


class _State(msgspec.Struct):
    """All that a party remembers."""

    last: bytes = b""
    """The last attempt that was answered. A new attempt must be larger."""
    turns: dict[str, _TurnCounts] = {}
    """The last turn that was answered, by the name of the request. Earlier turns are over."""
    sent: dict[str, int] = {}
    """The number of vectors that have left for each total, by its name"""
    prepared: dict[str, dict[int, bytes]] = {}
    """The keys of the noise that was prepared, by the name of the messages that will carry it, and by turn"""
    tokens: _Tokens | None = None
    current: _Attempt | None = None
    run: str = ""
    """The name of this run in the ledger. Nobody else can choose or guess it."""
    charged: bool = False
    """Whether the ledger was charged in this run"""
    announced: bytes = b""
    """The last attempt that was to be charged. It is stored before the charge, so the ledger has none after it."""


class Party(Role[_State]):
    """One party of a study."""

    takes = Ask | Carried | Over

    def __init__(
        self,
        method: Method,
        records: Block,
        identity: Identity,
        roster: Roster,
        *,
        plan: Plan | None = None,
        store: Store | None = None,
        ledger: Charges | None = None,
        root_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`records` is a block with this one party; `ledger` is charged for each vector made from them. `root_of` gives
        an attempt's secret root: the operating system's randomness, unless a test injects another. `plan` may be given
        to save the time to make it again."""
        self._records, self._identity, self._roster = records, identity, roster
        self._index = place_of(identity, roster)
        self._plan = plan or method.agreed_plan
        if ledger is not None:
            self._plan.check_masked()  # what leaves in the clear has no cost that could be charged
        check_bounded(self._plan.study, records)
        self._contributor, self._largest_request = Contributor(method, self._plan), largest_request(method, self._plan)
        self.largest = max(self._largest_request, largest_of_study(self._plan))
        self._root_of = root_of or (lambda attempt: os.urandom(KEY_BYTES))
        self._course: Course | None = None
        self._ledger, self.gate = ledger, Gate()
        super().__init__(store, _State)
        self._name_run()

    def _name_run(self) -> None:
        """Give the run its name in the ledger, before anything is asked, or refuse to go on with another ledger."""
        state, ledger = self._state, self._ledger
        is_other = state.charged and ledger is not None and not ledger.holds(state.run)
        if is_other or (state.last and (ledger is None) != (not state.run)):
            begun = "another ledger, or another data set" if is_other else "a ledger" if state.run else "no ledger"
            raise StoreError(f"the study was begun with {begun}: go on with the same, so that no spend is missed.")
        if ledger is not None and state.run:
            check_newest(ledger.attempts(state.run), state.announced)
        if ledger is not None and not state.run:
            check_new(self._plan, self._identity, ledger)
            state.run = run_name(self._plan, self._identity)
            self._keep(lambda: self._keeper.replace(self._snapshot(*self._last)))

    @property
    def _attempt(self) -> bytes | None:
        return None if self._state.current is None else self._state.current.ask.attempt

    @property
    def has_sent(self) -> bool:
        """Whether the vector of the attempt under way has left."""
        return self._state.current is not None and self._state.current.spent

    @property
    def sent(self) -> dict[str, int]:
        """The number of this party's vectors that have left for each total, by its name."""
        return dict(self._state.sent)

    def leave(self) -> None:
        self.gate.close()

    def _begin(self, ask: Ask) -> list[Envelope]:
        """Begin a new attempt, and send nothing more of the one before."""
        if ask.attempt <= self._state.last:
            raise Refused(f'the request for "{ask.name}" comes with an attempt that is not newer than those before.')
        request = request_of(ask)
        self._check(request, ask)
        if not self._state.last:
            check_clock(ask.attempt)
        self._check_limit(request, ask.attempt)
        self._state.last = ask.attempt
        counts = self._counts_of(request, ask.turn)
        self._state.turns[request.counted_as] = msgspec.structs.replace(counts, begun=counts.begun + 1)
        self._state.current = current = _Attempt(ask, self._root_of(ask.attempt))
        self._open(current)
        return self._step(b"").envelopes

    def _check(self, request: Request, ask: Ask) -> None:
        """Refuse a request unless the plan has it at this point."""
        # A party that was away may have missed turns; it never goes back to one.
        known = self._state.turns.get(request.counted_as, _TurnCounts())
        turn = max(known.turn + (known.spent >= self._plan.attempts), ask.turn)
        most = self._plan.attempts + FREE_ATTEMPTS
        if self._counts_of(request, ask.turn).begun >= most:
            raise Refused(f'turn {ask.turn} of "{ask.name}" was begun {most} times, which is as often as planned.')
        if isinstance(request, Tokens | ZeroSum | Cancel):
            check_planned(self._plan, request, turn)
            if ask.turn != turn:
                raise Refused(f'turn {ask.turn} of "{ask.name}" is over: it is not made again.')
            if isinstance(request, Cancel) and turn not in self._state.prepared.get(request.name, {}):
                raise Refused(f'there is no message of turn {turn} of "{ask.name}" with noise to be added up.')
        elif isinstance(request, PartyRequest):
            self._contributor.check(request, turn)
            self._check_before(request)

    def _counts_of(self, request: Request, turn: int) -> _TurnCounts:
        """The numbers of attempts at this turn so far."""
        known = self._state.turns.get(request.counted_as, _TurnCounts())
        return known if known.turn == turn else _TurnCounts(turn)

    def _check_before(self, request: PartyRequest) -> None:
        """Refuse a request that is not for this party, or whose preparation (noise, tokens) is missing."""
        planned, tokens = self._plan.sum_named(request.name), self._state.tokens
        if isinstance(request, Collect) and request.only not in (None, self._index):
            raise Refused(f'the request for "{request.name}" is for party {request.only} alone.')
        if planned.noise.prepares and request.turn not in self._state.prepared.get(request.name, {}):
            raise Refused(f'no noise was prepared for turn {request.turn} of "{request.name}".')
        if planned.draws_by_tokens and (tokens is None or tokens.turn != request.turn):
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
        """The vector that this party puts into the sum. Without seeds no noise is added."""
        if self._repeats:
            raise RuntimeError("A vector is never made again.")
        own = PartyInput(secrets, seeds, self._common(request, secrets), self._positions())
        return self._contributor.vectors(request, [own], lambda: self._records)[0]

    def _common(self, request: Request, secrets: PartySecrets) -> SecretStream | None:
        """The stream of the noise that cancels against the other parties': prepared before the message, or drawn with
        it and added up afterwards."""
        if isinstance(request, PartyRequest) and self._plan.sum_named(request.name).noise.cancels:
            return secrets.common(request.turn)
        key = self._state.prepared.get(request.name, {}).get(request.turn)
        return None if key is None else SecretStream(key)

    def _step(self, body: bytes) -> Reaction:
        course, current = self._course, self._state.current
        if course is None or current is None:
            raise RuntimeError("There is no attempt under way.")
        had_forgotten = course.endpoint.has_forgotten
        envelopes = course.step(body)
        is_new = (bool(envelopes) and not course.repeatable) or course.endpoint.has_forgotten != had_forgotten
        if course.spent and not current.spent:
            with self.gate.passed(self._restore):
                self._charge(current)
                self._spend(current)
            is_new = True
        if (found := course.positions()) is not None:
            self._state.tokens = _Tokens(current.ask.turn, found.places.tobytes(), found.count, str(found.seed))
            self._forget()
            is_new = True
        return Reaction(envelopes, is_new)

    def _forget(self) -> None:
        self._state.current = self._course = None
        self._largest = self._largest_request

    @property
    def address(self) -> str:
        return address_of(self._index)

    @property
    def run(self) -> str:
        """The name of this run in the ledger; nothing without one."""
        return self._state.run

    def _check_limit(self, request: Request, attempt: bytes) -> None:
        """Refuse a request whose vector would exceed the ledger's limit; the first one if the whole study would."""
        if self._ledger is None or not isinstance(request, PartyRequest):
            return
        plan, index = self._plan, self._index
        costs = plan.costs_of_a_vector(request.name, index) if self._state.charged else plan.costs_of(index)
        check_costs(self._ledger, plan.ledger_run(self._state.run, seat=True), attempt, costs)

    def _charge(self, current: _Attempt) -> None:
        """Charge the ledger for a vector that is about to leave. Common noise and tokens cost nothing by themselves."""
        request = request_of(current.ask)
        if self._ledger is None or not isinstance(request, PartyRequest):
            return
        attempt, run = current.ask.attempt.hex(), self._plan.ledger_run(self._state.run, seat=True)
        is_first = not {*self._ledger.attempts(run.identifier)} - {attempt}
        costs = self._plan.costs_of_a_vector(request.name, self._index, is_first)
        if current.ask.attempt > self._state.announced:
            self._keeper.note(current.ask.attempt)
            self._state.announced = current.ask.attempt
        try:
            self._ledger.charge(run, attempt, costs)
        except OverLimit as error:
            # Another study was charged meanwhile. The vector has not left, and is forgotten.
            self._restore()
            raise LimitReached(str(error)) from None
        self._state.charged = True

    def _spend(self, current: _Attempt) -> None:
        """Count a vector that is about to leave, and forget its secrets and the preparations that it used up."""
        request, state, turn = request_of(current.ask), self._state, current.ask.turn
        state.turns[request.counted_as].spent += 1
        if isinstance(request, PartyRequest):
            state.sent[request.name] = state.sent.get(request.name, 0) + 1
        if isinstance(request, ZeroSum):
            secrets, turns = self._secrets(current), range(self._plan.sum_named(request.name).count)
            state.prepared[request.name] = {turn: secrets.common_key(turn) for turn in turns}
        elif isinstance(request, PartyRequest) and self._plan.sum_named(request.name).noise.cancels:
            # The noise of an earlier message is forgotten: a party that sends another message adds up the noise of that
            # one alone.
            state.prepared[request.name] = {turn: self._secrets(current).common_key(turn)}
        elif keys := state.prepared.get(current.ask.name):
            state.prepared[current.ask.name] = {later: key for later, key in keys.items() if later > turn}
        if isinstance(request, PartyRequest) and self._plan.sum_named(request.name).draws_by_tokens:
            state.tokens = None
        current.root, current.spent = b"", True

    def _positions(self) -> TokenPositions | None:
        if (tokens := self._state.tokens) is None:
            return None
        return TokenPositions(np.frombuffer(tokens.places, dtype=np.int64), tokens.count, int(tokens.seed))

    def _secrets(self, current: _Attempt) -> PartySecrets:
        # When the root is forgotten, an endpoint's further randomness, if any, is new.
        return PartySecrets(current.root or os.urandom(KEY_BYTES), self._index)

    def _snapshot(self, incoming: bytes, envelopes: list[Envelope]) -> _State:
        if (current := self._state.current) is not None and self._course is not None:
            current.endpoint, current.asked, current.answer = self._course.endpoint.dump(), incoming, envelopes
        return self._state

    def _load(self) -> tuple[bytes, list[Envelope]]:
        self._course, self._largest = None, self._largest_request
        self._state.announced = max(self._state.announced, self._keeper.noted)
        if (current := self._state.current) is None:
            return b"", []
        self._open(current).endpoint.load(current.endpoint)
        return current.asked, current.answer
