"""The coordinator's side of SecAgg and SecAgg+. See `secagg` for the protocol."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from unspoken.noise.stream import SecretStream
from unspoken.summation import shamir
from unspoken.summation.base import Aborted, Envelope, Rejected, Roster, Session, bitmap, check_survivors, decode
from unspoken.summation.graph import Degree
from unspoken.summation.introductions import NONCE_BYTES, MeetingState, NeighbourCoordinator, mask_seed
from unspoken.summation.keys import public_key
from unspoken.summation.masks import add_masks
from unspoken.summation.secagg_messages import (
    SHARE_BYTES,
    Deal,
    FromParty,
    Masked,
    Opened,
    Relay,
    Unmask,
    commitment,
)
from unspoken.types import Flags, Words


class CoordinatorState(MeetingState):
    deals: dict[int, dict[int, bytes]] = {}
    commitments: dict[int, list[bytes]] = {}
    total: np.ndarray = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    settled: list[int] = []
    answers: dict[int, Opened] = {}


class SecAggCoordinator(NeighbourCoordinator):
    """Collects messages until the engine closes a stage, then continues with the parties present."""

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
                raise Rejected(f"party {sender} sent {type(other).__name__} in the {stage} stage")

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
            raise Aborted("the coordinator was told to finish the sum before the stage of vectors")
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
            raise Rejected(f"party {sender} dealt shares to parties that are not its neighbours")
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
            raise Rejected(f"party {sender} opened shares that it was not asked for")
        state.answers[sender] = opened

    def _shares(self, kind: Literal["alive", "gone"]) -> dict[int, tuple[Words, Words]]:
        """The opened shares by owner: the points, and the shares (points, secrets, symbols)."""
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
        """One of a party's secrets, combined from `threshold` shares."""
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
                f"the opened shares of party {party} do not give the seed that it committed to; nothing was revealed"
            )
        return seed

    def _pair_seeds(self, party: int) -> list[tuple[bytes, bool]]:
        """The masks that survivors have in common with a party that is gone, with the sign that removes them."""
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
