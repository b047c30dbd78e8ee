"""SecAgg and SecAgg+: secure aggregation with masks between parties and recovery from dropouts.

Bonawitz et al. 2017 (everyone masks with everyone) and Bell et al. 2020 (with a few random neighbours). Four rounds:

    keys      each party advertises two keys for this sum, signed by its identity in the roster
    shares    each party deals shares of its mask key, its self-mask seed and its noise seeds to its neighbours, sealed
    vectors   each party sends its vector + its own mask ± a mask for each neighbour
    unmasking each remaining party opens, for each neighbour, the share of its self-mask seed if its vector arrived, or
              else the share of its mask key: never both

Security. A curious coordinator together with any parties, as long as no honest party has `threshold` of them as
neighbours, sees of the others uniformly random words and the total. A party checks the signatures, the graph, and that
enough neighbours are present; it answers one unmasking request, and no second, different one. Every message is
authenticated, and opened seeds are checked against commitments, so the result is the exact total or nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import shamir, sizes
from unspoken.summation.base import (
    Aborted,
    Envelope,
    Openable,
    Rejected,
    Roster,
    Session,
    Unsuitable,
    check_survivors,
    from_bitmap,
)
from unspoken.summation.graph import Degree, complete_degree, degree_for, surrounded
from unspoken.summation.introductions import Introduce, NeighbourParty, NeighbourProtocol, NeighbourState
from unspoken.summation.keys import TAG_BYTES, Identity, seal, unseal
from unspoken.summation.masks import add_masks
from unspoken.summation.secagg_coordinator import SecAggCoordinator
from unspoken.summation.secagg_messages import (
    COMMITMENT_BYTES,
    SHARE_BYTES,
    Deal,
    Masked,
    Opened,
    Relay,
    ToParty,
    Unmask,
    commitment,
    sealing_key,
)
from unspoken.types import Words


class Options(Section):
    """SecAgg and SecAgg+ have no options: [parties] and [privacy] determine everything."""


class PartyState(NeighbourState):
    self_seed: bytes = b""
    noise_seeds: list[bytes] = []
    seals: dict[int, bytes] = {}
    masks: list[tuple[bytes, bool]] = []
    inbox: dict[int, bytes] = {}
    answered: bytes = b""


class SecAggParty(NeighbourParty):
    """One party. Besides its vector, which is not kept, it holds a few keys and shares."""

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
            raise Aborted("a party was asked for its vector before it had its neighbours' shares")
        state = self.state
        if not state.submitted:
            masked = self._session.pack(add_masks(vector, [(state.self_seed, True), *state.masks], self._session))
            hashes = [commitment(self._label, self._index, seed) for seed in (state.self_seed, *state.noise_seeds)]
            # Kept as sent: two vectors under the same masks would reveal their difference.
            state.submitted = self._wrapped(Masked(memoryview(masked), hashes)).body
        return self._sent()

    def _deal(self) -> Deal:
        """Shares of the secrets that the neighbours may have to open for this party."""
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
            raise Aborted("shares came twice from the same party, or from one that is not a neighbour")
        if len(senders) < self._degree.threshold:
            raise Aborted(f"shares came from only {len(senders)} neighbours; {self._degree.threshold} are needed")
        # Agreed on now, so that only the cipher runs once the vector is there.
        state.masks = self._masks_with(senders)
        state.inbox = dict(zip(senders, relay.sealed, strict=True))

    def _open(self, request: Unmask) -> Opened:
        """One share for each neighbour: of its seeds if its vector is in the total, else of its mask key."""
        state, session = self.state, self._session
        if not state.submitted:
            raise Rejected("unmasking was asked for before this party had sent its vector")
        if state.answered and state.answered != request.survivors:
            raise Aborted("the coordinator asked for a second, different unmasking, which is refused")
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


class SecAgg(NeighbourProtocol):
    """Everyone masks with everyone (Bonawitz et al. 2017)."""

    options_type = Options

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        super().__init__(session, options, self._degree(session), roster)
        if self.openable(session.colluding).alone:
            raise Unsuitable(
                "privacy.colluding",
                f"comes to {session.colluding} of {session.parties} parties, but if "
                f"{session.parties - session.least_survivors} may drop out, any {self.degree.threshold} can unmask "
                'another; lower colluding or dropouts, use more parties, or use "compute-nodes"',
            )

    @property
    def opens_noise(self) -> bool:
        return True

    def openable(self, colluding: int) -> Openable:
        """Colluders unmask a neighbour if they hold `threshold` of its shares, surely or by chance of the graph."""
        session = self.session
        exposure = surrounded(session.parties, colluding, self.degree) + self._cut_off(colluding)
        return Openable(session.least_survivors, exposure, alone=exposure >= 1.0)

    def _degree(self, session: Session) -> Degree:
        return complete_degree(session.parties, session.parties - session.least_survivors)

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> SecAggParty:
        return SecAggParty(self.session, self.roster, self.degree, index, identity, secrets)

    def coordinator(self, secret: bytes, secrets: SecretStream) -> SecAggCoordinator:
        return SecAggCoordinator(self.session, self.roster, self.degree, secret, secrets)

    def _later_sizes(self) -> list[int]:
        session, degree = self.session, self.degree.neighbours
        others = sizes.of_range(session.parties - degree, session.parties)
        sealed = sizes.of_bytes((2 + session.components) * SHARE_BYTES + TAG_BYTES)
        hashes = 1 + session.components
        commitments = sizes.of_header(hashes) + hashes * sizes.of_bytes(COMMITMENT_BYTES)
        opened = sizes.of_bytes(degree * SHARE_BYTES * (1 + len(session.opened(session.parties))))
        return [
            sizes.of_message(Deal, others, sizes.of_header(degree) + degree * sealed),
            sizes.of_message(Masked, sizes.of_bytes(session.vector_bytes), commitments),
            sizes.of_message(Opened, others, opened, sizes.of_header(0), sizes.of_bytes(0)),
        ]


class SecAggPlus(SecAgg):
    """Everyone masks with a few random neighbours (Bell et al. 2020)."""

    def _degree(self, session: Session) -> Degree:
        return degree_for(session.parties, session.colluding, session.parties - session.least_survivors)
