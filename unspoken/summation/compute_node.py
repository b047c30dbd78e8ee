"""The compute node's side of a sum. It counts each party once, signs one list of survivors, and reveals its part of
their total once all nodes have signed the same list.

See `compute_nodes` for the protocol and its security.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.abortable import AbortableEndpoint, AbortableState
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, Roster, Session, address_of
from unspoken.summation.incoming import check_label, check_sender, check_survivors, decode, from_bitmap
from unspoken.summation.keys import PUBLIC_BYTES, Channel, Identity, agreement_key, unseal, verify
from unspoken.summation.masks import add_streams
from unspoken.summation.node_messages import (
    DIGEST_BYTES,
    Agreed,
    Fold,
    Folded,
    Framed,
    FromNode,
    Held,
    KeyTable,
    PartialTotal,
    Propose,
    Reveal,
    Roll,
    Share,
    SignedKey,
    ToNode,
    address,
    key_statement,
    nodes_of,
    sealing_key,
    survivors_statement,
    users_of,
)
from unspoken.types import Flags


class WaitingShare(msgspec.Struct, frozen=True):
    """A share that is not yet counted."""

    signed: SignedKey
    plain: bytes


class NodeState(AbortableState):
    waiting: dict[int, WaitingShare]
    faults: dict[int, SignedKey]
    """Other keys that parties signed, or keys of low order, one for each party"""
    counted: np.ndarray
    keys: np.ndarray
    """The `KeyTable` of the counted parties"""
    total: np.ndarray
    noise: np.ndarray
    """Shares of the parties' noise seeds (parties · bytes of noise shares), until the seeds to open are known"""
    statement: bytes = b""
    """The statement that this node signed: the parties in the total are fixed"""
    opened: bytes = b""
    """Its shares of the noise seeds to open"""


class ComputeNode(AbortableEndpoint):
    def __init__(
        self, session: Session, roster: Roster, node: int, nodes: int, per_party: int, identity: Identity
    ) -> None:
        self._session, self._roster, self._node, self._nodes, self._per_party = session, roster, node, nodes, per_party
        self._identity, secret = identity, identity.agreement_secret
        self._channel = Channel(secret, agreement_key(roster.coordinator), session.label(), address(node), COORDINATOR)
        self._noise_bytes = session.components * KEY_BYTES
        self._mine = users_of(node, session.parties, nodes, per_party)
        self.state: NodeState = NodeState(
            waiting={},
            faults={},
            counted=np.zeros(session.parties, dtype=np.bool_),
            keys=KeyTable.empty(session.parties),
            total=session.zeros(),
            noise=np.zeros(session.parties * self._noise_bytes, dtype=np.uint8),
        )

    @property
    def has_forgotten(self) -> bool:
        """True once it has signed: it has then deleted the single shares, and its shares of noise seeds that stay
        closed."""
        return bool(self.state.statement)

    def _step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return []
        message: Share | Framed = decode(incoming, Share | Framed)
        check_label(message.session, self._session)
        if isinstance(message, Share):
            self._take(message)
            return []
        if message.node != self._node:
            raise Rejected(f"a message for node {message.node} came to node {self._node}")
        request: ToNode = decode(self._channel.unwrap(message.body), ToNode)
        return [self._enveloped(self._answer(request))]

    def _answer(self, request: ToNode) -> FromNode:
        match request:
            case Roll():
                waiting = self.state.waiting
                return Held([waiting[sender].signed for sender in sorted(waiting)], [*self.state.faults.values()])
            case Fold():
                return self._fold(request)
            case Propose():
                return self._agree(request)
            case Reveal():
                return self._part(request)

    def _take(self, share: Share) -> None:
        """Check the sender and its key, decrypt the share, and keep it until its party is counted.

        A second key is kept as evidence, without its share: a single node cannot decide which of two splittings counts.
        """
        state, who = self.state, f"party {share.sender}"
        if state.statement:
            raise Rejected(f"a share of {who} came after the parties in the total were fixed")
        check_sender(share.sender, self._session, state.counted)
        if share.node != self._node or not self._mine[share.sender]:
            raise Rejected(f"a share for node {share.node} came to node {self._node}")
        if len(share.key) != PUBLIC_BYTES:
            raise Rejected(f"{who} sent a one-time key of {len(share.key)} bytes; {PUBLIC_BYTES} are due")
        before = state.waiting.get(share.sender)
        if before is not None and before.signed.key == share.key:
            raise Rejected(f"a second message came from {who}")
        signed = SignedKey(share.sender, share.key, share.signature)
        self._verify(signed)
        if before is not None:
            state.faults.setdefault(share.sender, signed)
            return
        try:
            sealing = sealing_key(
                self._identity.agreement_secret, share.key, share.key, share.session, share.sender, self._node
            )
        except Rejected:
            # The key has a low order. As its owner signed it, the coordinator can show whose fault it is.
            state.faults.setdefault(share.sender, signed)
            return
        plain = unseal(sealing, 0, share.sealed, who)
        size = len(plain) - self._noise_bytes
        due = self._session.vector_bytes if self._holds_vector(share.sender) else KEY_BYTES
        if size != due:
            raise Rejected(f"{who} sent a share of {size} bytes; {due} were due")
        state.waiting[share.sender] = WaitingShare(signed, plain)

    def _verify(self, signed: SignedKey) -> None:
        statement = key_statement(self._session.label(), signed.sender, signed.key)
        verify(self._roster.parties[signed.sender], statement, signed.signature, f"party {signed.sender}")

    def _fold(self, fold: Fold) -> Folded:
        """Count parties. What is counted already is only acknowledged again."""
        state, senders = self.state, [signed.sender for signed in fold.keys]
        known = all(0 <= sender < self._session.parties and self._has(sender) for sender in senders)
        if len(set(senders)) != len(senders) or not known:
            raise Rejected("the coordinator asks to count a party twice, or one that this node has not heard from")
        for signed in fold.keys:
            if state.counted[signed.sender]:
                self._check_counted(signed)
            elif state.waiting[signed.sender].signed.key != signed.key:
                raise Rejected(f"the coordinator asks to count party {signed.sender} under a key of another share")
        self._count([sender for sender in senders if not state.counted[sender]])
        return Folded(senders)

    def _has(self, sender: int) -> bool:
        return bool(self.state.counted[sender]) or sender in self.state.waiting

    def _check_counted(self, signed: SignedKey) -> None:
        """Abort if a party was counted under another key: a second share of it would make the total wrong."""
        counted = KeyTable(self.state.keys).of(signed.sender)
        if counted.key == signed.key:
            return
        self._verify(signed)
        raise Aborted(
            f"party {signed.sender} signed two one-time keys, and node {self._node} has counted the other one; "
            "nothing was revealed",
            (address_of(signed.sender),),
            tuple(each.evidence(self._session.label()) for each in (counted, signed)),
        )

    def _count(self, senders: list[int]) -> None:
        """Add the shares of these parties to the total, and forget them."""
        state, session, keys, seeds = self.state, self._session, KeyTable(self.state.keys), []
        for sender in senders:
            share = state.waiting.pop(sender)
            plain = memoryview(share.plain)
            words, noise = plain[: len(plain) - self._noise_bytes], plain[len(plain) - self._noise_bytes :]
            start = sender * self._noise_bytes
            state.noise[start : start + self._noise_bytes] = np.frombuffer(noise, dtype=np.uint8)
            if self._holds_vector(sender):
                state.total += session.unpack(words)
            else:
                seeds.append((bytes(words), True))
            keys.put(share.signed)
            state.counted[sender] = True
        add_streams(state.total, seeds)

    def _agree(self, proposed: Propose) -> Agreed:
        """Sign the list of survivors and their keys, if it is right for this node's parties, and no second one."""
        state, session = self.state, self._session
        survivors = from_bitmap(proposed.survivors, session.parties)
        if len(proposed.digests) != self._nodes * DIGEST_BYTES:
            raise Rejected(f"the digests of the survivors' keys have {len(proposed.digests)} bytes")
        statement = survivors_statement(session.label(), proposed.survivors, proposed.digests)
        if not state.statement:
            check_survivors(int(survivors.sum()), session)
            self._count_survivors(survivors & self._mine)
            self._check_keys(survivors, proposed.digests)
            self._fix(survivors, statement)
        elif state.statement != statement:
            raise self._aborted("was asked to sign a second list of survivors, and refuses")
        return Agreed(self._identity.sign(statement))

    def _count_survivors(self, mine: Flags) -> None:
        """Count those whose `Fold` was lost."""
        missing = np.flatnonzero(mine & ~self.state.counted).tolist()
        if (self.state.counted & ~mine).any() or not self.state.waiting.keys() >= set(missing):
            raise self._aborted("counted other parties than the coordinator names; nothing was revealed")
        self._count(missing)

    def _check_keys(self, survivors: Flags, digests: bytes) -> None:
        """Compare the keys of all classes that use this node."""
        keys = KeyTable(self.state.keys)
        for step in range(self._per_party):
            number = (self._node - step) % self._nodes
            stated = digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
            if keys.digest(survivors, number, self._nodes) != stated:
                raise self._aborted(
                    "counted its parties under other keys than the coordinator names; nothing was revealed"
                )

    def _fix(self, survivors: Flags, statement: bytes) -> None:
        """Keep what will be revealed, and forget the rest."""
        state, session = self.state, self._session
        opened = list(session.opened(int(survivors.sum())))
        noise = state.noise.reshape(session.parties, session.components, KEY_BYTES)[state.counted][:, opened]
        state.statement, state.opened = statement, noise.tobytes()
        state.waiting, state.faults, state.noise = {}, {}, np.zeros(0, dtype=np.uint8)

    def _part(self, reveal: Reveal) -> PartialTotal:
        """This node's part of the one total, which all nodes have agreed on."""
        state, signatures = self.state, reveal.signatures
        if not state.statement or len(signatures) != self._nodes:
            raise Rejected(f"node {self._node} was asked for its part before all nodes had signed the survivors")
        for node, signature in enumerate(signatures):
            verify(self._roster.helpers[node], state.statement, signature, f"node {node}")
        return PartialTotal(memoryview(self._session.pack(state.total)), state.opened)

    def _aborted(self, reason: str) -> Aborted:
        """An abort for what the coordinator asked."""
        return Aborted(f"node {self._node} {reason}", {COORDINATOR: "it asked for this"})

    def _forget(self) -> None:
        """The sum is over, and this node's part of it is not revealed."""
        state = self.state
        state.waiting, state.faults, state.opened = {}, {}, b""
        state.total, state.noise = self._session.zeros(), np.zeros(0, dtype=np.uint8)

    def _enveloped(self, message: FromNode) -> Envelope:
        body = self._channel.wrap(msgspec.msgpack.encode(message))
        return Envelope(
            COORDINATOR, msgspec.msgpack.encode(Framed(self._session.label(), self._node, memoryview(body)))
        )

    def _holds_vector(self, party: int) -> bool:
        return nodes_of(party, self._nodes, self._per_party)[0] == self._node
