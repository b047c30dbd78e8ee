"""Secure aggregation with one coordinator, masks between parties, and recovery from dropouts: SecAgg and SecAgg+.

Bonawitz et al. 2017 (everyone masks with everyone) and Bell et al. 2020 (with a few random neighbours). Four rounds:

    keys      each party advertises two keys for this sum, signed by its identity in the roster
    shares    each party deals shares of its mask key, its self-mask seed and its noise seeds to its neighbours, sealed
    vectors   each party sends its vector + its own mask ± a mask for each neighbour
    unmasking the parties that are left open, for each neighbour, the share of its self-mask seed if its vector arrived,
              or else the share of its mask key: never both

Against whom. A curious coordinator together with any parties such that no honest party has `threshold` of them as
neighbours sees, of the others, uniformly random words and the total. A party checks the signatures, the graph, and
that enough neighbours are there; it answers one unmasking request, and no second one that differs. Every message is
authenticated, and the opened seeds are checked against commitments, so what comes out is the exact total or nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import shamir
from unspoken.summation.base import (
    Aborted,
    Envelope,
    Message,
    Openable,
    Rejected,
    Roster,
    Session,
    Unsuitable,
    bitmap,
    check_survivors,
    decode,
    from_bitmap,
)
from unspoken.summation.graph import Degree, complete_degree, degree_for, surrounded
from unspoken.summation.keys import Identity, agree, public_key, seal, unseal
from unspoken.summation.masks import add_masks
from unspoken.summation.neighbours import (
    NONCE_BYTES,
    Introduce,
    MeetingState,
    NeighbourCoordinator,
    NeighbourParty,
    NeighbourProtocol,
    NeighbourState,
    mask_seed,
)
from unspoken.types import Flags, Words

SHARE_BYTES = 4 * shamir.SYMBOLS


class Options(Section):
    """SecAgg and SecAgg+ take everything they need from the study's parties and privacy."""


class Deal(Message, frozen=True, tag="secagg/deal"):
    """Party to coordinator: sealed shares, one for each neighbour in the order of their numbers."""

    receivers: list[int]
    sealed: list[bytes]


class Relay(Message, frozen=True, tag="secagg/relay"):
    """Coordinator to party: the shares that its neighbours dealt to it."""

    senders: list[int]
    sealed: list[bytes]


class Masked(Message, frozen=True, tag="secagg/masked"):
    """Party to coordinator: its masked vector, and hashes of the seeds that may be opened later."""

    vector: memoryview
    commitments: list[bytes]


class Unmask(Message, frozen=True, tag="secagg/unmask"):
    """Coordinator to party: whose vectors have arrived."""

    survivors: bytes


class Opened(Message, frozen=True, tag="secagg/opened"):
    """Party to coordinator: shares of the seeds of neighbours that are in, of the mask keys of the others."""

    alive: list[int]
    alive_shares: bytes
    gone: list[int]
    gone_shares: bytes


ToParty: TypeAlias = Introduce | Relay | Unmask
FromParty: TypeAlias = Deal | Masked | Opened


def sealing_key(secret: bytes, public: bytes, label: str, one: int, other: int) -> bytes:
    """The key of the two messages between a pair of neighbours, one each way."""
    return agree(secret, public, f"seal/{label}/{min(one, other)}/{max(one, other)}".encode())


def commitment(label: str, sender: int, seed: bytes) -> bytes:
    """The hash of a random 32-byte seed tells nothing about it, and fixes it."""
    return hashlib.sha256(f"seed/{label}/{sender}/".encode() + seed).digest()


class PartyState(NeighbourState):
    self_seed: bytes = b""
    noise_seeds: list[bytes] = []
    seals: dict[int, bytes] = {}
    masks: list[tuple[bytes, bool]] = []
    inbox: dict[int, bytes] = {}
    answered: bytes = b""


class SecAggParty(NeighbourParty):
    """One party. Its vector is needed for a moment only; everything else is a few keys and shares."""

    def __init__(
        self, session: Session, roster: Roster, degree: Degree, index: int, identity: Identity, secrets: SecretStream
    ) -> None:
        super().__init__(session, roster, degree, index, identity)
        seeds = [secrets.key() for _ in range(session.components)]
        self._sharing = SecretStream(secrets.key())
        self.state: PartyState = PartyState(secrets.key(), secrets.key(), self_seed=secrets.key(), noise_seeds=seeds)

    @property
    def seeds(self) -> list[bytes]:
        return self.state.noise_seeds

    @property
    def ready(self) -> bool:
        return bool(self.state.inbox)

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return self._advertise()
        message: ToParty = self._unwrapped(incoming, ToParty)
        match message:
            case Introduce():
                self._meet(message)
                return [self._wrapped(self._deal())]
            case Relay():
                self._receive(message)
                return []
            case Unmask():
                return [self._wrapped(self._open(message))]

    def submit(self, vector: Words) -> list[Envelope]:
        if not self.ready:
            raise Aborted("a party was asked for its vector before its neighbours' shares had come")
        state = self.state
        if not state.submitted:
            masked = self._session.pack(add_masks(vector, [(state.self_seed, True), *state.masks], self._session))
            hashes = [commitment(self._label, self._index, seed) for seed in (state.self_seed, *state.noise_seeds)]
            # Kept as sent: a second vector under the same masks would reveal the difference.
            state.submitted = self._wrapped(Masked(memoryview(masked), hashes)).body
        return self._sent()

    def _deal(self) -> Deal:
        """Share what the neighbours may have to open for this party."""
        state = self.state
        receivers = list(state.keys)
        secrets = [state.mask_secret, state.self_seed, *state.noise_seeds]
        points = np.array(receivers, dtype=np.uint64) + np.uint64(1)
        shares = shamir.split(secrets, points, self._degree.threshold, self._sharing).astype("<u4")
        for other, (cipher_key, _) in state.keys.items():
            state.seals[other] = sealing_key(state.cipher_secret, cipher_key, self._label, self._index, other)
        sealed = [
            seal(state.seals[receiver], int(self._index > receiver), share.tobytes())
            for receiver, share in zip(receivers, shares, strict=True)
        ]
        return Deal(receivers, sealed)

    def _receive(self, relay: Relay) -> None:
        state = self.state
        if not state.introduced:
            raise Rejected("shares came before the neighbours were introduced")
        if state.inbox:
            raise Rejected("shares came twice")
        senders = relay.senders
        if (
            len(senders) != len(relay.sealed)
            or len(set(senders)) != len(senders)
            or not state.keys.keys() >= set(senders)
        ):
            raise Aborted("shares came from parties that are no neighbours, or twice from the same")
        if len(senders) < self._degree.threshold:
            raise Aborted(f"shares came from {len(senders)} neighbours only; {self._degree.threshold} are needed")
        # Agreed on now, so that nothing but the cipher runs when the vector is there.
        state.masks = self._masks_with(senders)
        state.inbox = dict(zip(senders, relay.sealed, strict=True))

    def _open(self, request: Unmask) -> Opened:
        """One share for each neighbour: of its seeds if its vector is in the total, of its mask key if not."""
        state, session = self.state, self._session
        if not state.submitted:
            raise Rejected("unmasking was asked for before this party had sent its vector")
        if state.answered and state.answered != request.survivors:
            raise Aborted("the coordinator asked for a second, different unmasking; it gets nothing")
        survivors = from_bitmap(request.survivors, session.parties)
        check_survivors(int(survivors.sum()), session)
        if not survivors[self._index]:
            raise Aborted("the coordinator left out this party's vector and still asked it to unmask")
        alive = [sender for sender in state.inbox if survivors[sender]]
        gone = [sender for sender in state.inbox if not survivors[sender]]
        if len(alive) < self._degree.threshold:
            raise Aborted(f"only {len(alive)} neighbours are left in the total; {self._degree.threshold} are needed")
        opened = [1, *(2 + number for number in session.opened(int(survivors.sum())))]
        alive_shares = b"".join(self._share_of(sender)[opened].tobytes() for sender in alive)
        gone_shares = b"".join(self._share_of(sender)[0].tobytes() for sender in gone)
        state.answered = request.survivors
        return Opened(alive, alive_shares, gone, gone_shares)

    def _share_of(self, sender: int) -> Any:
        """The shares that a neighbour dealt to this party."""
        number = int(sender > self._index)
        plain = unseal(self.state.seals[sender], number, self.state.inbox[sender], f"party {sender}")
        secrets = 2 + self._session.components
        if len(plain) != secrets * SHARE_BYTES:
            raise Aborted(f"party {sender} dealt a share of {len(plain)} bytes; {secrets * SHARE_BYTES} were due")
        return np.frombuffer(plain, dtype="<u4").reshape(secrets, shamir.SYMBOLS)


class CoordinatorState(MeetingState):
    deals: dict[int, dict[int, bytes]] = {}
    commitments: dict[int, list[bytes]] = {}
    total: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    settled: list[int] = []
    answers: dict[int, Opened] = {}


class SecAggCoordinator(NeighbourCoordinator):
    """Collects until told to go on (a deadline is the engine's business), then goes on with whoever is there."""

    setup_stages = 2

    def __init__(self, session: Session, roster: Roster, degree: Degree, secret: bytes, secrets: SecretStream) -> None:
        super().__init__(session, roster, degree, secret)
        self.state: CoordinatorState = CoordinatorState(secrets.take(NONCE_BYTES), total=session.zeros())
        self._opened_shares: dict[str, dict[int, tuple[Words, Words]]] = {}

    def _take(self, sender: int, body: memoryview) -> None:
        message: FromParty = decode(body, FromParty)
        match self.state.stage, message:
            case "shares", Deal():
                self._take_deal(sender, message)
            case "vectors", Masked():
                self._take_vector(sender, message)
            case "unmasking", Opened():
                self._take_opened(sender, message)
            case stage, other:
                raise Rejected(f"party {sender} sent {type(other).__name__} in the stage of {stage}")

    def advance(self) -> list[Envelope]:
        """Close the stage of keys or of shares: introduce neighbours, or relay their shares."""
        state = self.state
        if state.stage == "keys":
            envelopes = self._introduce()
            state.stage = "shares"
            return envelopes
        if state.stage == "shares":
            check_survivors(len(state.deals), self._session)
            state.stage = "vectors"
            return [self._to(party, self._relay(party)) for party in sorted(state.deals)]
        raise Aborted(f"there is no stage to close after {state.stage}")

    def finish(self) -> list[Envelope]:
        state = self.state
        if state.stage not in ("vectors", "unmasking"):
            raise Aborted("the sum was to be finished before vectors could be sent")
        check_survivors(len(state.commitments), self._session)
        state.stage = "unmasking"
        state.settled = sorted(state.commitments)
        request = Unmask(bitmap(self.survivors()))
        return [self._to(party, request) for party in state.settled]

    def survivors(self) -> Flags:
        present = np.zeros(self._session.parties, dtype=np.bool_)
        present[list(self.state.commitments)] = True
        return present

    def total(self) -> Words:
        state, session = self.state, self._session
        if state.stage != "unmasking":
            raise Aborted("the total was asked for before it was complete")
        self._opened_shares = {}
        seeds: list[tuple[bytes, bool]] = [(self._seed(party, 0), False) for party in state.settled]
        for party in sorted(state.deals.keys() - state.commitments.keys()):
            seeds += self._pair_seeds(party)
        return session.reduce(add_masks(state.total, seeds, session))

    def opened(self) -> dict[int, list[bytes]]:
        numbers = self._session.opened(len(self.state.settled))
        return {
            party: [self._seed(party, 1 + position, 1 + number) for position, number in enumerate(numbers)]
            for party in self.state.settled
        }

    def _take_deal(self, sender: int, deal: Deal) -> None:
        expected = [party for party in self._neighbours(sender) if party in self.state.keys]
        if deal.receivers != expected or len(deal.sealed) != len(expected):
            raise Rejected(f"party {sender} dealt shares to others than its neighbours")
        if sender in self.state.deals:
            raise Rejected(f"a second message came from party {sender}")
        self.state.deals[sender] = dict(zip(deal.receivers, deal.sealed, strict=True))

    def _take_vector(self, sender: int, masked: Masked) -> None:
        if sender not in self.state.deals:
            raise Rejected(f"party {sender} sent a vector but had dealt no shares")
        if sender in self.state.commitments:
            raise Rejected(f"a second message came from party {sender}")
        if len(masked.commitments) != 1 + self._session.components:
            raise Rejected(f"party {sender} sent {len(masked.commitments)} commitments")
        self.state.total += self._session.unpack(masked.vector)
        self.state.commitments[sender] = masked.commitments

    def _take_opened(self, sender: int, opened: Opened) -> None:
        state = self.state
        if sender not in state.commitments or sender in state.answers:
            raise Rejected(f"party {sender} opened shares twice, or is not in the total")
        dealt = [party for party in self._neighbours(sender) if party in state.deals]
        alive = [party for party in dealt if party in state.commitments]
        gone = [party for party in dealt if party not in state.commitments]
        size = SHARE_BYTES * (1 + len(self._session.opened(len(state.settled))))
        lengths = (len(opened.alive_shares), len(opened.gone_shares))
        if (opened.alive, opened.gone) != (alive, gone) or lengths != (size * len(alive), SHARE_BYTES * len(gone)):
            raise Rejected(f"party {sender} opened other shares than it was asked for")
        state.answers[sender] = opened

    def _shares(self, kind: Literal["alive", "gone"]) -> dict[int, tuple[Words, Words]]:
        """The opened shares by the party they are of: the points, and the shares (points, secrets, symbols)."""
        answers = self.state.answers
        owners = np.concatenate([np.array(getattr(a, kind), dtype=np.int64) for a in answers.values()])
        senders = np.repeat(np.array(list(answers), dtype=np.uint64), [len(getattr(a, kind)) for a in answers.values()])
        joined = b"".join(getattr(answer, f"{kind}_shares") for answer in answers.values())
        shares = np.frombuffer(joined, dtype="<u4").reshape(len(owners), -1, shamir.SYMBOLS)
        order = np.argsort(owners, kind="stable")
        parties, starts = np.unique(owners[order], return_index=True)
        return {
            int(party): (senders[rows] + np.uint64(1), shares[rows].astype(np.uint64))
            for party, rows in zip(parties, np.split(order, starts[1:]), strict=True)
        }

    def _combined(self, kind: Literal["alive", "gone"], party: int, position: int) -> bytes:
        """One of a party's secrets, from as many shares as are needed."""
        if kind not in self._opened_shares:
            self._opened_shares[kind] = self._shares(kind) if self.state.answers else {}
        none = np.empty(0, dtype=np.uint64)
        points, shares = self._opened_shares[kind].get(party, (none, none))
        needed = self._degree.threshold
        if len(points) < needed:
            raise Aborted(
                f"only {len(points)} shares of party {party} were opened and {needed} are needed; nothing was revealed"
            )
        return shamir.combine(shares[:needed, position], points[:needed])

    def _seed(self, party: int, position: int, number: int = 0) -> bytes:
        """A party's self-mask seed (or one of its noise seeds), checked against its commitment."""
        seed = self._combined("alive", party, position)
        if commitment(self._label, party, seed) != self.state.commitments[party][number]:
            raise Aborted(
                f"the opened shares of party {party} do not give what it had committed to; nothing was revealed"
            )
        return seed

    def _pair_seeds(self, party: int) -> list[tuple[bytes, bool]]:
        """The masks that survivors had in common with a party that is gone, with the sign that takes them away."""
        secret = self._combined("gone", party, 0) if self._has_survivors(party) else b""
        if secret and public_key(secret) != self.state.keys[party].mask_key:
            raise Aborted(f"the opened shares of party {party} do not give its mask key; nothing was revealed")
        seeds = []
        for survivor in self._neighbours(party):
            if survivor in self.state.commitments and party in self.state.deals[survivor]:
                seed = mask_seed(secret, self.state.keys[survivor].mask_key, self._label, party, survivor)
                seeds.append((seed, survivor > party))
        return seeds

    def _has_survivors(self, party: int) -> bool:
        return any(neighbour in self.state.commitments for neighbour in self._neighbours(party))

    def _relay(self, party: int) -> Relay:
        senders = [other for other in self._neighbours(party) if other in self.state.deals]
        return Relay(senders, [self.state.deals[other][party] for other in senders])


class SecAgg(NeighbourProtocol):
    """Everyone masks with everyone (Bonawitz et al. 2017)."""

    opens_noise = True

    def __init__(self, session: Session, options: Options, secrets: SecretStream) -> None:
        super().__init__(session, self._degree(session), secrets)
        if self.openable(session.colluding).alone:
            raise Unsuitable(
                "privacy.colluding",
                f"comes to {session.colluding} of {session.parties} parties, but where "
                f"{session.parties - session.least_survivors} may drop out any {self.degree.threshold} can unmask "
                'another; lower colluding or dropouts, have more parties, or use "compute-nodes"',
            )

    def openable(self, colluding: int) -> Openable:
        """Colluders unmask a neighbour if they hold `threshold` of its shares: for sure, or by the graph's dice."""
        session = self.session
        exposure = surrounded(session.parties, colluding, self.degree) + self._cut_off(colluding)
        return Openable(session.least_survivors, exposure, alone=exposure >= 1.0)

    def _degree(self, session: Session) -> Degree:
        return complete_degree(session.parties, session.parties - session.least_survivors)

    def coordinator(self) -> SecAggCoordinator:
        return SecAggCoordinator(self.session, self._roster, self.degree, self._coordinator_secret, self._secrets)

    def party(self, index: int, secrets: SecretStream) -> SecAggParty:
        return SecAggParty(self.session, self._roster, self.degree, index, self._identities.identity(index), secrets)

    def _rehearsal(self) -> list[Message]:
        session, degree = self.session, self.degree.neighbours
        others = list(range(session.parties - degree, session.parties))
        share = bytes((2 + session.components) * SHARE_BYTES + 16)
        vector = session.pack(np.zeros(session.length, dtype=np.uint64))
        opened = bytes(degree * SHARE_BYTES * (1 + len(session.opened(session.parties))))
        return [
            Deal(others, [share] * degree),
            Masked(memoryview(vector), [bytes(32)] * (1 + session.components)),
            Opened(others, opened, [], b""),
        ]


class SecAggPlus(SecAgg):
    """Everyone masks with a few random neighbours (Bell et al. 2020)."""

    def _degree(self, session: Session) -> Degree:
        return degree_for(session.parties, session.colluding, session.parties - session.least_survivors)
