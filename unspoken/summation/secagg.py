"""SecAgg and SecAgg+: secure aggregation with masks between parties and recovery from dropouts.

Bonawitz et al. 2017 (everyone masks with everyone) and Bell et al. 2020 (with a few random neighbours), with a quorum
of parties in place of trust in the coordinator. The rounds of an attempt:

    keys       each party advertises two keys for this sum, signed by its identity in the roster, and whom it chose as
               neighbours
    shares     each party deals shares of its mask key, its self-mask seed and its noise seeds to them, sealed
    checks     each party says which shares are not what their dealer marked: such dealers are left out
    vectors    each party sends its vector + its own mask ± a mask for each neighbour, and signs the list of dealers
               among whom it is masked
    agreement  each party signs the lists of dealers and of survivors, whose vectors have arrived; one statement only
    unmasking  each party that sees a quorum of equal signatures opens, for each dealer, the share of its seed if it
               survived, or else the share of its mask key: never both

Security against a coordinator that lies, together with T of the n parties. The quorum is q = ⌊(n + T)/2⌋ + 1: two
quorums would share an honest party, which signs one statement only. So honest parties open shares for one pair of lists
(dealers L, survivors V), V at least as large as agreed. They open the self-mask of a survivor only if it signed L
itself, so all honest survivors are masked among the same dealers. A vector that is sent and left out stays hidden under
its self-mask. What can open is derived in `graph.exposure`: sums that contain all honest survivors but for
`degree.unseen` of them, except with the probability that is counted in δ. Noise components are opened for the number of
survivors in V, and sized as if the `unseen` were missing. The attempt is part of every key, seal and signature, so
messages of other attempts are worth nothing. What the coordinator can always do is make an attempt end.

With `coordinator = "curious"` there is no quorum, and the graph is public: cheaper, and safe while the coordinator
follows the protocol.

Faults. A party with an unusable key, or whose shares cannot be decrypted, is left out; the others go on. Opened secrets
are checked against the dealer's commitments. If shares do not fit, the marks (hashes of each dealt share) tell who
opened a share that was not dealt, and other shares are tried. If the dealt shares themselves do not fit, the dealer's
signature on the marks is the evidence against it. So the result is the exact total or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from pydantic import Field
from scipy.stats import binom

from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import shamir, sizes
from unspoken.summation.base import Openable, Roster, Session, SignedStatement, Unsuitable, address_of
from unspoken.summation.evidence import by_party
from unspoken.summation.graph import (
    CORRECTNESS_BITS,
    ChosenGraph,
    CircleGraph,
    CompleteGraph,
    Degree,
    Graph,
    choose_degree,
    circle_degree,
    complete_degree,
    disconnected,
    exposure,
    surrounded,
)
from unspoken.summation.introductions import NeighbourProtocol
from unspoken.summation.keys import SIGNATURE_BYTES, TAG_BYTES, Identity
from unspoken.summation.remedies import has_honest, has_partner, one_of, remedies
from unspoken.summation.secagg_coordinator import SecAggCoordinator
from unspoken.summation.secagg_evidence import has_misdealt
from unspoken.summation.secagg_messages import (
    COMMITMENT_BYTES,
    MARK_BYTES,
    SHARE_BYTES,
    Agreed,
    Checked,
    Deal,
    Masked,
    Opened,
)
from unspoken.summation.secagg_party import SecAggParty


class Options(Section):
    coordinator: Literal["lying", "curious"] = Field(
        "lying",
        description='"lying" (safe even if the coordinator deviates from the protocol) or "curious" (cheaper, safe if '
        "it follows the protocol)",
    )


def quorum_of(parties: int, colluding: int) -> int:
    """The number of equal signatures of which two different sets must share an honest signer: 2q > n + T.

    >>> quorum_of(1000, 500), quorum_of(3, 0)
    (751, 2)
    """
    return (parties + colluding) // 2 + 1


def has_quorum(parties: int, colluding: int, dropouts: int) -> bool:
    """Whether a quorum stays if so many drop out."""
    return parties - dropouts >= quorum_of(parties, colluding)


def can_unmask(parties: int, colluding: int, dropouts: int) -> bool:
    """Whether colluders can unmask a party even if everyone holds its shares, and so with fewer holders, too."""
    return colluding >= complete_degree(parties, colluding, dropouts).threshold


def suits(parties: int, colluding: int, dropouts: int, lying: bool) -> bool:
    """Whether so many parties, colluders and dropouts can run the protocol, on the complete graph at least.

    >>> suits(10, 3, 3, lying=True), suits(10, 3, 4, lying=True), suits(10, 3, 4, lying=False)
    (True, False, True)
    """
    facts = parties, colluding, dropouts
    return has_partner(*facts) and not can_unmask(*facts) and (not lying or has_quorum(*facts))


class SecAgg(NeighbourProtocol):
    """Everyone masks with everyone (Bonawitz et al. 2017)."""

    options_type = Options

    def __init__(self, session: Session, options: Options, roster: Roster | None = None) -> None:
        self._lying = options.coordinator == "lying"
        self.quorum = quorum_of(session.parties, session.colluding) if self._lying else 0
        # Checked first, because the search for a degree would take minutes and find none.
        facts = session.parties, session.colluding, session.parties - session.least_survivors
        if self._lying and self.quorum <= session.parties and not has_quorum(*facts):
            raise self._beyond_quorum(*facts)
        if can_unmask(*facts):
            raise self._beyond_threshold(*facts)
        super().__init__(session, options, self._graph(session), roster)

    def warm_up(self) -> None:
        shamir.warm_up()

    def _beyond_threshold(self, parties: int, colluding: int, dropouts: int) -> Unsuitable:
        enough = complete_degree(parties, colluding, dropouts).threshold
        return Unsuitable(
            "privacy.colluding",
            f"comes to {colluding} of {parties} parties, but if {dropouts} may drop out, any {enough} can unmask "
            f"another; {self._ways_out(parties, colluding, dropouts)}",
        )

    def _beyond_quorum(self, parties: int, colluding: int, dropouts: int) -> Unsuitable:
        return Unsuitable(
            "privacy.dropouts",
            f"comes to {dropouts} of {parties} parties, but against a coordinator that may lie, {self.quorum} must "
            f"agree on the survivors if {colluding} may collude; {self._ways_out(parties, colluding, dropouts)}",
        )

    def _ways_out(self, parties: int, colluding: int, dropouts: int) -> str:
        """What would do instead."""
        facts = parties, colluding, dropouts
        ways = remedies(*facts, fits=partial(suits, lying=self._lying))
        if has_honest(*facts):
            ways.append('use "compute-nodes"')
        if self._lying and suits(*facts, lying=False):
            ways.append('set [summation] coordinator = "curious" if it follows the protocol')
        return one_of(ways)

    @property
    def _dropouts(self) -> int:
        return self.session.parties - self.session.least_survivors

    def _graph(self, session: Session) -> Graph:
        return CompleteGraph(session.parties, _complete(session))

    @property
    def opens_noise(self) -> bool:
        return True

    @property
    def withstands_lies(self) -> bool:
        return self._lying

    @property
    def parameters(self) -> dict[str, int]:
        degree = self.graph.degree
        quorum = {"quorum": self.quorum} if self._lying else {}
        return {"neighbours": degree.neighbours, "threshold": degree.threshold, **quorum}

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            () if self._lying else ("the coordinator follows the protocol, though it may look at all that it receives",)
        )

    def openable(self, colluding: int) -> Openable:
        """All survivors but those that can be left out unnoticed; single parties, if there can be two quorums or too
        many collude."""
        session, degree = self.session, self.graph.degree
        if not self._lying:
            missing = colluding + self._dropouts
            cut_off = disconnected(session.parties, missing, degree.neighbours) if self._is_sparse else 0.0
            chance = min(1.0, surrounded(session.parties, colluding, degree) + cut_off)
            return Openable(session.least_survivors, chance, alone=chance >= 1.0)
        if 2 * self.quorum <= session.parties + colluding:
            return Openable(session.least_survivors, 1.0, alone=True)
        chance = exposure(session.parties, colluding, self._dropouts, degree)
        return Openable(session.least_survivors - degree.unseen, chance, alone=chance >= 1.0)

    @property
    def _is_sparse(self) -> bool:
        return self.graph.degree.neighbours < self.session.parties - 1

    def party(self, index: int, identity: Identity, secrets: SecretStream) -> SecAggParty:
        return SecAggParty(self.session, self.roster, self.graph, self.quorum, index, identity, secrets)

    def coordinator(self, identity: Identity, secrets: SecretStream) -> SecAggCoordinator:
        return SecAggCoordinator(self.session, self.roster, self.graph, self.quorum, identity)

    def convicts(self, evidence: Sequence[SignedStatement]) -> dict[str, str]:
        label, facts = self.session.label(), (self.session.components, self.graph.degree.threshold)
        found = "it dealt shares that do not give the secret that it committed to"
        convicted = {}
        for dealer, signed in by_party(evidence, self.session.parties).items():
            if any(has_misdealt(each, signed, label, dealer, *facts) for each in signed):
                convicted[address_of(dealer)] = found
        return convicted

    def _most_dealers(self) -> int:
        """The number of parties that deal to one; where they choose, exceeded with probability 2^−30 at most."""
        others, k = self.session.parties - 1, self.graph.degree.neighbours
        if not isinstance(self.graph, ChosenGraph):
            return k
        return min(others, int(binom.isf(2.0**-CORRECTNESS_BITS / self.session.parties, others, k / others)))

    def _later_sizes(self) -> list[int]:
        session, degree = self.session, self.graph.degree.neighbours
        secrets, dealers = 2 + session.components, self._most_dealers()
        others = sizes.of_range(session.parties - dealers, session.parties)
        sealed = sizes.of_header(degree) + degree * sizes.of_bytes(secrets * SHARE_BYTES + TAG_BYTES)
        hashes = 1 + session.components
        commitments = sizes.of_header(hashes) + hashes * sizes.of_bytes(COMMITMENT_BYTES)
        marks, signature = sizes.of_bytes(degree * secrets * MARK_BYTES), sizes.of_bytes(SIGNATURE_BYTES)
        opened = sizes.of_bytes(dealers * SHARE_BYTES * (1 + len(session.opened(session.parties))))
        return [
            sizes.of_message(Deal, sealed, marks, commitments, signature),
            sizes.of_message(Checked, sizes.of_header(0)),
            sizes.of_message(Masked, sizes.of_bytes(session.vector_bytes), signature),
            *([sizes.of_message(Agreed, signature)] if self.quorum else []),
            sizes.of_message(Opened, others, opened, sizes.of_header(0), sizes.of_bytes(0)),
        ]


def _complete(session: Session) -> Degree:
    return complete_degree(session.parties, session.colluding, session.parties - session.least_survivors)


class SecAggPlus(SecAgg):
    """Everyone masks with a few random neighbours (Bell et al. 2020)."""

    def _graph(self, session: Session) -> Graph:
        facts = session.parties, session.colluding, session.parties - session.least_survivors
        if self._lying:
            chosen = choose_degree(*facts)
            return super()._graph(session) if chosen is None else ChosenGraph(session.parties, chosen)
        circle = circle_degree(*facts)
        return super()._graph(session) if circle is None else CircleGraph(session.parties, circle)
