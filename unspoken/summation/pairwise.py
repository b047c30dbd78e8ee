"""Secure sum by pairwise keys: one round of keys, one masked vector, no recovery from dropouts.

Cross-silo, Algorithm 4 (fat clients). Each pair of neighbours agrees on a mask that one adds and the other subtracts,
so the masks cancel in the sum. A party that vanishes before the keys are exchanged is left out; if one vanishes later,
its masks remain and the sum is aborted. By default everyone masks with everyone, as in the paper. With `group` each
party masks with so many others in a random graph (not in closed groups, whose totals would be revealed one by one),
which is safe while the honest parties stay connected.
"""

from __future__ import annotations

import msgspec
import numpy as np
from pydantic import Field

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.base import Aborted, Envelope, Message, Openable, Rejected, Roster, Session, Unsuitable, decode
from unspoken.summation.graph import SECURITY_BITS, Degree, disconnected
from unspoken.summation.introductions import (
    NONCE_BYTES,
    Introduce,
    MeetingState,
    NeighbourCoordinator,
    NeighbourParty,
    NeighbourProtocol,
    NeighbourState,
)
from unspoken.summation.keys import Identity
from unspoken.summation.masks import add_masks
from unspoken.types import Flags, Words


class Options(Section):
    group: int | None = Field(
        None, ge=2, description="the number of others that each party masks with, 2 or more; unset: all"
    )


class Masked(Message, frozen=True, tag="pairwise/masked"):
    """Party to coordinator: its vector under its masks."""

    vector: memoryview


class PairwiseParty(NeighbourParty):
    def __init__(
        self, session: Session, roster: Roster, degree: Degree, index: int, identity: Identity, secrets: SecretStream
    ) -> None:
        super().__init__(session, roster, degree, index, identity)
        self.state: NeighbourState = NeighbourState(secrets.key(), secrets.key())

    @property
    def ready(self) -> bool:
        return bool(self.state.introduced)

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            return self._advertise()
        self._meet(self._unwrapped(incoming, Introduce))
        return []

    def submit(self, vector: Words) -> list[Envelope]:
        if not self.ready:
            raise Aborted("a party was asked for its vector before it knew its neighbours' keys")
        if not self.state.submitted:
            masked = add_masks(vector, self._masks_with(list(self.state.keys)), self._session)
            # Kept as sent: two vectors under the same masks would reveal their difference.
            self.state.submitted = self._wrapped(Masked(memoryview(self._session.pack(masked)))).body
        return self._sent()


class CoordinatorState(MeetingState):
    total: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    arrived: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


class PairwiseCoordinator(NeighbourCoordinator):
    setup_stages = 1

    def __init__(self, session: Session, roster: Roster, degree: Degree, secret: bytes, secrets: SecretStream) -> None:
        super().__init__(session, roster, degree, secret)
        self.state: CoordinatorState = CoordinatorState(
            secrets.take(NONCE_BYTES),
            total=session.zeros(),
            arrived=np.zeros(session.parties, dtype=np.bool_),
        )

    def advance(self) -> list[Envelope]:
        if self.state.stage != "keys":
            raise Aborted("there is no stage to close after the keys")
        envelopes = self._introduce()
        self.state.stage = "vectors"
        return envelopes

    def finish(self) -> list[Envelope]:
        missing = sorted(party for party in self.state.keys if not self.state.arrived[party])
        if self.state.stage != "vectors" or missing:
            shown = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
            raise Aborted(
                f"parties {shown} exchanged keys but sent no vector, and their masks cannot be removed; nothing was "
                "revealed. Use secagg+ where parties may vanish"
            )
        return []

    def survivors(self) -> Flags:
        return self.state.arrived

    def total(self) -> Words:
        return self._session.reduce(self.state.total)

    def _take(self, sender: int, body: memoryview) -> None:
        masked: Masked = decode(body, Masked)
        if self.state.arrived[sender]:
            raise Rejected(f"a second message came from party {sender}")
        self.state.total += self._session.unpack(masked.vector)
        self.state.arrived[sender] = True


class Pairwise(NeighbourProtocol):
    """Masks between all parties, or along a random graph."""

    options_type = Options

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        others = session.parties - 1
        degree = others if options.group is None or options.group >= others else options.group + options.group % 2
        allowed = session.parties - session.least_survivors
        if degree < others and disconnected(session.parties, session.colluding + allowed, degree) > 2.0**-SECURITY_BITS:
            raise Unsuitable(
                "summation.group",
                f"is {options.group}, too few for {session.colluding} colluding of {session.parties} parties: they "
                "could cut an honest party off; raise it, or leave it out",
            )
        super().__init__(session, options, Degree(degree, max(1, degree - allowed)), roster)

    @property
    def notes(self) -> tuple[str, ...]:
        if self.session.least_survivors == self.session.parties:
            return ()
        return ('parties may drop out only before keys are exchanged: "pairwise" cannot recover from later dropouts',)

    def openable(self, colluding: int) -> Openable:
        exposure = self._cut_off(colluding)
        return Openable(self.session.least_survivors, exposure, alone=exposure >= 1.0)

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> PairwiseParty:
        return PairwiseParty(self.session, self.roster, self.degree, index, identity, secrets)

    def coordinator(self, secret: bytes, secrets: SecretStream) -> PairwiseCoordinator:
        return PairwiseCoordinator(self.session, self.roster, self.degree, secret, secrets)

    def _later_sizes(self) -> list[int]:
        return [sizes.of_message(Masked, sizes.of_bytes(self.session.vector_bytes))]
