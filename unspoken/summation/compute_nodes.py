"""Secure sum by compute nodes: each party sends one message to each node, and one honest node suffices.

Cross-silo, Algorithm 1 (DCA). A party splits its vector y into M shares that add up to y modulo 2^b. M − 1 of them
are uniformly random and travel as 32-byte seeds (the paper sends whole vectors), so a party uploads little more than
one vector for any number of nodes. The node that gets the vector rotates with the party's index, to share the load.
Messages to a node are encrypted to its key from the study's roster, so the coordinator may carry them.

A party makes a one-time key for each splitting, signs it, and seals its shares under it. The stages are:
- `settle`: nodes report the keys that they hold shares under. The coordinator has a party counted (`Fold`) if all its
  nodes hold the same key; a party that signed two keys is left out by all nodes, and its two signatures prove it.
- `agree`: each node signs one statement in an attempt: the sum's label, the survivors, and a digest of their one-time
  keys. It signs if the survivors are as many as planned at least, and those that use this node are exactly the parties
  that it has counted, under these keys.
- `finish`: each node gets the signatures of all M nodes. It reveals its part if all are for the statement that it has
  signed itself.

Security. Any M − 1 nodes, the coordinator and any parties together see, of an honest party, uniformly random words and
one total. An honest node signs one statement, and reveals against the signatures of all honest nodes. So all parts that
honest nodes ever reveal in an attempt are for one list of survivors S. Each party in S was compared by every honest
node that it uses: all of them have counted it, once and under the same key, and nobody else. So S is what is summed.

With `per_party` = p < M each party uses p of the nodes, while the coordinator sees every node's part. Let b nodes be
corrupt. If 2p ≤ M + b, a few colluders split the nodes into groups without a common party, and a sum opens for each
group. If 2p > M + b, any two parties have a common honest node, for they have 2p − M > b nodes in common. A combination
Σ c_j·(part of node j), with c_j = 0 for a node that reveals nothing, is more than random words only if c_j is the same
at all honest nodes of a party in S; through common nodes it is the same for all parties in S. Hence nothing opens but
the total of S, and all honest nodes are needed for it. Studies need 2p > M, and b = 2p − M − 1 nodes may be corrupt
(all but one if p = M). Then the smallest total that can open is of `least_survivors` parties, whatever the coordinator
tells to whom; and as honest nodes agree on S, noise components are opened for as many survivors as there are.

Not prevented: a corrupt node can end the run, or make the total wrong by an untrue part. A node that loses its state
during an attempt may sign a second time; a second total opens only if all honest nodes do.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import Field

from unspoken.noise.stream import KEY_BYTES, SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.base import (
    Aborted,
    Envelope,
    Openable,
    Party,
    Protocol,
    Roster,
    Session,
    SignedStatement,
    Unsuitable,
    address_of,
)
from unspoken.summation.compute_node import ComputeNode
from unspoken.summation.compute_nodes_coordinator import NodesCoordinator
from unspoken.summation.evidence import by_party, differ
from unspoken.summation.keys import (
    NONCE_BYTES,
    PUBLIC_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    Identity,
    agreement_key,
    public_key,
    seal,
)
from unspoken.summation.masks import add_masks
from unspoken.summation.node_messages import (
    Share,
    address,
    exclusive_or,
    is_weak,
    key_statement,
    nodes_of,
    sealing_key,
)
from unspoken.types import Words


class Options(Section):
    nodes: int = Field(3, ge=2, le=255, description="the number of compute nodes, from 2 to 255")
    per_party: int | None = Field(
        None,
        ge=2,
        le=255,
        description="the number of nodes that each party uses, more than half of all; unset: all",
    )


class PartyState(msgspec.Struct):
    root: bytes
    """The root of the one-time key and of the shares, deleted with the vector"""
    noise_seeds: list[bytes]
    submitted: list[tuple[int, bytes]] = []
    sent: bool = False


class ComputeNodesParty(Party):
    def __init__(
        self, session: Session, roster: Roster, nodes: list[int], index: int, identity: Identity, secrets: SecretStream
    ) -> None:
        self._session, self._roster, self._nodes, self._index = session, roster, nodes, index
        self._identity = identity
        seeds = [secrets.key() for _ in range(session.components)]
        self.state: PartyState = PartyState(secrets.key(), seeds)

    @property
    def seeds(self) -> list[bytes]:
        return self.state.noise_seeds

    def step(self, incoming: bytes) -> list[Envelope]:
        return []

    def submit(self, vector: Words) -> list[Envelope]:
        """Send the shares. If asked again, repeat the same bytes: two vectors under one mask would reveal their
        difference."""
        state, session = self.state, self._session
        if state.sent and not state.submitted:
            raise Aborted("a party was asked for its vector again after it was sent and deleted")
        if not state.sent:
            secrets = self._secrets_for(vector)
            key, masks = secrets.key(), [secrets.key() for _ in self._nodes[1:]]
            rest = add_masks(vector, [(mask, False) for mask in masks], session)
            shares = zip([session.pack(rest), *masks], self._noise_shares(secrets), strict=True)
            state.submitted = self._sealed(key, [share + noise for share, noise in shares])
            state.root, state.sent = b"", True
        return [Envelope(address(node), body) for node, body in state.submitted]

    def forget_vector(self) -> None:
        """Delete all that this party has of the sum: the vector, the keys, the seeds of its noise."""
        self.state = PartyState(b"", [], sent=True)

    def _secrets_for(self, vector: Words) -> SecretStream:
        """The secrets for this vector. Another vector gets other secrets, even if both start from the same stored
        state.

        The vector's GMAC under a secret key is a universal hash: two vectors share it with probability below 2⁻⁹⁰.
        """
        root = SecretStream(self.state.root)
        words = np.ascontiguousarray(vector, dtype=self._session.wire_type)
        tag = AESGCM(root.key()).encrypt(bytes(NONCE_BYTES), b"", words.view(np.uint8).data)
        return SecretStream(hmac.digest(root.key(), tag, "sha256"))

    def _noise_shares(self, secrets: SecretStream) -> list[bytes]:
        """Shares whose exclusive or is the concatenation of the noise seeds."""
        together = b"".join(self.state.noise_seeds)
        shares = [secrets.take(len(together)) for _ in self._nodes[1:]]
        return [exclusive_or([together, *shares]), *shares]

    def _sealed(self, key: bytes, shares: list[bytes]) -> list[tuple[int, bytes]]:
        """The messages to the nodes, under one one-time key."""
        label, index, public = self._session.label(), self._index, public_key(key)
        signature, messages = self._identity.sign(key_statement(label, index, public)), []
        for node, share in zip(self._nodes, shares, strict=True):
            theirs = agreement_key(self._roster.helpers[node])
            sealed = seal(sealing_key(key, theirs, public, label, index, node), 0, share)
            message = Share(label, index, node, public, signature, memoryview(sealed))
            messages.append((node, msgspec.msgpack.encode(message)))
        return messages


class ComputeNodes(Protocol):
    """Additive secret sharing among compute nodes."""

    options_type = Options

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        self._count = options.nodes
        self._per_party = options.nodes if options.per_party is None else options.per_party
        if self._per_party > self._count:
            raise Unsuitable(
                "summation.per_party",
                f"is {self._per_party}, but there are only {self._count} nodes; leave it out to use all nodes",
            )
        if 2 * self._per_party <= self._count:
            raise Unsuitable(
                "summation.per_party",
                f"is {self._per_party} of {self._count} nodes, so a few parties that collude or drop out can split the "
                f"total into smaller ones; use {self._count // 2 + 1} or more, or leave it out to use all nodes",
            )
        super().__init__(session, options, roster)

    @property
    def opens_noise(self) -> bool:
        """True: the nodes agree on the survivors, and open the noise that so many survivors do not need."""
        return True

    @property
    def withstands_lies(self) -> bool:
        return True

    @property
    def parameters(self) -> dict[str, int]:
        return {"nodes": self._count, "per_party": self._per_party}

    @property
    def assumptions(self) -> tuple[str, ...]:
        honest = self._count - self._corrupt
        keep = "one" if honest == 1 else f"{honest}"
        whose = "keeps to itself what it receives, and never forgets what it signed"
        if honest > 1:
            whose = "keep to themselves what they receive, and never forget what they signed"
        return (f"at least {keep} of the {self._count} compute nodes {whose}",)

    @property
    def _corrupt(self) -> int:
        """The number of nodes that may be corrupt while any two parties still have a common honest node."""
        return 2 * self._per_party - self._count - 1

    def openable(self, colluding: int) -> Openable:
        """The total of the one list of survivors that all honest nodes have signed, and nothing else."""
        return Openable(self.session.least_survivors)

    def convicts(self, evidence: Sequence[SignedStatement]) -> dict[str, str]:
        convicted = {}
        for party, signed in by_party(evidence, self.session.parties).items():
            beginning = key_statement(self.session.label(), party, b"")
            keys = [each.statement[len(beginning) :] for each in signed if each.statement.startswith(beginning)]
            if differ(signed, beginning):
                convicted[address_of(party)] = "it signed two one-time keys"
            elif any(is_weak(key) for key in keys):
                convicted[address_of(party)] = "it signed a one-time key of low order"
        return convicted

    def upload_bytes(self) -> int:
        """The bytes of one party: a vector for its first node, seeds for the others, noise shares for all."""
        session, last = self.session, self.session.parties - 1
        label, sender = sizes.of_text(session.label()), sizes.of_integer(last)
        key, signature = sizes.of_bytes(PUBLIC_BYTES), sizes.of_bytes(SIGNATURE_BYTES)
        noise = session.components * KEY_BYTES + TAG_BYTES
        sealed = [session.vector_bytes + noise, *[KEY_BYTES + noise] * (self._per_party - 1)]
        nodes = nodes_of(last, self._count, self._per_party)
        return sum(
            sizes.of_message(Share, label, sender, sizes.of_integer(node), key, signature, sizes.of_bytes(size))
            for node, size in zip(nodes, sealed, strict=True)
        )

    @property
    def helper_addresses(self) -> tuple[str, ...]:
        return tuple(address(node) for node in range(self._count))

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> ComputeNodesParty:
        nodes = nodes_of(index, self._count, self._per_party)
        return ComputeNodesParty(self.session, self.roster, nodes, index, identity, secrets)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> NodesCoordinator:
        return NodesCoordinator(self.session, self.roster, self._per_party, identity)

    def helper(self, index: int, identity: Identity, secrets: SecretStream) -> ComputeNode:
        return ComputeNode(self.session, self.roster, index, self._count, self._per_party, identity)
