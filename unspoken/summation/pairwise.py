"""Secure sum by pairwise keys: one round of keys, one masked vector, no recovery from dropouts.

Cross-silo, Algorithm 4 (fat clients). Each pair of parties agrees on a mask that one adds and the other subtracts, so
the masks cancel in the sum. A party that vanishes before the keys are exchanged is left out; if one vanishes later, its
masks remain and the sum is aborted.

Security, also against a coordinator that lies. No mask is ever opened. A party masks with everyone in the list that it
is given, whose keys are signed, and accepts no list below n − D parties. A combination of vectors that is more than
random words contains, with each honest party, all honest parties in its list; so it contains n − D − T at least.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import sizes
from unspoken.summation.base import Aborted, Envelope, Message, Openable, Rejected, Roster, Session
from unspoken.summation.graph import CompleteGraph, Degree, Graph
from unspoken.summation.incoming import decode
from unspoken.summation.introductions import (
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
    """Pairwise masks have no options: everyone masks with everyone."""


class Masked(Message, frozen=True, tag="pairwise/masked"):
    """Party to coordinator: its vector under its masks."""

    vector: memoryview


class PartyState(NeighbourState):
    masks: list[tuple[bytes, bool]] = []
    """The seeds of the masks with all others, until the vector is masked"""


class PairwiseParty(NeighbourParty):
    def __init__(
        self, session: Session, roster: Roster, graph: Graph, index: int, identity: Identity, secrets: SecretStream
    ) -> None:
        super().__init__(session, roster, graph, index, identity)
        self.state: PartyState = PartyState(secrets.key(), secrets.key(), self._draw(secrets))

    @property
    def ready(self) -> bool:
        return bool(self.state.introduced)

    def step(self, incoming: bytes) -> list[Envelope]:
        if not incoming:
            if self.ready:
                raise Rejected("a party was told to begin after its masks were agreed on")
            return self._advertise()
        self._meet(self._unwrapped(incoming, Introduce), self._agree_on_masks)
        return []

    def _agree_on_masks(self) -> None:
        state = self.state
        state.masks = self._masks_with(list(state.keys))
        state.mask_secret = b""

    def submit(self, vector: Words) -> list[Envelope]:
        if not self.ready:
            raise Aborted("a party was asked for its vector before it knew its neighbours' keys")
        if not self.state.submitted:
            masked = add_masks(vector, self.state.masks, self._session)
            # Kept as sent: two vectors under the same masks would reveal their difference.
            self.state.submitted = self._wrapped(Masked(memoryview(self._session.pack(masked)))).body
            self.state.masks = []
        return self._sent()


class CoordinatorState(MeetingState):
    total: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    arrived: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


class PairwiseCoordinator(NeighbourCoordinator):
    setup_stages = 1

    def __init__(self, session: Session, roster: Roster, graph: Graph, identity: Identity) -> None:
        super().__init__(session, roster, graph, identity)
        self.state: CoordinatorState = CoordinatorState(
            total=session.zeros(), arrived=np.zeros(session.parties, dtype=np.bool_)
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
            who = f"party {shown}" if len(missing) == 1 else f"parties {shown}"
            raise Aborted(
                f"{who} exchanged keys but sent no vector, and those masks cannot be removed; nothing was revealed. "
                'Use "secagg+" where parties may vanish'
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
    """Masks between all parties."""

    options_type = Options

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        graph = CompleteGraph(session.parties, Degree(session.parties - 1, max(1, session.least_survivors - 1)))
        super().__init__(session, options, graph, roster)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ()

    @property
    def withstands_lies(self) -> bool:
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        if self.session.least_survivors == self.session.parties:
            return ()
        return ('parties may drop out only before keys are exchanged: "pairwise" cannot recover from later dropouts',)

    def openable(self, colluding: int) -> Openable:
        return Openable(self.session.least_survivors)

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> PairwiseParty:
        return PairwiseParty(self.session, self.roster, self.graph, index, identity, secrets)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> PairwiseCoordinator:
        return PairwiseCoordinator(self.session, self.roster, self.graph, identity)

    def _later_sizes(self) -> list[int]:
        return [sizes.of_message(Masked, sizes.of_bytes(self.session.vector_bytes))]
