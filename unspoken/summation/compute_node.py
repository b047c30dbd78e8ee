"""The compute node's side of a sum: it counts each party once, and reveals its part of the total once.

See `compute_nodes` for the protocol and its security.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Endpoint,
    Envelope,
    Rejected,
    Roster,
    Session,
    check_label,
    check_sender,
    check_survivors,
    decode,
    from_bitmap,
)
from unspoken.summation.keys import Channel, unseal, verify
from unspoken.summation.masks import add_streams
from unspoken.summation.node_messages import (
    Fold,
    Framed,
    FromNode,
    Held,
    PartialTotal,
    Reveal,
    Roll,
    Share,
    ToNode,
    address,
    nodes_of,
    sealing_key,
    statement,
)


class NodeState(msgspec.Struct):
    key: bytes
    heard: np.ndarray
    counted: np.ndarray
    total: np.ndarray
    noise: np.ndarray
    """Shares of the parties' noise seeds (parties · bytes of noise shares)"""
    waiting: dict[int, bytes]
    revealed: bytes = b""


class ComputeNode(Endpoint):
    def __init__(self, session: Session, roster: Roster, node: int, nodes: int, per_party: int, key: bytes) -> None:
        self._session, self._roster, self._node, self._nodes, self._per_party = session, roster, node, nodes, per_party
        self._channel = Channel(key, roster.coordinator, session.label(), address(node), COORDINATOR)
        self._noise_bytes = session.components * KEY_BYTES
        self.state: NodeState = NodeState(
            key=key,
            heard=np.zeros(session.parties, dtype=np.bool_),
            counted=np.zeros(session.parties, dtype=np.bool_),
            total=session.zeros(),
            noise=np.zeros(session.parties * self._noise_bytes, dtype=np.uint8),
            waiting={},
        )

    def step(self, incoming: bytes) -> list[Envelope]:
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
        match request:
            case Roll():
                return [self._answer(Held(sorted(self.state.waiting)))]
            case Fold():
                self._fold(request)
                return []
            case Reveal():
                return [self._answer(self._part(request))]

    def _take(self, share: Share) -> None:
        """Check the sender, decrypt the share, and keep it until its party is counted."""
        if self.state.revealed:
            raise Rejected("a share came after the total had been revealed")
        check_sender(share.sender, self._session, self.state.heard)
        if share.node != self._node or self._node not in self._nodes_of(share.sender):
            raise Rejected(f"a share for node {share.node} came to node {self._node}")
        who = f"party {share.sender}"
        signed = statement(share.session, share.sender, share.key)
        verify(self._roster.parties[share.sender], signed, share.signature, who)
        sealing = sealing_key(self.state.key, share.key, share.key, share.session, share.sender, self._node)
        plain = unseal(sealing, 0, share.sealed, who)
        size = len(plain) - self._noise_bytes
        due = self._session.vector_bytes if self._holds_vector(share.sender) else KEY_BYTES
        if size != due:
            raise Rejected(f"{who} sent a share of {size} bytes; {due} were due")
        self.state.waiting[share.sender] = plain
        self.state.heard[share.sender] = True

    def _fold(self, fold: Fold) -> None:
        state, session = self.state, self._session
        if state.revealed:
            raise Rejected("the total has been revealed; this sum is over")
        if len(set(fold.senders)) != len(fold.senders) or not state.waiting.keys() >= set(fold.senders):
            raise Rejected("the coordinator asks to count a party twice, or one that this node has not heard from")
        seeds = []
        for sender in fold.senders:
            plain = memoryview(state.waiting.pop(sender))
            share, noise = plain[: len(plain) - self._noise_bytes], plain[len(plain) - self._noise_bytes :]
            start = sender * self._noise_bytes
            state.noise[start : start + self._noise_bytes] = np.frombuffer(noise, dtype=np.uint8)
            if self._holds_vector(sender):
                state.total += session.unpack(share)
            else:
                seeds.append((bytes(share), True))
            state.counted[sender] = True
        add_streams(state.total, seeds)

    def _part(self, reveal: Reveal) -> PartialTotal:
        """The part of the total for one set of parties only: a second set would reveal a difference."""
        state, session = self.state, self._session
        survivors = from_bitmap(reveal.survivors, session.parties)
        check_survivors(int(survivors.sum()), session)
        mine = np.array([self._node in self._nodes_of(party) for party in range(session.parties)])
        if (state.counted != (survivors & mine)).any():
            raise Aborted(f"node {self._node} counted other parties than the coordinator names; nothing was revealed")
        if state.revealed and state.revealed != reveal.survivors:
            raise Aborted("the coordinator asks for a second, different total, which is refused")
        state.revealed = reveal.survivors
        opened = list(session.opened(int(survivors.sum())))
        noise = state.noise.reshape(session.parties, session.components, KEY_BYTES)[state.counted][:, opened]
        return PartialTotal(memoryview(session.pack(state.total)), noise.tobytes())

    def _answer(self, message: FromNode) -> Envelope:
        body = self._channel.wrap(msgspec.msgpack.encode(message))
        return Envelope(
            COORDINATOR, msgspec.msgpack.encode(Framed(self._session.label(), self._node, memoryview(body)))
        )

    def _nodes_of(self, party: int) -> list[int]:
        return nodes_of(party, self._nodes, self._per_party)

    def _holds_vector(self, party: int) -> bool:
        return self._nodes_of(party)[0] == self._node
