"""The coordinator's side of the compute-nodes sum: it tells nodes whom to count, has them agree, and adds up their
parts.

See `compute_nodes` for the protocol and its security, which does not rest on the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from unspoken.noise.stream import KEY_BYTES
from unspoken.summation.base import (
    COORDINATOR,
    Aborted,
    Coordinator,
    Envelope,
    Rejected,
    Roster,
    Session,
    SignedStatement,
    address_of,
)
from unspoken.summation.errors import spoken
from unspoken.summation.incoming import bitmap, check_label, check_survivors, decode
from unspoken.summation.keys import Channel, Identity, agreement_key, is_signed, verify
from unspoken.summation.node_messages import (
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
    SignedKey,
    ToNode,
    address,
    exclusive_or,
    is_weak,
    key_statement,
    nodes_of,
    survivors_statement,
    users_of,
)
from unspoken.types import Flags, Integers, Words


class CoordinatorState(msgspec.Struct):
    settled: np.ndarray
    """The parties that the nodes were told to count"""
    keys: np.ndarray
    """The `KeyTable` of these parties"""
    total: np.ndarray
    reports: dict[int, dict[int, SignedKey]]
    """The keys of all other parties, by party and by the node that holds a share under it"""
    unacknowledged: dict[int, set[int]]
    """The settled parties that a node has not yet acknowledged to have counted"""
    heard: set[int]
    """The nodes that have said whom they hold something of"""
    blamed: dict[str, str]
    evidence: list[SignedStatement]
    statement: bytes = b""
    """The list that the nodes are to sign: the parties in the total are fixed"""
    signatures: dict[int, bytes] = {}
    """The nodes' signatures of the survivors"""
    parts: dict[int, bytes] = {}
    """Each node's shares of the opened noise seeds"""
    failed: str = ""
    """The reason of the abort, if there was one"""


class NodesCoordinator(Coordinator):
    def __init__(self, session: Session, roster: Roster, per_party: int, identity: Identity) -> None:
        self._session, self._roster, self._per_party = session, roster, per_party
        self._nodes = len(roster.helpers)
        self._channels = [
            Channel(identity.agreement_secret, agreement_key(public), session.label(), COORDINATOR, address(node))
            for node, public in enumerate(roster.helpers)
        ]
        self.state: CoordinatorState = CoordinatorState(
            settled=np.zeros(session.parties, dtype=np.bool_),
            keys=KeyTable.empty(session.parties),
            total=session.zeros(),
            reports={},
            unacknowledged={},
            heard=set(),
            blamed={},
            evidence=[],
        )

    @property
    def blamed(self) -> dict[str, str]:
        return dict(self.state.blamed)

    @property
    def evidence(self) -> tuple[SignedStatement, ...]:
        return tuple(self.state.evidence)

    def settle(self) -> list[Envelope]:
        """Ask all nodes whom they have heard from, and repeat what a node has not acknowledged."""
        self._check_failed()
        if self.state.statement:
            return []
        return [*self._folds(self.state.unacknowledged), *self._to_all(Roll())]

    def agree(self) -> list[Envelope]:
        """Fix the survivors, and ask all nodes to sign them. Asked again, it repeats itself."""
        self._check_failed()
        state, survivors, digests = self.state, bitmap(self.state.settled), self._digests()
        if not state.statement:
            try:
                check_survivors(int(state.settled.sum()), self._session)
            except Aborted as error:
                raise self._aborted(self._missed() or str(error)) from None
            state.statement, state.reports = survivors_statement(self._session.label(), survivors, digests), {}
        return self._to_all(Propose(survivors, digests))

    def _missed(self) -> str:
        """That nodes hold nothing of what others hold of the same parties, or that no node answers, if so: then no
        parties are lacking."""
        reports = self.state.reports
        if not self.state.heard:
            return "no compute node answers, so nobody knows what parties sent; have the nodes there next time"
        due = {node for sender in reports for node in self._nodes_of(sender)}
        silent = sorted(due.difference(*reports.values()))
        if not silent:
            return ""
        named, it = ", ".join(spoken(address(node)) for node in silent), "it" if len(silent) == 1 else "them"
        sent = "what 1 party sent" if len(reports) == 1 else f"what {len(reports):,} parties sent"
        return f"{named} took in nothing of {sent}, and a total needs every node; have {it} there next time"

    def finish(self) -> list[Envelope]:
        self._check_failed()
        state, nodes = self.state, range(self._nodes)
        if missing := [address(node) for node in nodes if node not in state.signatures]:
            raise Aborted(f"{', '.join(missing)} did not sign the survivors; nothing was revealed", tuple(missing))
        return self._to_all(Reveal([state.signatures[node] for node in nodes]))

    def step(self, incoming: bytes) -> list[Envelope]:
        self._check_failed()
        if not incoming:
            return []
        framed: Framed = decode(incoming, Framed)
        check_label(framed.session, self._session)
        if not 0 <= framed.node < self._nodes:
            raise Rejected(f"a message came from node {framed.node}; there are {self._nodes}")
        message: FromNode = decode(self._channels[framed.node].unwrap(framed.body), FromNode)
        match message:
            case Held():
                return self._gather(framed.node, message)
            case Folded():
                self.state.unacknowledged.get(framed.node, set()).difference_update(message.senders)
            case Agreed():
                self._note_agreement(framed.node, message)
            case PartialTotal():
                self._add(framed.node, message)
        return []

    def _gather(self, node: int, held: Held) -> list[Envelope]:
        """Have those parties counted whose nodes all hold a share under the same key."""
        for sender in {signed.sender for signed in (*held.keys, *held.faults)}:
            if not 0 <= sender < self._session.parties or node not in self._nodes_of(sender):
                raise Rejected(f"node {node} reports party {sender}, which does not use it")
        self.state.heard.add(node)
        if self.state.statement:
            # A late report; the parties in the total are fixed.
            return []
        first = {signed.sender: signed for signed in held.keys}
        for fault in held.faults:
            self._note_fault(node, fault, first.get(fault.sender))
        ready: dict[int, set[int]] = {}
        for signed in held.keys:
            for number in self._note_report(node, signed):
                ready.setdefault(number, set()).add(signed.sender)
        for number, senders in ready.items():
            self.state.unacknowledged.setdefault(number, set()).update(senders)
        return self._folds(ready)

    def _note_report(self, node: int, signed: SignedKey) -> Iterable[int]:
        """Note the key under which a node holds a share. Returns the nodes that are to count the party now."""
        state, sender = self.state, signed.sender
        if address_of(sender) in state.blamed:
            return ()
        if state.settled[sender]:
            # The node was started again from an older state, which this party was not yet counted in.
            self._check_settled(node, signed)
            return (node,)
        reports = state.reports.setdefault(sender, {})
        reports[node] = signed
        if len({report.key for report in reports.values()}) > 1:
            self._compare(reports)
            return ()
        if len(reports) < self._per_party:
            return ()
        del state.reports[sender]
        KeyTable(state.keys).put(signed)
        state.settled[sender] = True
        return self._nodes_of(sender)

    def _note_fault(self, node: int, fault: SignedKey, first: SignedKey | None) -> None:
        """Leave out a party that signed a key of low order, or another one than that of its share."""
        if self.state.settled[fault.sender] or address_of(fault.sender) in self.state.blamed:
            return
        if not self._is_signed(node, fault):
            return
        if is_weak(fault.key):
            self._leave_out(fault.sender, "it signed a one-time key of low order", [fault])
        elif first is not None and first.key != fault.key and self._is_signed(node, first):
            self._leave_out(fault.sender, "it signed two one-time keys", [first, fault])

    def _compare(self, reports: dict[int, SignedKey]) -> None:
        """Nodes hold shares of a party under different keys: leave the party out if it signed them all."""
        for node, signed in list(reports.items()):
            if not self._is_signed(node, signed):
                del reports[node]
        different = list({signed.key: signed for signed in reports.values()}.values())
        if len(different) > 1:
            self._leave_out(different[0].sender, "it signed two one-time keys", different[:2])

    def _check_settled(self, node: int, signed: SignedKey) -> None:
        """Abort if a node holds a share under another key than the one that the party is counted under."""
        counted = KeyTable(self.state.keys).of(signed.sender)
        if counted.key != signed.key and self._is_signed(node, signed):
            self._blame(signed.sender, "it signed two one-time keys", [counted, signed])
            self.state.failed = (
                f"party {signed.sender} signed two one-time keys, and {address(node)} holds another than the one that "
                "was counted; nothing was revealed"
            )
            raise self._aborted(self.state.failed)

    def _is_signed(self, node: int, signed: SignedKey) -> bool:
        """Whether the party signed the key; else the node is to blame that reported it."""
        statement = key_statement(self._session.label(), signed.sender, signed.key)
        genuine = is_signed(self._roster.parties[signed.sender], statement, signed.signature)
        if not genuine:
            self.state.blamed[address(node)] = f"reported a key that party {signed.sender} did not sign"
        return genuine

    def _leave_out(self, sender: int, reason: str, keys: list[SignedKey]) -> None:
        self.state.reports.pop(sender, None)
        self._blame(sender, reason, keys)

    def _blame(self, sender: int, reason: str, keys: list[SignedKey]) -> None:
        self.state.blamed[address_of(sender)] = reason
        self.state.evidence += [signed.evidence(self._session.label()) for signed in keys]

    def _note_agreement(self, node: int, agreed: Agreed) -> None:
        if not self.state.statement:
            raise Rejected(f"node {node} signed a list of survivors before there was one")
        verify(self._roster.helpers[node], self.state.statement, agreed.signature, f"node {node}")
        self.state.signatures[node] = agreed.signature

    def _digests(self) -> bytes:
        keys, nodes = KeyTable(self.state.keys), self._nodes
        return b"".join(keys.digest(self.state.settled, number, nodes) for number in range(nodes))

    def _add(self, node: int, part: PartialTotal) -> None:
        if node in self.state.parts:
            raise Rejected(f"node {node} sent its part twice")
        if len(self.state.signatures) < self._nodes:
            raise Rejected(f"node {node} sent its part before all nodes had signed the survivors")
        if len(part.opened) != self._counted_by(node).size * self._opened_bytes():
            raise Rejected(f"node {node} sent {len(part.opened)} bytes of noise seeds")
        self.state.total += self._session.unpack(part.total)
        self.state.parts[node] = part.opened

    def survivors(self) -> Flags:
        return self.state.settled

    def total(self) -> Words:
        self._check_failed()
        if missing := [address(node) for node in range(self._nodes) if node not in self.state.parts]:
            raise Aborted(f"no part of the total came from {', '.join(missing)}; nothing was revealed", tuple(missing))
        return self._session.reduce(self.state.total)

    def opened(self) -> dict[int, list[bytes]]:
        size = self._opened_bytes()
        seeds: dict[int, list[bytes]] = {int(party): [] for party in np.flatnonzero(self.state.settled)}
        if not size:
            return seeds
        shares: dict[int, list[bytes]] = {party: [] for party in seeds}
        for node, opened in self.state.parts.items():
            for position, party in enumerate(self._counted_by(node).tolist()):
                shares[party].append(opened[position * size : (position + 1) * size])
        for party, parts in shares.items():
            together = exclusive_or(parts)
            seeds[party] = [together[start : start + KEY_BYTES] for start in range(0, size, KEY_BYTES)]
        return seeds

    def _opened_bytes(self) -> int:
        return KEY_BYTES * len(self._session.opened(int(self.state.settled.sum())))

    def _nodes_of(self, party: int) -> list[int]:
        return nodes_of(party, self._nodes, self._per_party)

    def _counted_by(self, node: int) -> Integers:
        mine = users_of(node, self._session.parties, self._nodes, self._per_party)
        return np.flatnonzero(self.state.settled & mine)

    def _folds(self, ready: dict[int, set[int]]) -> list[Envelope]:
        keys = KeyTable(self.state.keys)
        return [
            self._to(node, Fold([keys.of(sender) for sender in sorted(senders)]))
            for node, senders in sorted(ready.items())
            if senders
        ]

    def _check_failed(self) -> None:
        if self.state.failed:
            raise self._aborted(self.state.failed)

    def _aborted(self, reason: str) -> Aborted:
        return Aborted(reason, self.state.blamed, self.evidence)

    def _to_all(self, message: ToNode) -> list[Envelope]:
        return [self._to(node, message) for node in range(self._nodes)]

    def _to(self, node: int, message: ToNode) -> Envelope:
        body = self._channels[node].wrap(msgspec.msgpack.encode(message))
        return Envelope(address(node), msgspec.msgpack.encode(Framed(self._session.label(), node, memoryview(body))))
