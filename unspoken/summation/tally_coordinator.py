"""The coordinator's side of a vote: it names the parties to count, relays between talliers, and learns the winners.

See `tally` for the protocol and its security.
"""

from __future__ import annotations

from typing import NoReturn

import msgspec
import numpy as np

from unspoken.summation.ballots import (
    Agreed,
    Count,
    Framed,
    FromTallier,
    Held,
    Opening,
    PeerMessage,
    Poll,
    Roll,
    ToTallier,
    address,
    statement,
)
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Envelope,
    Rejected,
    Roster,
    SignedStatement,
    address_of,
)
from unspoken.summation.incoming import bitmap, check_label, check_survivors, decode
from unspoken.summation.keys import Channel, Identity, agreement_key, verify
from unspoken.summation.replicated import Group
from unspoken.summation.tally_agreement import approved
from unspoken.types import Flags, Integers, Words


class CoordinatorState(msgspec.Struct):
    settled: np.ndarray
    asked: list[int] = []
    """The talliers that have not named their ballots since they were last asked"""
    held: dict[int, list[int]] = {}
    """The senders of each tallier's ballots, in the order of their arrival"""
    keys: dict[int, tuple[int, bytes, bytes]] = {}
    """Of each party: the tallier that first named its one-time key, the key and the signature"""
    second_keys: dict[int, tuple[bytes, bytes]] = {}
    """Another key of the same party, and its signature: a party that has one is left out"""
    counting: bytes = b""
    """The parties to count, once they are fixed"""
    counted: bytes = b""
    agreed: list[int] = []
    begun: bool = False
    """True once the talliers were asked to count"""
    relayed: dict[int, int] = {}
    """The number of messages that each tallier sent to others"""
    openings: dict[int, bytes] = {}
    failed: str = ""
    guilty: tuple[str, ...] = ()
    """The talliers to blame for the failure, as far as that is known"""


class TallyCoordinator(Coordinator):
    """Relays the talliers' sealed messages, names the parties to count, and learns the winners."""

    def __init__(self, poll: Poll, roster: Roster, identity: Identity) -> None:
        self._poll, self._session, self._sharing = poll, poll.session, poll.sharing
        self._roster, self._identity = roster, identity
        # Those of all rounds, and the shares of the winners.
        self.helper_messages = poll.rounds + 1
        self._channels = [
            Channel(
                identity.agreement_secret, agreement_key(public), self._session.label(), COORDINATOR, address(tallier)
            )
            for tallier, public in enumerate(roster.helpers)
        ]
        self.state: CoordinatorState = CoordinatorState(settled=np.zeros(poll.parties, dtype=np.bool_))

    def settle(self) -> list[Envelope]:
        """Ask which ballots have arrived; may be repeated until the list is fixed."""
        if self.state.counting:
            return []
        self.state.asked = list(self._talliers)
        return [self._to(tallier, Roll(len(self.state.held.get(tallier, [])))) for tallier in self._talliers]

    def agree(self) -> list[Envelope]:
        """Fix the parties whose ballots all talliers hold, under the same keys, and have the talliers agree on them."""
        return self._to_all(self._count(begin=False))

    def finish(self) -> list[Envelope]:
        """Ask the talliers to count what they agree on; they begin when all of them do."""
        count = self._count(begin=True)
        self.state.begun = True
        return self._to_all(count)

    @property
    def blamed(self) -> dict[str, str]:
        """The parties that were left out because they signed two one-time keys."""
        reason = "it gave talliers ballots under two different keys, and signed both"
        return {address_of(party): reason for party in sorted(self.state.second_keys)}

    @property
    def evidence(self) -> tuple[SignedStatement, ...]:
        """The two signed statements of each of these parties."""
        found, label = [], self._session.label()
        for party, second in sorted(self.state.second_keys.items()):
            for key, signature in (self.state.keys[party][1:], second):
                found.append(SignedStatement(address_of(party), statement(label, party, key), signature))
        return tuple(found)

    def step(self, incoming: bytes) -> list[Envelope]:
        self._check_alive()
        if not incoming:
            return []
        framed: Framed = decode(self._poll.sized(incoming), Framed)
        check_label(framed.session, self._session)
        if framed.tallier not in self._talliers:
            raise Rejected(f"a message came from tallier {framed.tallier}; there are {len(self._talliers)}")
        message: FromTallier = decode(self._channels[framed.tallier].unwrap(framed.body), FromTallier)
        match message:
            case PeerMessage():
                return self._relay(framed.tallier, message)
            case Held():
                self._gather(framed.tallier, message)
            case Agreed():
                self._confirm(framed.tallier, message)
            case Opening():
                self._take(framed.tallier, message)
        return []

    @property
    def waiting_for(self) -> list[str]:
        """The talliers that delay the vote: of those that owe an answer, the ones that sent the fewest messages."""
        silent = self._unopened if self.state.begun else self._undecided if self.state.counting else self.state.asked
        least = min((self.state.relayed.get(tallier, 0) for tallier in silent), default=0)
        return [address(tallier) for tallier in silent if self.state.relayed.get(tallier, 0) == least]

    def survivors(self) -> Flags:
        """A flag for each party: whether it is counted."""
        return self.state.settled

    def winners(self) -> Integers:
        """The class with the largest total for each query; `Aborted` unless all talliers have opened it."""
        self._check_alive()
        if missing := [address(tallier) for tallier in self._unopened]:
            # With the shares of one other tallier, t curious talliers and the coordinator know the winners.
            known = "count the vote as spent" if self.state.openings else "nothing was revealed"
            raise Aborted(f"no shares of the winners came from {', '.join(missing)}; {known}")
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

    @property
    def _undecided(self) -> list[int]:
        return [tallier for tallier in self._talliers if tallier not in self.state.agreed]

    def _check_alive(self) -> None:
        if self.state.failed:
            raise Aborted(self.state.failed, self.state.guilty)

    def _fail(self, reason: str, *guilty: int) -> NoReturn:
        self.state.failed, self.state.guilty = reason, tuple(map(address, guilty))
        raise Aborted(reason, self.state.guilty)

    def _count(self, begin: bool) -> Count:
        """The request to count. Its list is fixed the first time and never changes."""
        self._check_alive()
        state = self.state
        if not state.counting:
            if missing := [address(tallier) for tallier in self._talliers if tallier not in state.held]:
                # Others may only lack what the silent one did not send them: these are not to blame.
                silent = self.waiting_for or missing
                raise Aborted(f"no list of ballots came from {', '.join(silent)}; nothing was revealed", tuple(silent))
            try:
                check_survivors(int(state.settled.sum()), self._session)
            except Aborted as error:
                raise Aborted(str(error), self.blamed, self.evidence) from None
            state.counting = bitmap(state.settled)
        keys = (state.keys[int(party)][1] for party in np.flatnonzero(state.settled))
        count = approved(self._identity, self._session.label(), state.counting, keys, begin)
        state.counted = count.counted
        return count

    def _relay(self, sender: int, message: PeerMessage) -> list[Envelope]:
        if message.peer not in self._talliers or message.peer == sender:
            raise Rejected(f"{address(sender)} wrote to tallier {message.peer}, which is not another tallier")
        self.state.relayed[sender] = self.state.relayed.get(sender, 0) + 1
        return [self._to(message.peer, PeerMessage(sender, message.number, message.body))]

    def _gather(self, tallier: int, held: Held) -> None:
        """Settle on the parties whose ballots all talliers hold, each under one key."""
        state, known = self.state, self.state.held.get(tallier, [])
        if state.counting:
            raise Rejected(f"{address(tallier)} named its ballots after the count had begun")
        if not 0 <= held.start <= len(known):
            raise Rejected(f"{address(tallier)} named its ballots from {held.start} on; {len(known)} are known")
        senders = known[: held.start] + [sender for sender, _, _ in held.ballots]
        if not set(senders) <= set(range(self._poll.parties)) or len(set(senders)) != len(senders):
            raise Rejected(f"{address(tallier)} has ballots of parties that are not in the study, or two of one")
        for sender, key, signature in held.ballots:
            self._compare(tallier, sender, key, signature)
        state.held[tallier] = senders
        state.asked = [other for other in state.asked if other != tallier]
        if len(state.held) == len(self._talliers):
            everywhere = set.intersection(*map(set, state.held.values())) - set(state.second_keys)
            state.settled[:] = False
            state.settled[list(everywhere)] = True

    def _compare(self, tallier: int, party: int, key: bytes, signature: bytes) -> None:
        """Compare a party's key with what another tallier said, and remember two that the party signed."""
        first, known, signed = self.state.keys.setdefault(party, (tallier, key, signature))
        if key == known or party in self.state.second_keys:
            return
        for witness, claim in ((first, (known, signed)), (tallier, (key, signature))):
            try:
                verify(self._roster.parties[party], statement(self._session.label(), party, claim[0]), claim[1], "")
            except Rejected:
                self._fail(f"{address(witness)} names a key of party {party} that the party never signed", witness)
        self.state.second_keys[party] = key, signature

    def _confirm(self, tallier: int, agreed: Agreed) -> None:
        if not self.state.counting or agreed.counted != self.state.counted:
            raise Rejected(f"{address(tallier)} agreed on a list that it was not asked to count")
        if tallier not in self.state.agreed:
            self.state.agreed.append(tallier)

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
                    # Which of them lies cannot be told: words between talliers are known to these only.
                    self._fail(f"{address(first)} and {address(other)} opened different shares of the winners")
        if (self._combined() >= self._poll.classes).any():
            self._fail("the talliers opened winners that are not classes; one of them computed wrongly")

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
