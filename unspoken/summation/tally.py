"""A secure vote: talliers find, for each query, the class with the largest total, and open nothing else.

Each party has ballots of Q queries × K classes, integers that include its share of the noise. It splits them into n
parts that add up to them modulo 2⁶⁴, one for each of n = 2t + 1 talliers: n − 1 parts are 32-byte seeds and one is
explicit, so a party uploads one vector. Each tallier adds the parts of the same parties. In the first round the
talliers make a replicated sharing of the n sums (see `replicated`), and on it they compute the argmax (see `argmax`).
With three talliers this takes 1 + 11·⌈log₂ K⌉ rounds (13 with five, 14 with seven); in each, every tallier sends one
message to the t before it.

Security. At most t curious talliers, together with the coordinator and any parties, see uniformly random words and the
winners. Nothing opens below the agreed number of parties. Talliers that were given different lists, or got messages of
one party that do not belong together, notice it before they combine anything. No two talliers get the same part, so
whatever a party sends is some ballot, and cannot make shares inconsistent. (If a party sent all C(n, t) shares itself,
talliers would have to compare them and add C(n − 1, t) times as much, and any t + 1 would know its ballot.) Messages
between talliers are sealed under keys made for this vote, so the coordinator that relays them sees only their length;
an altered, repeated or misdirected one is rejected. If a tallier dies there is no result. But once the first tallier
has opened its shares, curious ones may know the winners, so count a vote as spent once its count has begun.

Limits. Any t + 1 talliers together know the totals, and all n every ballot. A tallier that deviates can change the
winners: inconsistent shares are noticed at the opening, but a wrong word before it may not be. (The output still
depends on the ballots only through their noisy totals, so a guarantee that would allow to publish these still holds.) A
party can vote with any numbers. That only one list is ever counted rests on the talliers' states: dump before sending.

Ties. Before ballots are combined, the talliers commit to seeds, and they reveal them with the list of parties. Together
the seeds give each query an order of the classes; among equal totals the first in that order wins, so each has the same
probability.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from pydantic import Field

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.ballots import (
    Ballot,
    Count,
    Framed,
    FromTallier,
    Held,
    Opening,
    Poll,
    Relay,
    Roll,
    TallyParty,
    ToTallier,
    address,
    explicit_part,
)
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Envelope,
    Openable,
    Protocol,
    Rejected,
    Roster,
    Session,
    Unsuitable,
    bitmap,
    check_label,
    check_survivors,
    decode,
)
from unspoken.summation.keys import PUBLIC_BYTES, SIGNATURE_BYTES, TAG_BYTES, Channel, Identity
from unspoken.summation.replicated import Group
from unspoken.summation.tallier import Tallier, TallierSetup
from unspoken.types import Flags, Integers, Words

__all__ = ["Poll", "Tallier", "Tally", "TallyCoordinator", "TallyParty"]


class Options(Section):
    """The keys of [summation] for a secure vote."""

    talliers: Literal[3, 5, 7] = Field(
        3, description="3, 5 or 7: the number of talliers, of which fewer than half may be curious"
    )
    deadline: float = Field(
        60.0,
        gt=0.0,
        le=3600.0,
        description="a number above 0 and up to 3600: the seconds within which a tallier must answer",
    )


class CoordinatorState(msgspec.Struct):
    settled: np.ndarray
    asked: list[int] = []
    """The talliers that have not named their ballots since they were last asked"""
    held: dict[int, list[int]] = {}
    counting: bytes = b""
    relayed: dict[int, int] = {}
    """The number of messages that each tallier sent to others"""
    openings: dict[int, bytes] = {}
    failed: str = ""


class TallyCoordinator(Coordinator):
    """Relays the talliers' sealed messages, names the parties to count, and learns the winners."""

    def __init__(self, poll: Poll, roster: Roster, secret: bytes) -> None:
        self._poll, self._session, self._sharing = poll, poll.session, poll.sharing
        self._channels = [
            Channel(secret, key, self._session.label(), COORDINATOR, address(tallier))
            for tallier, key in enumerate(roster.helpers)
        ]
        self.state: CoordinatorState = CoordinatorState(settled=np.zeros(poll.parties, dtype=np.bool_))

    def settle(self) -> list[Envelope]:
        """Ask which ballots have arrived; may be repeated until the count begins."""
        if self.state.counting:
            return []
        self.state.asked = list(self._talliers)
        return self._to_all(Roll())

    def finish(self) -> list[Envelope]:
        """Ask the talliers to count the ballots that all of them hold."""
        if not self.state.counting:
            if missing := [address(tallier) for tallier in self._talliers if tallier not in self.state.held]:
                raise Aborted(f"no list of ballots came from {', '.join(missing)}; nothing was revealed")
            check_survivors(int(self.state.settled.sum()), self._session)
            self.state.counting = bitmap(self.state.settled)
        return self._to_all(Count(self.state.counting))

    def step(self, incoming: bytes) -> list[Envelope]:
        if self.state.failed:
            raise Aborted(self.state.failed)
        if not incoming:
            return []
        framed: Framed = decode(incoming, Framed)
        check_label(framed.session, self._session)
        if framed.tallier not in self._talliers:
            raise Rejected(f"a message came from tallier {framed.tallier}; there are {len(self._talliers)}")
        message: FromTallier = decode(self._channels[framed.tallier].unwrap(framed.body), FromTallier)
        match message:
            case Relay():
                return self._relay(framed.tallier, message)
            case Held():
                self._gather(framed.tallier, message)
            case Opening():
                self._take(framed.tallier, message)
        return []

    @property
    def waiting_for(self) -> list[str]:
        """The talliers that delay the vote: of those that owe an answer, the ones that sent the fewest messages."""
        silent = self._unopened if self.state.counting else self.state.asked
        least = min((self.state.relayed.get(tallier, 0) for tallier in silent), default=0)
        return [address(tallier) for tallier in silent if self.state.relayed.get(tallier, 0) == least]

    def survivors(self) -> Flags:
        """A flag for each party: whether it is counted."""
        return self.state.settled

    def winners(self) -> Integers:
        """The class with the largest total for each query; `Aborted` unless all talliers have opened it."""
        if self.state.failed:
            raise Aborted(self.state.failed)
        if self._unopened:
            missing = ", ".join(address(tallier) for tallier in self._unopened)
            # With the shares of one other tallier, t curious talliers and the coordinator know the winners.
            known = "count the vote as spent" if self.state.openings else "nothing was revealed"
            raise Aborted(f"no shares of the winners came from {missing}; {known}")
        return self._combined().astype(np.int64)

    def total(self) -> Words:
        """The winners, under the name by which an engine asks for a result."""
        return self.winners().astype(np.uint64)

    @property
    def _talliers(self) -> range:
        return range(self._poll.talliers)

    @property
    def _unopened(self) -> list[int]:
        return [tallier for tallier in self._talliers if tallier not in self.state.openings]

    def _relay(self, sender: int, relay: Relay) -> list[Envelope]:
        if relay.peer not in self._talliers or relay.peer == sender:
            raise Rejected(f"{address(sender)} wrote to tallier {relay.peer}, which is not another tallier")
        self.state.relayed[sender] = self.state.relayed.get(sender, 0) + 1
        return [self._to(relay.peer, Relay(sender, relay.number, relay.body))]

    def _gather(self, tallier: int, held: Held) -> None:
        """Settle on the parties whose ballots all talliers hold."""
        state = self.state
        if state.counting:
            raise Rejected(f"{address(tallier)} named its ballots after the count had begun")
        if not set(held.senders) <= set(range(self._poll.parties)):
            raise Rejected(f"{address(tallier)} has ballots of parties that are not in the study")
        state.held[tallier] = held.senders
        state.asked = [other for other in state.asked if other != tallier]
        if len(state.held) == len(self._talliers):
            state.settled[:] = False
            state.settled[list(set.intersection(*map(set, state.held.values())))] = True

    def _take(self, tallier: int, opening: Opening) -> None:
        if not self.state.counting or tallier in self.state.openings:
            raise Rejected(f"{address(tallier)} opened its shares of the winners twice, or unasked")
        if len(opening.shares) != 8 * self._poll.queries * len(self._sharing.held(tallier)):
            raise Rejected(f"{address(tallier)} opened shares of the wrong size for {self._poll.queries} winners")
        self.state.openings[tallier] = bytes(opening.shares)
        if not self._unopened:
            self._check_openings()

    def _check_openings(self) -> None:
        """Check that the t + 1 holders of each share have opened the same, and that winners are classes."""
        for group in self._sharing.groups:
            first, *others = self._sharing.holders(group)
            for other in others:
                if not np.array_equal(self._opened(first, group), self._opened(other, group)):
                    who = f"{address(first)} and {address(other)}"
                    self.state.failed = f"{who} opened different shares of the winners"
        if not self.state.failed and (self._combined() >= self._poll.classes).any():
            self.state.failed = "the talliers opened winners that are not classes; one of them computed wrongly"
        if self.state.failed:
            raise Aborted(self.state.failed)

    def _opened(self, tallier: int, group: Group) -> Words:
        """A share of the winners as opened by one of its holders."""
        shares = np.frombuffer(self.state.openings[tallier], "<u8").reshape(-1, self._poll.queries)
        words: Words = shares[self._sharing.held(tallier).index(group)]
        return words

    def _combined(self) -> Words:
        total = np.zeros(self._poll.queries, dtype=np.uint64)
        for group in self._sharing.groups:
            total += self._opened(self._sharing.first_holder(group), group)
        return total

    def _to_all(self, message: ToTallier) -> list[Envelope]:
        return [self._to(tallier, message) for tallier in self._talliers]

    def _to(self, tallier: int, message: ToTallier) -> Envelope:
        body = memoryview(self._channels[tallier].wrap(msgspec.msgpack.encode(message)))
        return Envelope(address(tallier), msgspec.msgpack.encode(Framed(self._session.label(), tallier, body)))


class Tally(Protocol):
    """A vote instead of a sum; its session must have the shape of a vote."""

    options_type = Options
    serves = frozenset({"vote"})

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        if (vote := session.vote) is None:
            raise Unsuitable(
                "summation.protocol",
                'is "tally", which only counts votes, but the method needs sums; use a protocol for sums, such as '
                '"compute-nodes"',
            )
        facts = (session.study, session.name, session.parties, session.least_survivors)
        shape = (vote.queries, vote.classes, vote.bound)
        self.poll = Poll(*facts, *shape, talliers=options.talliers, attempt=session.attempt)
        self.deadline = options.deadline
        """The seconds within which a tallier must answer"""
        super().__init__(self.poll.session, options, roster)

    @property
    def assumptions(self) -> tuple[str, ...]:
        count, curious = self.poll.talliers, self.poll.sharing.threshold
        words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 7: "seven"}
        are, others = "is" if curious == 1 else "are", words[count - curious]
        return (
            f"at most {words[curious]} of the {words[count]} talliers {are} curious, and the other {others} keep to "
            "themselves what they receive",
            f"all {words[count]} talliers compute as agreed (one that does not can change winners)",
        )

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    @property
    def parameters(self) -> dict[str, int]:
        return {"bits": 64, "talliers": self.poll.talliers, "rounds": self.poll.rounds}

    def upload_bytes(self) -> int:
        """The bytes of one party: masked ballots for one tallier, seeds of the masks for the others."""
        last, explicit = self.poll.parties - 1, explicit_part(self.poll.parties - 1, self.poll)
        label, sender = sizes.of_text(self.session.label()), sizes.of_integer(last)
        key, signature = sizes.of_bytes(PUBLIC_BYTES), sizes.of_bytes(SIGNATURE_BYTES)
        plain = [self.session.vector_bytes if index == explicit else KEY_BYTES for index in range(self.poll.talliers)]
        return sum(
            sizes.of_message(
                Ballot, label, sender, sizes.of_integer(index), key, signature, sizes.of_bytes(size + TAG_BYTES)
            )
            for index, size in enumerate(plain)
        )

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        return tuple(address(index) for index in range(self.poll.talliers))

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> TallyParty:
        return TallyParty(self.poll, self.roster, index, identity, secrets)

    def coordinator(self, secret: bytes, secrets: SecretStream) -> TallyCoordinator:
        return TallyCoordinator(self.poll, self.roster, secret)

    def helper(self, index: int, secret: bytes, secrets: SecretStream) -> Tallier:
        return Tallier(self.poll, self.roster, index, secret, secrets)

    def setup(self, index: int, secret: bytes, root: bytes) -> TallierSetup:
        """Everything that a tallier needs to begin in another process; its secrets are drawn from `root`."""
        roster = self.roster
        return TallierSetup(self.poll, list(roster.parties), roster.coordinator, roster.helpers, index, secret, root)
