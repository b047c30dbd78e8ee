"""The tallier's side of a vote: it keeps shares of ballots, and computes the winners with the two other talliers.

See `tally` for the protocol and for what it protects against whom. The computation is a generator, which cannot be
dumped; the words that it was sent can, and given them again it comes to the same point and says the same.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np

from tacit.noise.stream import KEY_BYTES, SecretStream
from tacit.summation.ballots import (
    AGREEMENT,
    FIRST_ROUND,
    INTRODUCTION,
    Agreement,
    Ballot,
    Count,
    Framed,
    FromTallier,
    Held,
    Introduction,
    Opening,
    Poll,
    Relay,
    Roll,
    ToTallier,
    address,
    commitment,
    explicit_share,
    sealing_key,
    statement,
)
from tacit.summation.base import (
    COORDINATOR,
    Aborted,
    Endpoint,
    Envelope,
    Rejected,
    Roster,
    check_label,
    check_sender,
    check_survivors,
    decode,
    from_bitmap,
)
from tacit.summation.keys import Channel, agree, public_key, seal, unseal, verify
from tacit.summation.masks import add_masks
from tacit.summation.replicated import TALLIERS, Array, Computation, Rounds, Shares, ZeroShares, orders


class TallierState(msgspec.Struct):
    secret: bytes
    """The key for this vote only"""
    seed: bytes
    begun: bool = False
    asked: bool = False
    """Does the coordinator wait to hear whose ballots there are?"""
    ballots: dict[int, tuple[bytes, bytes]] = {}
    """A party's one-time key, and the shares that it sent"""
    peers: dict[int, Introduction] = {}
    agreements: dict[int, Agreement] = {}
    survivors: bytes = b""
    early: dict[int, bytes] = {}
    """Words of rounds that this tallier has not come to"""
    received: list[bytes] = []
    """The words of all rounds so far: with them the computation can be done again up to here"""
    opening: bytes = b""
    failed: str = ""


class Tallier(Endpoint):
    """A helper's side. It begins by itself, or when it first hears from the coordinator."""

    def __init__(self, poll: Poll, roster: Roster, index: int, key: bytes, secrets: SecretStream) -> None:
        self._poll, self._roster, self._index, self._key = poll, roster, index, key
        self._session, self._label = poll.session, poll.session.label()
        self._before, self._after = (index - 1) % TALLIERS, (index + 1) % TALLIERS
        self._channel = Channel(key, roster.coordinator, self._label, address(index), COORDINATOR)
        self._introductions = {
            peer: Channel(key, roster.helpers[peer], self._label, address(index), address(peer))
            for peer in (self._before, self._after)
        }
        self._computation: Rounds[Shares] | None = None
        self._sent: Array = np.zeros(0, dtype=np.uint64)
        self.state: TallierState = TallierState(secrets.key(), secrets.key())

    def load(self, dumped: bytes) -> None:
        super().load(dumped)
        self._computation = None
        if self._agreed and not self.state.opening and not self.state.failed:
            self._start()
            for words in self.state.received:
                self._resume(words)

    def step(self, incoming: bytes) -> list[Envelope]:
        if self.state.failed:
            raise Aborted(self.state.failed)
        try:
            return self._step(incoming)
        except Aborted as error:
            self.state.failed = str(error)
            raise

    def _step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return self._begin()
        message: Ballot | Framed = decode(incoming, Ballot | Framed)
        check_label(message.session, self._session)
        if message.tallier != self._index:
            raise Rejected(f"a message for tallier {message.tallier} came to tallier {self._index}")
        if isinstance(message, Ballot):
            self._take(message)
            return []
        request: ToTallier = decode(self._channel.unwrap(message.body), ToTallier)
        match request:
            case Roll():
                self.state.asked = True
                return self._begin() + self._held()
            case Count():
                return self._count(request)
            case Relay():
                return self._hear(request)

    def _begin(self) -> list[Envelope]:
        """Tell the other talliers a key for this vote, once."""
        if self.state.begun:
            return []
        self.state.begun = True
        mine = Introduction(public_key(self.state.secret), commitment(self._label, self._index, self.state.seed))
        body = msgspec.msgpack.encode(mine)
        return [
            self._answer(Relay(peer, INTRODUCTION, memoryview(channel.wrap(body))))
            for peer, channel in self._introductions.items()
        ]

    def _take(self, ballot: Ballot) -> None:
        """Check who sent it, open it, and keep it until it is counted."""
        if self.state.survivors:
            raise Rejected("a ballot came after the count had begun")
        heard = np.zeros(self._poll.parties, dtype=np.bool_)
        heard[list(self.state.ballots)] = True
        check_sender(ballot.sender, self._session, heard)
        who = f"party {ballot.sender}"
        signed = statement(ballot.session, ballot.sender, ballot.key)
        verify(self._roster.parties[ballot.sender], signed, ballot.signature, who)
        sealing = sealing_key(self._key, ballot.key, ballot.key, ballot.session, ballot.sender, self._index)
        plain = unseal(sealing, 0, ballot.sealed, who)
        explicit = 8 * self._session.length + KEY_BYTES
        due = (explicit, 2 * KEY_BYTES, KEY_BYTES)[(self._index - explicit_share(ballot.sender)) % TALLIERS]
        if len(plain) != due:
            raise Rejected(f"{who} sent shares of {len(plain)} bytes; {due} were due")
        self.state.ballots[ballot.sender] = ballot.key, plain

    def _held(self) -> list[Envelope]:
        """Answer the coordinator's roll, once the other talliers are known."""
        if not self.state.asked or len(self.state.peers) < TALLIERS - 1:
            return []
        self.state.asked = False
        return [self._answer(Held(sorted(self.state.ballots)))]

    def _count(self, count: Count) -> list[Envelope]:
        """Fix the list of parties: there is one only, as two would reveal a difference."""
        state = self.state
        survivors = from_bitmap(count.survivors, self._poll.parties)
        if state.survivors:
            if state.survivors != count.survivors:
                raise Aborted("the coordinator asks to count a second, different list of parties; it gets nothing")
            return [self._framed(state.opening)] if state.opening else []
        if len(state.peers) < TALLIERS - 1:
            raise Rejected("the coordinator asks for a count before the talliers know each other")
        check_survivors(int(survivors.sum()), self._session)
        counted = [int(party) for party in np.flatnonzero(survivors)]
        if not state.ballots.keys() >= set(counted):
            raise Rejected("the coordinator asks to count parties that this tallier has not heard from")
        state.survivors = count.survivors
        state.ballots = {party: state.ballots[party] for party in counted}
        sent = []
        for peer in (self._before, self._after):
            agreement = Agreement(self._counted(), list(self._common(peer).values()), state.seed)
            sent.append(self._to_peer(peer, AGREEMENT, msgspec.msgpack.encode(agreement)))
        return sent + self._go_on()

    def _counted(self) -> bytes:
        """Digest of the parties that are counted, and of the one-time keys that tell which of their messages."""
        keys = b"".join(key for key, _ in self.state.ballots.values())
        return hashlib.sha256(self._label.encode() + self.state.survivors + keys).digest()

    def _common(self, peer: int) -> dict[int, bytes]:
        """Digests of the seeds that this tallier and another one hold, by party."""
        share = self._index if peer == self._before else peer
        return {
            party: hashlib.sha256(self._seed_of(party, share)).digest()[:16]
            for party in self.state.ballots
            if explicit_share(party) != share
        }

    def _seed_of(self, party: int, share: int) -> bytes:
        """A share that is a seed: the first that was sent or, in all cases but one, the last."""
        plain = self.state.ballots[party][1]
        return plain[:KEY_BYTES] if share == self._index else plain[-KEY_BYTES:]

    def _hear(self, relay: Relay) -> list[Envelope]:
        """Another tallier's message: open it, and go on if it is what was waited for."""
        state, peer, number = self.state, relay.peer, relay.number
        if peer not in self._introductions:
            raise Rejected(f"a message came from tallier {peer} to tallier {self._index}")
        if state.opening:
            raise Rejected(f"message {number} of {address(peer)} came after the winners were opened")
        if number == INTRODUCTION:
            return self._meet(peer, relay.body)
        last = AGREEMENT if peer == self._before else FIRST_ROUND + self._poll.rounds - 1
        if peer not in state.peers or not AGREEMENT <= number <= last:
            raise Rejected(f"message {number} of {address(peer)} came when it was not due")
        turn = number - FIRST_ROUND
        if (number == AGREEMENT and peer in state.agreements) or 0 <= turn < len(state.received) or turn in state.early:
            raise Rejected(f"message {number} of {address(peer)} came twice")
        plain = unseal(self._pair_key("seal", peer, self._index), number, bytes(relay.body), address(peer))
        if number == AGREEMENT:
            state.agreements[peer] = decode(plain, Agreement)
        else:
            state.early[turn] = plain
        return self._go_on()

    def _meet(self, peer: int, body: memoryview) -> list[Envelope]:
        if peer in self.state.peers:
            raise Rejected(f"{address(peer)} introduced itself twice")
        introduction: Introduction = decode(self._introductions[peer].unwrap(body), Introduction)
        agree(self.state.secret, introduction.key, b"")
        self.state.peers[peer] = introduction
        return self._held()

    @property
    def _agreed(self) -> bool:
        return bool(self.state.survivors) and len(self.state.agreements) == TALLIERS - 1

    def _go_on(self) -> list[Envelope]:
        """Compute as far as the words that are there allow."""
        if not self._agreed:
            return []
        sent = []
        if self._computation is None:
            self._check_agreements()
            self._start()
            sent.append(self._round())
        while (number := len(self.state.received)) in self.state.early:
            words = self.state.early.pop(number)
            if len(words) != self._sent.nbytes:
                due = self._sent.nbytes
                raise Aborted(f"{address(self._after)} sent {len(words)} bytes in round {number}; {due} were due")
            self.state.received.append(words)
            winners = self._resume(words)
            sent.append(self._round() if winners is None else self._open(winners))
        return sent

    def _check_agreements(self) -> None:
        for peer, theirs in self.state.agreements.items():
            who, mine = address(peer), self._common(peer)
            if theirs.counted != self._counted():
                raise Aborted(f"{who} counts other parties, or other ballots of theirs; nothing was revealed")
            if commitment(self._label, peer, theirs.seed) != self.state.peers[peer].commitment:
                raise Aborted(f"{who} reveals another seed than it had committed to; nothing was revealed")
            if len(theirs.common) != len(mine):
                raise Aborted(f"{who} holds {len(theirs.common)} shares where {len(mine)} were due")
            for (party, digest), other in zip(mine.items(), theirs.common, strict=True):
                if digest != other:
                    raise Aborted(f"party {party} sent {address(self._index)} and {who} different shares")

    def _start(self) -> None:
        zeros = ZeroShares(
            self._pair_key("zero", self._before, self._index), self._pair_key("zero", self._index, self._after)
        )
        self._computation = self._compute(Computation(self._index, zeros))
        self._sent = next(self._computation)

    def _compute(self, computation: Computation) -> Rounds[Shares]:
        """Add up the ballots, put each query's classes in its order, and find the largest."""
        poll, session = self._poll, self._session
        parties = list(self.state.ballots)
        explicit = np.zeros(session.length, dtype=np.uint64)
        for party in parties:
            if explicit_share(party) == self._index:
                explicit += session.unpack(self.state.ballots[party][1][:-KEY_BYTES])
        received = yield explicit
        first, second = (
            add_masks(part, [(self._seed_of(p, share), True) for p in parties if explicit_share(p) != share], session)
            for part, share in ((explicit, self._index), (received, self._after))
        )
        seeds = {peer: agreement.seed for peer, agreement in self.state.agreements.items()} | {
            self._index: self.state.seed
        }
        joint = hashlib.sha256(b"".join(seeds[tallier] for tallier in range(TALLIERS))).digest()
        order = orders(joint, poll.classes, poll.queries)
        totals = Shares(first, second).each(
            lambda words: np.take_along_axis(words.reshape(poll.queries, poll.classes).T, order, axis=0)
        )
        return (yield from computation.argmax(totals, order.astype(np.uint64)))

    def _resume(self, words: bytes) -> Shares | None:
        """Give the computation what was received: the winners if it is over, else there is something to send."""
        if self._computation is None:
            raise Aborted("words of a computation came that has not begun")
        little = np.frombuffer(words, self._sent.dtype.newbyteorder("<"))
        try:
            self._sent = self._computation.send(little.astype(self._sent.dtype).reshape(self._sent.shape))
        except StopIteration as end:
            winners: Shares = end.value
            return winners
        return None

    def _round(self) -> Envelope:
        words = self._sent.astype(self._sent.dtype.newbyteorder("<")).tobytes()
        return self._to_peer(self._before, FIRST_ROUND + len(self.state.received), words)

    def _open(self, winners: Shares) -> Envelope:
        """The shares of the winners for the coordinator; everything else is forgotten."""
        first, second = (memoryview(share.astype("<u8").tobytes()) for share in (winners.first, winners.second))
        survivors, opening = self.state.survivors, msgspec.msgpack.encode(Opening(first, second))
        self.state = TallierState(b"", b"", begun=True, survivors=survivors, opening=opening)
        self._computation = None
        return self._framed(opening)

    def _pair_key(self, purpose: str, sender: int, receiver: int) -> bytes:
        """A key that this tallier and another one have in common, for one purpose and in this direction."""
        keys = {peer: introduction.key for peer, introduction in self.state.peers.items()}
        other = keys[receiver if sender == self._index else sender]
        keys[self._index] = public_key(self.state.secret)
        named = f"{purpose}/{self._label}/{address(sender)}/{address(receiver)}/".encode()
        return agree(self.state.secret, other, named + keys[sender] + keys[receiver])

    def _to_peer(self, peer: int, number: int, plain: bytes) -> Envelope:
        sealed = seal(self._pair_key("seal", self._index, peer), number, plain)
        return self._answer(Relay(peer, number, memoryview(sealed)))

    def _answer(self, message: FromTallier) -> Envelope:
        return self._framed(msgspec.msgpack.encode(message))

    def _framed(self, body: bytes) -> Envelope:
        wrapped = memoryview(self._channel.wrap(body))
        return Envelope(COORDINATOR, msgspec.msgpack.encode(Framed(self._label, self._index, wrapped)))
