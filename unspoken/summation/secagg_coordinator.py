"""The coordinator's side of SecAgg and SecAgg+. See `secagg` for the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
import numpy as np

from unspoken.summation import shamir
from unspoken.summation.base import Aborted, Envelope, Rejected, Roster, Session, SignedStatement, address_of
from unspoken.summation.graph import Graph
from unspoken.summation.incoming import bitmap, check_survivors, decode
from unspoken.summation.introductions import MeetingState, NeighbourCoordinator, keys_evidence, mask_seed
from unspoken.summation.keys import Identity, public_key, verify
from unspoken.summation.masks import add_masks
from unspoken.summation.secagg_evidence import exhibit_of
from unspoken.summation.secagg_messages import (
    COMMITMENT_BYTES,
    MARK_BYTES,
    SHARE_BYTES,
    Agreed,
    Begin,
    Checked,
    Deal,
    DealtShares,
    FromParty,
    Masked,
    Opened,
    Survivors,
    Unmask,
    agreed_statement,
    commitment,
    dealt_statement,
    mark_of,
    masked_statement,
)
from unspoken.types import Flags, Words

_MOST_NAMED = 12


class CoordinatorState(MeetingState):
    deals: dict[int, Deal] = {}
    complaints: dict[int, list[int]] = {}
    """The dealers whose shares are not what was marked, by the party that says so"""
    dealers: dict[int, None] = {}
    """The parties among whom vectors are masked, in order"""
    total: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    arrived: dict[int, bytes] = {}
    """The parties in the total, with their signatures on the dealers"""
    signed: dict[int, bytes] = {}
    answers: dict[int, Opened] = {}
    blamed: dict[str, str] = {}


class SecAggCoordinator(NeighbourCoordinator):
    """Collects messages until the engine closes a stage, then continues with the parties present."""

    setup_stages = 3

    def __init__(self, session: Session, roster: Roster, graph: Graph, quorum: int, identity: Identity) -> None:
        super().__init__(session, roster, graph, identity)
        self._quorum, self._secrets = quorum, 2 + session.components
        self.state: CoordinatorState = CoordinatorState(total=session.zeros())
        self._opened_shares: dict[str, dict[int, tuple[Words, Words]]] = {}
        self._places: dict[int, dict[int, int]] = {}
        self._lists: dict[str, bytes] = {}

    def load(self, dumped: bytes) -> None:
        super().load(dumped)
        self._opened_shares, self._places, self._lists = {}, {}, {}

    @property
    def blamed(self) -> dict[str, str]:
        return self.state.blamed

    def _take(self, sender: int, body: memoryview) -> None:
        message: FromParty = decode(body, FromParty)
        match self.state.stage, message:
            case "shares", Deal():
                self._take_deal(sender, message)
            case "checks", Checked():
                self._take_checked(sender, message)
            case "vectors", Masked():
                self._take_vector(sender, message)
            case "agreement", Agreed():
                self._take_signature(sender, message)
            case "unmasking", Opened():
                self._take_opened(sender, message)
            case stage, other:
                raise Rejected(f"party {sender} sent {type(other).__name__} in the {stage} stage")

    def advance(self) -> list[Envelope]:
        """Close a stage of the setup: introduce neighbours, relay their shares, or name the dealers."""
        state = self.state
        match state.stage:
            case "keys":
                envelopes, state.stage = self._introduce(), "shares"
                return envelopes
            case "shares":
                check_survivors(len(state.deals), self._session)
                state.stage = "checks"
                envelopes = [self._to(party, self._dealt_to(party)) for party in sorted(state.deals)]
                # The sealed shares are where they belong; the marks stay, to tell who is at fault if some do not fit.
                state.deals = {party: msgspec.structs.replace(deal, sealed=[]) for party, deal in state.deals.items()}
                return envelopes
            case "checks":
                self._settle_disputes()
                self._check_dealers()
                state.stage = "vectors"
                begin = Begin(self._listed("dealers"))
                return [self._to(party, begin) for party in state.dealers]
            case stage:
                raise Aborted(f"there is no stage to close after {stage}")

    def agree(self) -> list[Envelope]:
        state = self.state
        if state.stage not in ("vectors", "agreement"):
            raise Aborted("the coordinator was told to agree on survivors before the stage of vectors")
        check_survivors(len(state.arrived), self._session)
        state.stage = "agreement"
        if not self._quorum:
            return []
        request = Survivors(self._listed("survivors"))
        return [self._to(party, request) for party in sorted(state.arrived)]

    def finish(self) -> list[Envelope]:
        state = self.state
        if state.stage not in ("agreement", "unmasking"):
            raise Aborted("the coordinator was told to finish the sum before the survivors were agreed on")
        if len(state.signed) < self._quorum:
            raise Aborted(
                f"only {len(state.signed)} parties agreed on the survivors and {self._quorum} are needed; nothing was "
                "revealed"
            )
        state.stage = "unmasking"
        survivors, signers = self._listed("survivors"), bitmap(self._flags(state.signed))
        signatures = b"".join(state.signed[party] for party in sorted(state.signed))
        envelopes = []
        for party in sorted(state.arrived):
            silent = [
                dealer for dealer in self._choosers_of(party) if dealer in state.arrived and dealer not in state.signed
            ]
            declared = b"".join(state.arrived[dealer] for dealer in silent)
            envelopes.append(self._to(party, Unmask(survivors, signers, signatures, silent, declared)))
        return envelopes

    def survivors(self) -> Flags:
        return self._flags(self.state.arrived)

    def total(self) -> Words:
        state, session = self.state, self._session
        if state.stage != "unmasking":
            raise Aborted("the total was asked for before it was complete")
        self._opened_shares = {}
        seeds: list[tuple[bytes, bool]] = [(self._seed(party, 0), False) for party in sorted(state.arrived)]
        for party in state.dealers:
            if party not in state.arrived:
                seeds += self._pair_seeds(party)
        return session.reduce(add_masks(state.total, seeds, session))

    def opened(self) -> dict[int, list[bytes]]:
        numbers = self._session.opened(len(self.state.arrived))
        return {
            party: [self._seed(party, 1 + position, 1 + number) for position, number in enumerate(numbers)]
            for party in sorted(self.state.arrived)
        }

    def _flags(self, parties: Iterable[int]) -> Flags:
        present = np.zeros(self._session.parties, dtype=np.bool_)
        present[list(parties)] = True
        return present

    def _listed(self, which: Literal["dealers", "survivors"]) -> bytes:
        """The dealers or the survivors as they were told to parties: neither list changes any more."""
        if which not in self._lists:
            parties: Iterable[int] = self.state.dealers if which == "dealers" else self.state.arrived
            self._lists[which] = bitmap(self._flags(parties))
        return self._lists[which]

    def _take_deal(self, sender: int, deal: Deal) -> None:
        if sender in self.state.deals:
            raise Rejected(f"a second message came from party {sender}")
        receivers, hashes = len(self._chosen_by(sender)), 1 + self._session.components
        sizes = len(deal.sealed), len(deal.marks), [len(digest) for digest in deal.commitments]
        if sizes != (receivers, receivers * self._secrets * MARK_BYTES, [COMMITMENT_BYTES] * hashes):
            raise Rejected(f"party {sender} did not deal one share to each of its neighbours")
        statement = dealt_statement(self._label, sender, deal.marks, deal.commitments)
        verify(self._roster.parties[sender], statement, deal.signature, f"party {sender}")
        self.state.deals[sender] = deal

    def _take_checked(self, sender: int, checked: Checked) -> None:
        if sender not in self.state.deals or sender in self.state.complaints:
            raise Rejected(f"party {sender} checked shares twice, or dealt none")
        given = {dealer for dealer in self._choosers_of(sender) if dealer in self.state.deals}
        if len(set(checked.complaints)) != len(checked.complaints) or not given >= set(checked.complaints):
            raise Rejected(f"party {sender} complains about shares that it was not given")
        self.state.complaints[sender] = checked.complaints

    def _take_vector(self, sender: int, masked: Masked) -> None:
        state = self.state
        if sender not in state.dealers:
            raise Rejected(f"party {sender} sent a vector but is not among the dealers")
        if sender in state.arrived:
            raise Rejected(f"a second message came from party {sender}")
        statement = masked_statement(self._label, sender, self._listed("dealers"))
        verify(self._roster.parties[sender], statement, masked.signature, f"party {sender}")
        state.total += self._session.unpack(masked.vector)
        state.arrived[sender] = masked.signature

    def _take_signature(self, sender: int, agreed: Agreed) -> None:
        state = self.state
        if sender not in state.arrived or sender in state.signed:
            raise Rejected(f"party {sender} signed the survivors twice, or is not one of them")
        statement = agreed_statement(self._label, self._listed("dealers"), self._listed("survivors"))
        verify(self._roster.parties[sender], statement, agreed.signature, f"party {sender}")
        state.signed[sender] = agreed.signature

    def _take_opened(self, sender: int, opened: Opened) -> None:
        state = self.state
        if sender not in state.arrived or sender in state.answers:
            raise Rejected(f"party {sender} opened shares twice, or is not in the total")
        dealt = [party for party in self._choosers_of(sender) if party in state.dealers]
        alive = {party for party in dealt if party in state.arrived}
        gone = set(dealt) - alive
        size = SHARE_BYTES * (1 + len(self._session.opened(len(state.arrived))))
        lengths = (len(opened.alive_shares), len(opened.gone_shares))
        asked_for = alive >= set(opened.alive) and gone >= set(opened.gone)
        once = len(set(opened.alive)) + len(set(opened.gone)) == len(opened.alive) + len(opened.gone)
        if not (asked_for and once) or lengths != (size * len(opened.alive), SHARE_BYTES * len(opened.gone)):
            raise Rejected(f"party {sender} opened shares that it was not asked for")
        state.answers[sender] = opened

    def _check_dealers(self) -> None:
        """`Aborted` if too few dealers are left; it names those who were left out."""
        try:
            check_survivors(len(self.state.dealers), self._session)
        except Aborted as error:
            raise Aborted(str(error), self.state.blamed) from None

    def _settle_disputes(self) -> None:
        """Choose the dealers: everyone who dealt and checked, without the fewest parties whose removal settles the
        complaints.

        A complaint is between two parties, and either may be wrong. The party with the most complaints by or against it
        is left out, until every dealer has enough holders of good shares. So a single bad party is the only one left
        out.
        """
        state, degree = self.state, self._graph.degree
        left, spare = set(state.complaints), (degree.neighbours - degree.threshold) // 2
        while left:
            disputes = [(dealer, party) for party in left for dealer in state.complaints[party] if dealer in left]
            holders = {dealer: sum(other in left for other in self._chosen_by(dealer)) for dealer, _ in disputes}
            against = Counter(dealer for dealer, _ in disputes)
            if all(count <= min(spare, holders[dealer] - degree.threshold) for dealer, count in against.items()):
                break
            sides = against + Counter(party for _, party in disputes)
            worst = max(sorted(sides), key=lambda party: (sides[party], against[party]))
            left.discard(worst)
            reason = _said_by(party for dealer, party in disputes if dealer == worst)
            state.blamed[address_of(worst)] = reason if against[worst] else "it complains about the shares of others"
        state.dealers = dict.fromkeys(sorted(left))

    def _shares(self, kind: Literal["alive", "gone"]) -> dict[int, tuple[Words, Words]]:
        """The opened shares by owner: the points, and the shares (points, secrets, symbols)."""
        answers = self.state.answers
        owners = np.concatenate([np.array(getattr(a, kind), dtype=np.int64) for a in answers.values()])
        senders = np.repeat(np.array(list(answers), dtype=np.uint64), [len(getattr(a, kind)) for a in answers.values()])
        if not len(owners):
            return {}
        joined = b"".join(getattr(answer, f"{kind}_shares") for answer in answers.values())
        shares = np.frombuffer(joined, dtype="<u4").reshape(len(owners), -1, shamir.SYMBOLS)
        order = np.argsort(owners, kind="stable")
        parties, starts = np.unique(owners[order], return_index=True)
        return {
            int(party): (senders[rows] + np.uint64(1), shares[rows].astype(np.uint64))
            for party, rows in zip(parties, np.split(order, starts[1:]), strict=True)
        }

    def _combined(
        self, kind: Literal["alive", "gone"], party: int, position: int, number: int, fits: Callable[[bytes], bool]
    ) -> bytes:
        """One of a party's secrets: number `number` of those that it dealt, at `position` of those that were opened."""
        if kind not in self._opened_shares:
            self._opened_shares[kind] = self._shares(kind) if self.state.answers else {}
        none = np.empty(0, dtype=np.uint64)
        points, shares = self._opened_shares[kind].get(party, (none, none))
        needed = self._graph.degree.threshold
        if len(points) < needed:
            raise self._too_few(kind, party, len(points))
        secret = shamir.combine(shares[:needed, position], points[:needed])
        return secret if fits(secret) else self._robust(party, number, points, shares[:, position], fits)

    def _too_few(self, kind: Literal["alive", "gone"], party: int, found: int) -> Aborted:
        """The abort of a sum that lacks shares: names who kept some back, and both sides of a dispute about them."""
        state = self.state
        holders = [holder for holder in self._chosen_by(party) if holder in state.arrived]
        disputing = [holder for holder in holders if party in state.complaints[holder]]
        for holder in disputing:
            state.blamed[address_of(holder)] = f"it says that the share of party {party} is not what was marked"
            state.blamed[address_of(party)] = _said_by(disputing)
        for holder in holders:
            answer = state.answers.get(holder)
            if answer is not None and holder not in disputing and party not in getattr(answer, kind):
                state.blamed[address_of(holder)] = f"it kept back its share of party {party}"
        return Aborted(
            f"only {found} shares of party {party} were opened and {self._graph.degree.threshold} are needed; nothing "
            "was revealed",
            state.blamed,
        )

    def _robust(self, party: int, number: int, points: Words, shares: Words, fits: Callable[[bytes], bool]) -> bytes:
        """A secret from the shares that were really dealt; `Aborted` with whom to blame if there is none."""
        deal, needed = self.state.deals[party], self._graph.degree.threshold
        good: list[int] = []
        liars: list[int] = []
        for row, point in enumerate(points.tolist()):
            holder = int(point) - 1
            start = (self._place(party, holder) * self._secrets + number) * MARK_BYTES
            mark = mark_of(self._label, party, holder, number, shares[row].astype("<u4").tobytes())
            (good if mark == deal.marks[start : start + MARK_BYTES] else liars).append(row)
        wrong = f"it opened a share of party {party} that was not dealt to it"
        faults = {address_of(int(points[row]) - 1): wrong for row in liars}
        self.state.blamed |= faults
        if len(good) < needed:
            raise Aborted(
                f"only {len(good)} of the opened shares of party {party} were dealt and {needed} are needed; nothing "
                "was revealed",
                faults,
            )
        chosen = good[:needed]
        secret = shamir.combine(shares[chosen], points[chosen])
        if not fits(secret):
            raise self._misdealt(party, exhibit_of(points[good], shares[good]))
        return secret

    def _misdealt(self, party: int, exhibit: bytes) -> Aborted:
        """The end of a sum by a dealer whose shares do not give what it committed to."""
        deal = self.state.deals[party]
        statement = dealt_statement(self._label, party, deal.marks, deal.commitments)
        dealt = SignedStatement(address_of(party), statement, deal.signature, exhibit)
        return Aborted(
            f"the shares that party {party} dealt do not give the secret that it committed to; nothing was revealed. "
            "Leave this party out of another attempt",
            (address_of(party),),
            (dealt, keys_evidence(self.state.keys[party], self._label)),
        )

    def _seed(self, party: int, position: int, number: int = 0) -> bytes:
        """A party's self-mask seed (or one of its noise seeds), checked against its commitment."""
        committed = self.state.deals[party].commitments[number]
        return self._combined(
            "alive", party, position, 1 + number, lambda seed: commitment(self._label, party, seed) == committed
        )

    def _pair_seeds(self, party: int) -> list[tuple[bytes, bool]]:
        """The masks that survivors have in common with a party that is gone, with the sign that removes them."""
        survivors = [other for other in sorted(self._neighbours(party)) if other in self.state.arrived]
        if not survivors:
            return []
        mask_key = self.state.keys[party].mask_key
        secret = self._combined("gone", party, 0, 0, lambda secret: public_key(secret) == mask_key)
        return [
            (mask_seed(secret, self.state.keys[other].mask_key, self._label, party, other), other > party)
            for other in survivors
        ]

    def _dealt_to(self, party: int) -> DealtShares:
        dealers = [dealer for dealer in self._choosers_of(party) if dealer in self.state.deals]
        size, sealed, marks = self._secrets * MARK_BYTES, [], []
        for dealer in dealers:
            deal, place = self.state.deals[dealer], self._place(dealer, party)
            sealed.append(deal.sealed[place])
            marks.append(deal.marks[place * size : (place + 1) * size])
        return DealtShares(dealers, sealed, b"".join(marks))

    def _place(self, dealer: int, receiver: int) -> int:
        """The receiver's place among those to whom a party dealt."""
        if not self._places:
            self._places = {
                dealer: {other: place for place, other in enumerate(self._chosen_by(dealer))}
                for dealer in self.state.keys
            }
        return self._places[dealer][receiver]


def _said_by(parties: Iterable[int]) -> str:
    """The fault of a dealer, with the names of those who say so, since either side may be wrong.

    >>> _said_by([9, 2])
    'parties 2, 9 say that its shares are not what it marked'
    """
    named = sorted(parties)
    shown, more = ", ".join(map(str, named[:_MOST_NAMED])), len(named) - _MOST_NAMED
    if len(named) == 1:
        return f"party {shown} says that its shares are not what it marked"
    return f"parties {shown}{f' and {more} more' if more > 0 else ''} say that its shares are not what it marked"
