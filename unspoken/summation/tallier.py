"""The tallier's side of a vote: it keeps parts of ballots, and computes the winners with the other talliers.

See `tally` for the protocol and its security. The computation is a generator, which cannot be dumped. Instead the words
that it received are dumped; replaying them brings the generator to the same point.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec
import numpy as np

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.summation.abortable import AbortableEndpoint
from unspoken.summation.argmax import winners
from unspoken.summation.ballots import (
    AGREEMENT,
    FIRST_ROUND,
    INTRODUCTION,
    Agreed,
    Agreement,
    Ballot,
    Count,
    Framed,
    FromTallier,
    Held,
    Introduction,
    Opening,
    PeerMessage,
    Poll,
    Roll,
    ToTallier,
    address,
    commitment,
    explicit_part,
    sealing_key,
    statement,
)
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Message, Rejected, Roster
from unspoken.summation.incoming import check_label, check_sender, decode
from unspoken.summation.keys import (
    Channel,
    Identity,
    agree,
    agreement_key,
    public_key,
    seal_anew,
    unseal,
    unseal_anew,
    verify,
)
from unspoken.summation.masks import add_masks
from unspoken.summation.replicated import Array, Group, Interactive, Masks, ReplicatedShares, SharedComputation
from unspoken.summation.tallier_state import TallierState
from unspoken.summation.tally_agreement import approval, check_list, check_same_count


class TallierSetup(msgspec.Struct, frozen=True):
    """Everything that a tallier needs to begin."""

    poll: Poll
    parties: list[bytes]
    """The parties' public keys, as in a roster"""
    coordinator: bytes
    talliers: tuple[bytes, ...]
    index: int
    identity: bytes
    """The secret of the tallier's identity"""
    secret: bytes
    """The key of its stream of secrets"""

    def tallier(self) -> Tallier:
        roster = Roster(self.parties, self.coordinator, self.talliers)
        return Tallier(self.poll, roster, self.index, Identity(self.identity), SecretStream(self.secret))


class Tallier(AbortableEndpoint):
    """A helper's side. It begins by itself, or when it first hears from the coordinator."""

    def __init__(self, poll: Poll, roster: Roster, index: int, identity: Identity, secrets: SecretStream) -> None:
        self._poll, self._roster, self._index, self._identity = poll, roster, index, identity
        self._session, self._label = poll.session, poll.session.label()
        self._sharing = poll.sharing
        self._before, self._after = self._sharing.before(index), self._sharing.after(index)
        self._peers = sorted(self._before + self._after)
        self._channel = self._channel_to(roster.coordinator, COORDINATOR)
        self._introductions = {peer: self._channel_to(roster.helpers[peer], address(peer)) for peer in self._peers}
        self._pair_keys: dict[tuple[str, int, int], bytes] = {}
        self._computation: Interactive[ReplicatedShares] | None = None
        self._sent: Array = np.zeros(0, dtype=np.uint64)
        self.state: TallierState = TallierState(secrets.key(), secrets.key(), secrets.key())

    def _channel_to(self, identity: bytes, other: str) -> Channel:
        secret, peer = self._identity.agreement_secret, agreement_key(identity)
        return Channel(secret, peer, self._label, address(self._index), other)

    @property
    def has_forgotten(self) -> bool:
        """True once it has opened the winners: keys, ballots and words are gone."""
        return bool(self.state.opening)

    def load(self, dumped: bytes) -> None:
        super().load(dumped)
        self._computation = None
        self._pair_keys.clear()
        if self.state.agreed and self.state.begin and not self.state.opening:
            self._start()
            for words in self.state.received:
                self._resume(words)

    def _step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return self._begin()
        message: Ballot | Framed = decode(self._poll.sized(incoming), Ballot | Framed)
        check_label(message.session, self._session)
        if message.tallier != self._index:
            raise Rejected(f"a message for tallier {message.tallier} came to tallier {self._index}")
        if isinstance(message, Ballot):
            self._take(message)
            return []
        request: ToTallier = decode(self._channel.unwrap(message.body), ToTallier)
        match request:
            case Roll():
                self.state.asked = min(max(0, request.start), len(self.state.ballots))
                return self._begin() + self._held()
            case Count():
                return self._count(request)
            case PeerMessage():
                return self._hear(request)

    def _begin(self) -> list[Envelope]:
        """Send the other talliers a key for this vote, once."""
        if self.state.begun:
            return []
        self.state.begun = True
        mine = Introduction(public_key(self.state.secret), commitment(self._label, self._index, self.state.seed))
        body = msgspec.msgpack.encode(mine)
        return [
            self._enveloped(PeerMessage(peer, INTRODUCTION, memoryview(channel.wrap(body))))
            for peer, channel in self._introductions.items()
        ]

    def _take(self, ballot: Ballot) -> None:
        """Check the sender, decrypt the ballot, and keep it until it is counted."""
        if self.state.survivors:
            raise Rejected("a ballot came after the count had begun")
        heard = np.zeros(self._poll.parties, dtype=np.bool_)
        heard[list(self.state.ballots)] = True
        check_sender(ballot.sender, self._session, heard)
        who = f"party {ballot.sender}"
        signed = statement(ballot.session, ballot.sender, ballot.key)
        verify(self._roster.parties[ballot.sender], signed, ballot.signature, who)
        sealing = sealing_key(
            self._identity.agreement_secret, ballot.key, ballot.key, ballot.session, ballot.sender, self._index
        )
        plain = unseal(sealing, 0, ballot.sealed, who)
        due = 8 * self._session.length if self._is_explicit(ballot.sender) else KEY_BYTES
        if len(plain) != due:
            raise Rejected(f"{who} sent a part of {len(plain)} bytes; {due} were due")
        self.state.ballots[ballot.sender] = ballot.key, plain
        self.state.signatures[ballot.sender] = ballot.signature

    def _is_explicit(self, party: int) -> bool:
        return explicit_part(party, self._poll) == self._index

    def _held(self) -> list[Envelope]:
        """Answer the coordinator's request for ballots, once the other talliers are known."""
        state = self.state
        if state.asked is None or len(state.peers) < len(self._peers) or state.survivors:
            return []
        start, state.asked = state.asked, None
        unknown = list(state.ballots.items())[start:]
        return [self._enveloped(Held(start, [(party, key, state.signatures[party]) for party, (key, _) in unknown]))]

    def _count(self, count: Count) -> list[Envelope]:
        """Fix the list of parties to count, and begin to count when asked to. There is only one list, as the results of
        two would reveal a difference."""
        state, sent = self.state, []
        if not state.survivors:
            sent = self._fix(count)
        elif (state.survivors, state.counted) != (count.survivors, count.counted):
            both = ((state.counted, state.approval), (count.counted, count.signature))
            raise Aborted(
                "the coordinator asks to count a second, different list of parties, which is refused",
                (COORDINATOR,),
                tuple(approval(self._label, *signed) for signed in both),
            )
        elif state.opening:
            return [self._framed(state.opening)]
        elif state.agreed:
            sent = [self._enveloped(Agreed(state.counted))]
        state.begin = state.begin or count.begin
        return sent + self._go_on()

    def _fix(self, count: Count) -> list[Envelope]:
        """Keep the list, and tell every other tallier what this one counts, its seed, and its part of common keys."""
        state = self.state
        if len(state.peers) < len(self._peers):
            raise Rejected("the coordinator asks for a count before the talliers know each other")
        keys = {party: key for party, (key, _) in state.ballots.items()}
        counted = check_list(count, keys, self._session, self._roster.coordinator)
        state.survivors, state.counted, state.approval = count.survivors, count.counted, count.signature
        state.ballots, state.signatures = {party: state.ballots[party] for party in counted}, {}
        return [
            self._to_peer(peer, AGREEMENT, msgspec.msgpack.encode(self._agreement(self._common(peer))))
            for peer in self._peers
        ]

    def _agreement(self, groups: list[Group]) -> Agreement:
        state = self.state
        return Agreement(state.counted, state.approval, state.seed, [self._contribution(group) for group in groups])

    def _common(self, peer: int) -> list[Group]:
        """The shares drawn from a key that this tallier and another one both hold."""
        return [group for group in self._sharing.masked if self._index not in group and peer not in group]

    def _contribution(self, group: Group) -> bytes:
        return hmac.digest(self.state.root, f"group/{self._label}/{group}".encode(), "sha256")

    def _hear(self, message: PeerMessage) -> list[Envelope]:
        """Decrypt another tallier's message, and continue if it was awaited."""
        state, peer, number = self.state, message.peer, message.number
        if peer not in self._introductions:
            raise Rejected(f"tallier {self._index} got a message from tallier {peer}, which is not another tallier")
        if state.opening:
            raise Rejected(f"message {number} of {address(peer)} came after the winners were opened")
        if number == INTRODUCTION:
            return self._meet(peer, message.body)
        last = FIRST_ROUND + self._poll.rounds - 1 if peer in self._after else AGREEMENT
        if peer not in state.peers or not AGREEMENT <= number <= last:
            raise Rejected(f"message {number} of {address(peer)} came when it was not due")
        place = number - FIRST_ROUND
        known = 0 <= place < len(state.received) or peer in state.early.get(place, {})
        if known or (number == AGREEMENT and peer in state.agreements):
            raise Rejected(f"message {number} of {address(peer)} came twice")
        plain = unseal_anew(self._pair_key("seal", peer, self._index), number, bytes(message.body), address(peer))
        if number == AGREEMENT:
            state.agreements[peer] = _from_peer(peer, plain, Agreement)
        else:
            state.early.setdefault(place, {})[peer] = plain
        return self._go_on()

    def _meet(self, peer: int, body: memoryview) -> list[Envelope]:
        if peer in self.state.peers:
            raise Rejected(f"{address(peer)} introduced itself twice")
        introduction: Introduction = _from_peer(peer, self._introductions[peer].unwrap(body), Introduction)
        try:
            agree(self.state.secret, introduction.key, b"")
        except Rejected:
            raise Aborted(f"{address(peer)} introduced itself with an invalid key", (address(peer),)) from None
        self.state.peers[peer] = introduction
        return self._held()

    def _go_on(self) -> list[Envelope]:
        """Compute as far as the words received allow, once all talliers have agreed and were asked to begin."""
        state, sent = self.state, []
        if not state.survivors or len(state.agreements) < len(self._peers):
            return []
        if not state.agreed:
            self._check_agreements()
            state.agreed = True
            sent.append(self._enveloped(Agreed(state.counted)))
        if not state.begin:
            return sent
        if self._computation is None:
            self._start()
            sent += self._round()
        while len(state.early.get(number := len(state.received), {})) == len(self._after):
            early = state.early.pop(number)
            for peer, words in early.items():
                if len(words) != (due := self._sent.nbytes):
                    raise Aborted(
                        f"{address(peer)} sent {len(words)} bytes in round {number}; {due} were due", (address(peer),)
                    )
            state.received.append([early[peer] for peer in self._after])
            found = self._resume(state.received[-1])
            sent += self._round() if found is None else [self._open(found)]
            if found is not None:
                break
        return sent

    def _check_agreements(self) -> None:
        mine, coordinator = self._agreement([]), self._roster.coordinator
        for peer, theirs in self.state.agreements.items():
            who, keys = address(peer), len(self._common(peer))
            check_same_count(mine, theirs, who, self._label, coordinator)
            if commitment(self._label, peer, theirs.seed) != self.state.peers[peer].commitment:
                raise Aborted(f"{who} reveals a seed that does not match its commitment; nothing was revealed", (who,))
            if [len(key) for key in theirs.keys] != [KEY_BYTES] * keys:
                raise Aborted(f"{who} did not send the {keys} keys that were due; nothing was revealed", (who,))

    def _start(self) -> None:
        pairs = {peer: self._pair_key("zero", *sorted((self._index, peer))) for peer in self._peers}
        masks = Masks(self._sharing, self._index, pairs, self._group_keys())
        self._computation = self._compute(SharedComputation(self._sharing, self._index, masks))
        self._sent = next(self._computation)

    def _group_keys(self) -> dict[Group, bytes]:
        """The keys of the shares that are drawn; all holders of a share contribute to its key, only they know it."""
        parts = {
            peer: dict(zip(self._common(peer), self.state.agreements[peer].keys, strict=True)) for peer in self._peers
        }
        parts[self._index] = {group: self._contribution(group) for group in self._sharing.masked}
        return {
            group: hashlib.sha256(b"".join(parts[holder][group] for holder in self._sharing.holders(group))).digest()
            for group in self._sharing.masked
            if self._index not in group
        }

    def _compute(self, computation: SharedComputation) -> Interactive[ReplicatedShares]:
        """Add the ballots, and find each query's winner with the other talliers."""
        session, ballots = self._session, self.state.ballots
        total = np.zeros(session.length, dtype=np.uint64)
        for party in filter(self._is_explicit, ballots):
            total += session.unpack(ballots[party][1])
        seeds = [(part, True) for party, (_, part) in ballots.items() if not self._is_explicit(party)]
        sums = add_masks(total, seeds, session)
        return winners(computation, sums, self._joint_seed(), self._poll.queries, self._poll.classes)

    def _joint_seed(self) -> bytes:
        seeds = {peer: agreement.seed for peer, agreement in self.state.agreements.items()}
        seeds[self._index] = self.state.seed
        return hashlib.sha256(b"".join(seeds[tallier] for tallier in range(self._poll.talliers))).digest()

    def _resume(self, received: list[bytes]) -> ReplicatedShares | None:
        """Resume the computation with the words received; returns shares of the winners once it is over."""
        if self._computation is None:
            raise Aborted("words of the computation came before it had begun")
        like = self._sent
        arrays = [
            np.frombuffer(words, like.dtype.newbyteorder("<")).astype(like.dtype).reshape(like.shape)
            for words in received
        ]
        try:
            self._sent = self._computation.send(arrays)
        except StopIteration as end:
            found: ReplicatedShares = end.value
            return found
        return None

    def _round(self) -> list[Envelope]:
        words = self._sent.astype(self._sent.dtype.newbyteorder("<")).tobytes()
        return [self._to_peer(peer, FIRST_ROUND + len(self.state.received), words) for peer in self._before]

    def _open(self, found: ReplicatedShares) -> Envelope:
        """The shares of the winners for the coordinator; everything else is deleted."""
        opening = msgspec.msgpack.encode(Opening(memoryview(found.words.astype("<u8").tobytes())))
        self._forget()
        self.state.opening = opening
        return self._framed(opening)

    def _forget(self) -> None:
        """Delete keys, ballots and words; only what was asked and signed is kept."""
        old = self.state
        self.state = TallierState(
            b"", b"", b"", begun=True, survivors=old.survivors, counted=old.counted, approval=old.approval
        )
        self._computation = None
        self._pair_keys.clear()

    def _pair_key(self, purpose: str, sender: int, receiver: int) -> bytes:
        """A common key of this tallier and another one, for one purpose and direction."""
        if (purpose, sender, receiver) not in self._pair_keys:
            keys = {peer: introduction.key for peer, introduction in self.state.peers.items()}
            other = keys[receiver if sender == self._index else sender]
            keys[self._index] = public_key(self.state.secret)
            named = f"{purpose}/{self._label}/{address(sender)}/{address(receiver)}/".encode()
            key = agree(self.state.secret, other, named + keys[sender] + keys[receiver])
            self._pair_keys[purpose, sender, receiver] = key
        return self._pair_keys[purpose, sender, receiver]

    def _to_peer(self, peer: int, number: int, plain: bytes) -> Envelope:
        sealed = seal_anew(self._pair_key("seal", self._index, peer), number, plain)
        return self._enveloped(PeerMessage(peer, number, memoryview(sealed)))

    def _enveloped(self, message: FromTallier) -> Envelope:
        return self._framed(msgspec.msgpack.encode(message))

    def _framed(self, body: bytes) -> Envelope:
        wrapped = memoryview(self._channel.wrap(body))
        return Envelope(COORDINATOR, msgspec.msgpack.encode(Framed(self._label, self._index, wrapped)))


def _from_peer(peer: int, plain: bytes | memoryview, kind: type[Message]) -> Any:
    """An authenticated message of another tallier. If it is not the kind that is due, that tallier is to blame."""
    try:
        return decode(plain, kind)
    except Rejected as error:
        raise Aborted(f"{address(peer)} sent what is not understood ({error})", (address(peer),)) from None
