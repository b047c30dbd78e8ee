"""The party's side of SecAgg and SecAgg+. See `secagg` for the protocol."""

from __future__ import annotations

import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation import shamir
from unspoken.summation.base import Aborted, Envelope, Rejected, Roster, Session
from unspoken.summation.graph import Graph
from unspoken.summation.incoming import check_survivors, from_bitmap
from unspoken.summation.introductions import Introduce, NeighbourParty, NeighbourState
from unspoken.summation.keys import SIGNATURE_BYTES, Identity, is_signed, seal, unseal
from unspoken.summation.masks import add_masks
from unspoken.summation.secagg_messages import (
    MARK_BYTES,
    SHARE_BYTES,
    Agreed,
    Begin,
    Checked,
    Deal,
    DealtShares,
    Masked,
    Opened,
    Survivors,
    ToParty,
    Unmask,
    agreed_statement,
    commitment,
    dealt_statement,
    marks_of,
    masked_statement,
    sealing_key,
)
from unspoken.types import Flags, Words


class PartyState(NeighbourState, kw_only=True):
    sharing: bytes
    """The key of the randomness of its shares, used once"""
    self_seed: bytes
    noise_seeds: list[bytes]
    relayed: bool = False
    inbox: dict[int, bytes] = {}
    """The shares that others dealt to this party"""
    dealers: bytes = b""
    """The list of dealers among whom the vector is masked, fixed once"""
    masks: list[tuple[bytes, bool]] = []
    agreed: bytes = b""
    """The only list of survivors that was signed"""
    answered: bool = False


class SecAggParty(NeighbourParty):
    """One party. Besides its vector, which is not kept, it holds a few keys and shares."""

    def __init__(
        self,
        session: Session,
        roster: Roster,
        graph: Graph,
        quorum: int,
        index: int,
        identity: Identity,
        secrets: SecretStream,
    ) -> None:
        super().__init__(session, roster, graph, index, identity)
        self._quorum = quorum
        seeds = [secrets.key() for _ in range(session.components)]
        sharing, cipher, mask, own = (secrets.key() for _ in range(4))
        self.state: PartyState = PartyState(
            cipher, mask, self._draw(secrets), sharing=sharing, self_seed=own, noise_seeds=seeds
        )

    @property
    def seeds(self) -> list[bytes]:
        return self.state.noise_seeds

    @property
    def ready(self) -> bool:
        return bool(self.state.dealers)

    @property
    def has_forgotten(self) -> bool:
        """True once it has opened its shares: those and its keys are gone."""
        return self.state.answered

    def step(self, incoming: bytes) -> list[Envelope]:
        if self.state.answered:
            raise Rejected("a message came after this party had opened its shares; its part of the sum is over")
        if not incoming:
            if self.ready:
                raise Rejected("a party was told to begin after its masks were agreed on")
            return self._advertise()
        message: ToParty = self._unwrapped(incoming, ToParty)
        match message:
            case Introduce():
                return [self._wrapped(self._meet(message, self._deal))]
            case DealtShares():
                return [self._wrapped(self._receive(message))]
            case Begin():
                self._begin(message)
                return []
            case Survivors():
                return [self._wrapped(self._agree(message))]
            case Unmask():
                opened = self._wrapped(self._open(message))
                self._wipe()
                return [opened]

    def submit(self, vector: Words) -> list[Envelope]:
        if not self.ready:
            raise Aborted("a party was asked for its vector before its masks were agreed on")
        state = self.state
        if not state.submitted:
            masked = self._session.pack(add_masks(vector, [(state.self_seed, True), *state.masks], self._session))
            signature = self._identity.sign(masked_statement(self._label, self._index, state.dealers))
            # Kept as sent: two vectors under the same masks would reveal their difference.
            state.submitted = self._wrapped(Masked(memoryview(masked), signature)).body
            state.masks, state.self_seed, state.noise_seeds = [], b"", []
        return self._sent()

    def _deal(self) -> Deal:
        """Shares of the secrets that the neighbours may have to open for this party."""
        state, label = self.state, self._label
        receivers = [other for other in state.chosen if other in state.keys]
        secrets = [state.mask_secret, state.self_seed, *state.noise_seeds]
        points = np.array(receivers, dtype=np.uint64) + np.uint64(1)
        threshold = self._graph.degree.threshold
        rows = shamir.split(secrets, points, threshold, SecretStream(state.sharing)).astype("<u4")
        shares = [row.tobytes() for row in rows]
        sealed = [
            seal(self._seal(receiver), int(self._index > receiver), share)
            for receiver, share in zip(receivers, shares, strict=True)
        ]
        marks = b"".join(
            marks_of(label, self._index, receiver, share) for receiver, share in zip(receivers, shares, strict=True)
        )
        hashes = [commitment(label, self._index, seed) for seed in (state.self_seed, *state.noise_seeds)]
        signature = self._identity.sign(dealt_statement(label, self._index, marks, hashes))
        state.sharing = b""
        return Deal(sealed, marks, hashes, signature)

    def _seal(self, other: int) -> bytes:
        """The key that seals the shares between this party and another."""
        return sealing_key(self.state.cipher_secret, self.state.keys[other][0], self._label, self._index, other)

    def _receive(self, dealt: DealtShares) -> Checked:
        """Keep the shares that are what their dealers marked, and complain about the others."""
        state, senders = self.state, dealt.senders
        if not state.introduced:
            raise Rejected("shares came before the neighbours were introduced")
        if state.relayed:
            raise Rejected("shares came twice")
        size = (2 + self._session.components) * MARK_BYTES
        if len(senders) != len(dealt.sealed) or len(dealt.marks) != size * len(senders):
            raise Rejected("shares came without their senders or their marks")
        if len(set(senders)) != len(senders) or not state.keys.keys() >= set(senders):
            raise Aborted("shares came twice from the same party, or from one that is not a neighbour")
        complaints = []
        for position, (sender, sealed) in enumerate(zip(senders, dealt.sealed, strict=True)):
            marks = dealt.marks[position * size : (position + 1) * size]
            if (share := self._unsealed(sender, sealed)) and marks_of(self._label, sender, self._index, share) == marks:
                state.inbox[sender] = share
            else:
                complaints.append(sender)
        state.relayed = True
        return Checked(complaints)

    def _unsealed(self, sender: int, sealed: bytes) -> bytes:
        """The share in a sealed message; nothing if there is none."""
        try:
            share = unseal(self._seal(sender), int(sender > self._index), sealed, f"party {sender}")
        except Rejected:
            return b""
        return share if len(share) == (2 + self._session.components) * SHARE_BYTES else b""

    def _begin(self, begin: Begin) -> None:
        """Fix the dealers, and agree on the seeds of the masks in advance, so that only the cipher has to run when the
        vector comes."""
        state, threshold = self.state, self._graph.degree.threshold
        if not state.relayed:
            raise Rejected("the dealers were named before their shares came")
        if state.dealers:
            if state.dealers != begin.dealers:
                raise Aborted("the coordinator named two different lists of dealers")
            raise Rejected("the dealers were named twice")
        dealers = from_bitmap(begin.dealers, self._session.parties)
        check_survivors(int(dealers.sum()), self._session)
        if not dealers[self._index]:
            raise Aborted("the coordinator left out this party and still asked it for its vector")
        if (left := sum(bool(dealers[other]) for other in state.chosen)) < threshold:
            raise Aborted(f"only {left} neighbours are left; {threshold} are needed")
        if missing := [other for other in state.chosen if dealers[other] and other not in state.keys]:
            raise Aborted(f"party {missing[0]} is among the dealers, but its keys were not introduced")
        state.masks = self._masks_with([other for other in state.keys if dealers[other]])
        state.dealers, state.mask_secret = begin.dealers, b""

    def _agree(self, request: Survivors) -> Agreed:
        """Sign the lists of dealers and survivors, once in an attempt: two quorums for different lists would need two
        signatures of some honest party."""
        state = self.state
        if not self._quorum:
            raise Rejected("the coordinator asks for an agreement that this study does not have")
        if state.agreed and state.agreed != request.survivors:
            raise Aborted("the coordinator asked for agreement on a second, different list of survivors; it is refused")
        self._check_survivors(request.survivors)
        state.agreed = request.survivors
        return Agreed(self._identity.sign(agreed_statement(self._label, state.dealers, state.agreed)))

    def _check_survivors(self, listed: bytes) -> Flags:
        """The survivors in this list. It is refused unless they are enough, all are dealers, and this party is among
        them."""
        if not self.state.submitted:
            raise Rejected("survivors were named before this party had sent its vector")
        survivors = from_bitmap(listed, self._session.parties)
        check_survivors(int(survivors.sum()), self._session)
        if not survivors[self._index]:
            raise Aborted("the coordinator left out this party's vector and still asked it to open shares")
        if (survivors & ~from_bitmap(self.state.dealers, self._session.parties)).any():
            raise Aborted("the coordinator names survivors that dealt no shares")
        return survivors

    def _open(self, request: Unmask) -> Opened:
        """One share for each dealer: of its seeds if its vector is in the total, else of its mask key."""
        state, session = self.state, self._session
        survivors = self._check_survivors(request.survivors)
        dealers = from_bitmap(state.dealers, session.parties)
        confirmed = self._confirmed(request) if self._quorum else set(state.inbox)
        alive = [sender for sender in state.inbox if survivors[sender] and sender in confirmed]
        gone = [sender for sender in state.inbox if dealers[sender] and not survivors[sender]]
        opened = [1, *(2 + number for number in session.opened(int(survivors.sum())))]
        alive_shares = b"".join(_part(state.inbox[sender], number) for sender in alive for number in opened)
        gone_shares = b"".join(_part(state.inbox[sender], 0) for sender in gone)
        return Opened(alive, alive_shares, gone, gone_shares)

    def _confirmed(self, request: Unmask) -> set[int]:
        """The parties that are certainly masked among the same dealers; `Rejected` without a quorum.

        The quorum's statement names the dealers, so whoever signed it is masked among them. Only the signatures that
        are needed are checked: those of this party's dealers, and others up to the quorum.
        """
        state, parties = self.state, self._roster.parties
        if request.survivors != state.agreed:
            raise Rejected("the coordinator asks to open shares for survivors that this party has not agreed on")
        signers = np.flatnonzero(from_bitmap(request.signers, self._session.parties)).tolist()
        if len(request.signatures) != SIGNATURE_BYTES * len(signers):
            raise Rejected("the signatures of the quorum do not match its signers")
        if len(request.declared) != SIGNATURE_BYTES * len(request.silent):
            raise Rejected("the signatures on the dealers do not match their signers")
        signatures = dict(zip(signers, _split(request.signatures), strict=True))
        statement = agreed_statement(self._label, state.dealers, state.agreed)
        valid: set[int] = set()
        for signer in sorted(signers, key=lambda signer: signer not in state.inbox):
            if (signer in state.inbox or len(valid) < self._quorum) and is_signed(
                parties[signer], statement, signatures[signer]
            ):
                valid.add(signer)
        if len(valid) < self._quorum:
            raise Rejected(f"only {len(valid)} parties signed the survivors; {self._quorum} are needed")
        for sender, signature in zip(request.silent, _split(request.declared), strict=True):
            if sender in state.inbox and sender not in valid:
                declared = masked_statement(self._label, sender, state.dealers)
                if is_signed(parties[sender], declared, signature):
                    valid.add(sender)
        return valid

    def _wipe(self) -> None:
        """Forget all secrets: this party's part of the sum is over."""
        state = self.state
        state.cipher_secret = state.mask_secret = state.sharing = state.self_seed = b""
        state.noise_seeds, state.inbox, state.masks, state.keys = [], {}, [], {}
        state.answered, self._channel_key = True, None


def _part(share: bytes, number: int) -> bytes:
    """The share of one secret."""
    return share[number * SHARE_BYTES : (number + 1) * SHARE_BYTES]


def _split(signatures: bytes) -> list[bytes]:
    return [signatures[start : start + SIGNATURE_BYTES] for start in range(0, len(signatures), SIGNATURE_BYTES)]
