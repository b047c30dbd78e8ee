"""SecAgg and SecAgg+ with an honest coordinator: what colluders can and cannot read, and what a bad party costs.

(A coordinator that lies: `tests/adversaries`.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats

from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream
from unspoken.summation import shamir
from unspoken.summation.base import COORDINATOR, Aborted, Envelope, Rejected, Session, Unsuitable, address_of
from unspoken.summation.evidence import convicted
from unspoken.summation.graph import ChosenGraph
from unspoken.summation.incoming import bitmap
from unspoken.summation.introductions import Advertise, Framed, mask_seed
from unspoken.summation.keys import WRAPPING_BYTES, Channel, agreement_key, is_signed, public_key
from unspoken.summation.masks import add_masks
from unspoken.summation.pairwise import Options as PairwiseOptions
from unspoken.summation.pairwise import Pairwise
from unspoken.summation.secagg import Options, SecAgg, SecAggPlus
from unspoken.summation.secagg_coordinator import SecAggCoordinator
from unspoken.summation.secagg_messages import (
    SHARE_BYTES,
    Agreed,
    Checked,
    Deal,
    FromParty,
    Masked,
    Opened,
    agreed_statement,
    dealt_statement,
    masked_statement,
)
from unspoken.summation.secagg_party import SecAggParty
from unspoken.summation.simulated_keys import SimulatedEndpoints
from unspoken.types import Words


def session(parties: int = 7, dropouts: int = 2, length: int = 6, colluding: int = 2, **more: Any) -> Session:
    return Session("digest", "model", parties, colluding, parties - dropouts, length, 64, **more)


def simulated(kind: type[SecAgg], agreed: Session, secrets: SecretStream | None = None) -> SimulatedEndpoints[SecAgg]:
    return SimulatedEndpoints(kind(agreed, Options()), secrets or SecretStream())


def fixed(name: str) -> SecretStream:
    """Secret randomness that is the same in every run of the tests."""
    return SecretStream(hashlib.sha256(name.encode()).digest())


Change = Callable[[int, Any], Any]
"""What a bad party does to one of its own messages: (its index, the message) to what it sends instead"""


class Run:
    """A run with an honest coordinator, and everything that it saw. `change` alters what parties send."""

    def __init__(
        self,
        protocol: SimulatedEndpoints[SecAgg],
        rows: Words,
        absent: set[int] | None = None,
        seed: str = "",
        change: Change | None = None,
    ) -> None:
        self.protocol, self.rows, self.absent, self.change = protocol, rows, absent or set(), change
        self.coordinator: SecAggCoordinator = protocol.coordinator()  # type: ignore[assignment]
        self.parties: list[SecAggParty] = [
            protocol.party(i, fixed(f"{seed}/{i}"))
            for i in range(protocol.session.parties)  # type: ignore[misc]
        ]
        self.secrets = [(party.state.cipher_secret, party.state.mask_secret) for party in self.parties]
        self.masked: dict[int, Words] = {}
        for index, party in enumerate(self.parties):
            self.send(index, party.step(b""))
        for _ in range(3):
            self.deliver(self.coordinator.advance())
        self.inboxes = [dict(party.state.inbox) for party in self.parties]
        for index, row in enumerate(rows):
            if index not in self.absent and self.parties[index].ready:
                envelopes = self.parties[index].submit(row)
                self.masked[index] = protocol.session.unpack(self.body(envelopes[0], Masked).vector)
                self.send(index, envelopes)

    def body(self, envelope: Envelope, kind: Any) -> Any:
        framed = msgspec.msgpack.decode(envelope.body, type=Framed)
        return msgspec.msgpack.decode(framed.body[WRAPPING_BYTES:], type=kind)

    def send(self, index: int, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            self.coordinator.step(self.changed(index, envelope).body)

    def changed(self, index: int, envelope: Envelope) -> Envelope:
        """The party's own message, altered by itself: rightly wrapped."""
        if self.change is None or self.coordinator.state.stage == "keys":
            return envelope
        return self.wrapped(index, self.change(index, self.body(envelope, FromParty)))

    def wrapped(self, index: int, message: Any) -> Envelope:
        label, coordinator = self.protocol.session.label(), agreement_key(self.protocol.keys.roster.coordinator)
        channel = Channel(self.secrets[index][0], coordinator, label, address_of(index), COORDINATOR)
        wrapped = channel.wrap(msgspec.msgpack.encode(message))
        return Envelope(COORDINATOR, msgspec.msgpack.encode(Framed(label, index, memoryview(wrapped))))

    def deliver(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            index = int(envelope.to.split(":")[1])
            self.send(index, self.parties[index].step(envelope.body))

    def total(self) -> Words:
        self.deliver(self.coordinator.agree())
        self.deliver(self.coordinator.finish())
        return self.coordinator.total()


def ones(parties: int = 7) -> Words:
    return np.ones((parties, 6), dtype=np.uint64)


def attack(run: Run, victim: int, accomplices: list[int]) -> Words | None:
    """Unmask one party's vector from what its accomplices hold: both its seeds and its mask key."""
    protocol, agreed = run.protocol, run.protocol.session
    points = np.array(accomplices, dtype=np.uint64) + np.uint64(1)
    threshold = protocol.protocol.graph.degree.threshold
    if len(points) < threshold:
        return None
    shares = held(run, victim, accomplices)
    mask_secret = shamir.combine(shares[:threshold, 0], points[:threshold])
    self_seed = shamir.combine(shares[:threshold, 1], points[:threshold])
    label = agreed.label()
    seeds = [(self_seed, False)]
    for other in run.parties[victim].state.keys:
        key = run.coordinator.state.keys[other].mask_key
        seeds.append((mask_seed(mask_secret, key, label, victim, other), not victim < other))
    return agreed.reduce(add_masks(run.masked[victim], seeds, agreed))


def held(run: Run, victim: int, accomplices: list[int]) -> Words:
    shares = [np.frombuffer(run.inboxes[accomplice][victim], dtype="<u4") for accomplice in accomplices]
    return np.stack([share.reshape(-1, shamir.SYMBOLS) for share in shares]).astype(np.uint64)


def test_the_coordinator_with_a_threshold_of_accomplices_unmasks_a_party_and_with_one_less_it_cannot() -> None:
    rows = np.arange(42, dtype=np.uint64).reshape(7, 6)
    run = Run(simulated(SecAgg, session()), rows)
    threshold = run.protocol.protocol.graph.degree.threshold
    enough = list(range(1, 1 + threshold))
    assert (attack(run, 0, enough) == rows[0]).all()
    # One accomplice less: every value of the missing share is possible, so every secret is (checked on one symbol).
    shares, points = held(run, 0, enough[:-1])[:, 0], np.array(enough, dtype=np.uint64) + np.uint64(1)
    guesses = [np.concatenate([shares, np.full((1, 9), guess, dtype=np.uint64)]) for guess in range(50)]
    found = {shamir.combine(guess, points) for guess in guesses}
    assert len(found) == 50
    assert run.secrets[0][1] not in found


@pytest.mark.parametrize("kind", [SecAgg, SecAggPlus])
def test_masked_vectors_of_inputs_with_equal_sums_are_uniform_and_alike(kind: type[SecAgg]) -> None:
    """Two inputs with the same total: each masked vector's bytes are uniform (χ²), and the two transcripts' vectors
    do not differ in distribution (Kolmogorov–Smirnov). False alarms: 1 in 1,000 altogether.
    """
    agreed = session(parties=4, dropouts=0, length=20_000, colluding=1)
    first = np.zeros((4, 20_000), dtype=np.uint64)
    second = first.copy()
    second[0] += np.uint64(2**40)
    second[1] -= np.uint64(2**40)
    runs = [
        Run(simulated(kind, agreed, fixed(name)), rows, seed=name) for name, rows in (("one", first), ("two", second))
    ]
    for run in runs:
        for vector in run.masked.values():
            assert stats.chisquare(np.bincount(vector.view(np.uint8), minlength=256)).pvalue > 1e-4
    for index in range(4):
        pair = [run.masked[index].astype(np.float64) for run in runs]
        assert stats.ks_2samp(*pair).pvalue > 5e-5


def test_a_party_never_opens_both_kinds_of_shares_of_a_dealer() -> None:
    run = Run(simulated(SecAgg, session()), ones(), absent={6})
    run.total()
    for opened in run.coordinator.state.answers.values():
        assert not set(opened.alive) & set(opened.gone)
        assert set(opened.gone) == {6}


@pytest.mark.parametrize(
    "absent", [pytest.param(set(), marks=pytest.mark.long), pytest.param({3}, marks=pytest.mark.long), {3, 17}]
)
def test_a_chosen_graph_sums_whoever_is_there(absent: set[int]) -> None:
    agreed = session(parties=120, dropouts=2, colluding=10)
    protocol = simulated(SecAggPlus, agreed)
    assert isinstance(protocol.protocol.graph, ChosenGraph)
    rows = np.random.default_rng(0).integers(0, 2**63, (120, 6), dtype=np.uint64)
    run = Run(protocol, rows, absent)
    there = [index for index in range(120) if index not in absent]
    assert (run.total() == rows[there].sum(axis=0, dtype=np.uint64)).all()


@pytest.mark.parametrize("kind", [SecAgg, SecAggPlus])
def test_a_curious_coordinator_needs_no_quorum(kind: type[SecAgg]) -> None:
    protocol = SimulatedEndpoints(kind(session(parties=60), Options(coordinator="curious")), SecretStream())
    run = Run(protocol, ones(60), absent={5})
    assert (run.total() == 59).all()
    assert not run.coordinator.state.signed
    assert "curious" in protocol.protocol.assumptions[0]
    assert not protocol.protocol.withstands_lies
    assert SecAgg(session(), Options()).withstands_lies


def test_parties_that_vanish_after_they_sent_are_in_the_total_as_long_as_a_quorum_stays() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    for envelope in run.coordinator.agree():
        if envelope.to != address_of(3):
            run.deliver([envelope])
    for envelope in run.coordinator.finish():
        if envelope.to not in (address_of(3), address_of(4)):
            run.deliver([envelope])
    assert (run.coordinator.total() == 7).all()


def test_without_a_quorum_there_is_no_total() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    for envelope in run.coordinator.agree()[:4]:
        run.deliver([envelope])
    with pytest.raises(Aborted, match="only 4 parties agreed on the survivors and 5 are needed; nothing was revealed"):
        run.coordinator.finish()


# What a bad party costs.


def advertisement(run: SimulatedEndpoints[SecAgg], index: int, **changed: Any) -> bytes:
    framed = msgspec.msgpack.decode(run.party(index, SecretStream()).step(b"")[0].body, type=Framed)
    advertised = msgspec.structs.replace(msgspec.msgpack.decode(framed.body, type=Advertise), **changed)
    label = run.session.label()
    digest = hashlib.sha256(advertised.chosen).digest()
    statement = f"advertise/{label}/{index}/".encode() + advertised.cipher_key + advertised.mask_key + digest
    signed = msgspec.structs.replace(advertised, signature=run.keys.identity(index).sign(statement))
    return msgspec.msgpack.encode(Framed(label, index, memoryview(msgspec.msgpack.encode(signed))))


@pytest.mark.parametrize("key", [bytes(32), bytes([1]) + bytes(31), b"short"], ids=["zero", "low order", "short"])
@pytest.mark.parametrize("which", ["cipher_key", "mask_key"])
def test_a_key_that_nobody_can_agree_on_costs_its_owner_only(key: bytes, which: str) -> None:
    protocol = simulated(SecAgg, session())
    coordinator = protocol.coordinator()
    with pytest.raises(Rejected, match=r"not a valid point|wrong length"):
        coordinator.step(advertisement(protocol, 2, **{which: key}))
    for index in (0, 1, 3, 4, 5, 6):
        coordinator.step(protocol.party(index, SecretStream()).step(b"")[0].body)
    assert len(coordinator.advance()) == 6


def test_a_choice_that_is_not_allowed_costs_its_owner_only() -> None:
    protocol = simulated(SecAggPlus, session(parties=120, colluding=10))
    degree = protocol.protocol.graph.degree.neighbours
    itself = np.arange(degree, dtype="<u4").tobytes()
    with pytest.raises(Rejected, match="party 0 chose neighbours that it may not have"):
        protocol.coordinator().step(advertisement(protocol, 0, chosen=itself))


def test_a_coordinator_takes_no_keys_that_another_roster_signed() -> None:
    protocol, other = (simulated(SecAgg, session()) for _ in range(2))
    envelope = other.party(1, SecretStream()).step(b"")[0]
    with pytest.raises(Rejected, match="signature of party 1"):
        protocol.coordinator().step(envelope.body)


class Forging(Run):
    """Before party 2 sends a message of this kind, it sends it with signatures that are not its own on this one."""

    def __init__(self, protocol: SimulatedEndpoints[SecAgg], kind: type[Deal | Masked | Agreed]) -> None:
        self.kind, self.tried = kind, 0
        super().__init__(protocol, ones())

    def send(self, index: int, envelopes: list[Envelope]) -> None:
        if index == 2 and self.coordinator.state.stage != "keys":
            for envelope in envelopes:
                message = self.body(envelope, FromParty)
                if isinstance(message, self.kind):
                    self.forge(message)
        super().send(index, envelopes)

    def forge(self, message: Any) -> None:
        before, keys = self.coordinator.dump(), self.protocol.keys
        statement = self.statement(message)
        assert is_signed(keys.identity(2).public, statement, message.signature)
        for signature in (keys.identity(3).sign(statement), keys.identity(2).sign(statement + b"/"), bytes(64)):
            false = msgspec.structs.replace(message, signature=signature)
            with pytest.raises(Rejected, match="signature of party 2"):
                self.coordinator.step(self.wrapped(2, false).body)
            assert self.coordinator.dump() == before
            self.tried += 1

    def statement(self, message: Any) -> bytes:
        label, everyone = self.protocol.session.label(), bitmap(np.ones(7, dtype=np.bool_))
        match message:
            case Deal():
                return dealt_statement(label, 2, message.marks, message.commitments)
            case Masked():
                return masked_statement(label, 2, everyone)
            case _:
                return agreed_statement(label, everyone, everyone)


@pytest.mark.parametrize("kind", [Deal, Masked, Agreed])
def test_what_a_party_has_not_signed_itself_is_rejected_and_changes_nothing(
    kind: type[Deal | Masked | Agreed],
) -> None:
    """Shares, a vector and an agreement: the same message with its own signature is taken afterwards."""
    run = Forging(simulated(SecAgg, session()), kind)
    assert (run.total() == 7).all()
    assert run.tried == 3


def test_a_dealer_of_garbage_is_left_out_by_name_and_the_others_sum() -> None:
    def garbage(index: int, message: Any) -> Any:
        if index == 2 and isinstance(message, Deal):
            return msgspec.structs.replace(message, sealed=[bytes(len(part)) for part in message.sealed])
        return message

    run = Run(simulated(SecAgg, session()), ones(), change=garbage)
    assert (run.total() == 6).all()
    assert run.coordinator.blamed == {"party:2": "parties 0, 1, 3, 4, 5, 6 say that its shares are not what it marked"}


@pytest.mark.parametrize(("colluding", "counted"), [(2, 7), (4, 6)])
def test_a_party_that_complains_about_everyone_stops_nobody(colluding: int, counted: int) -> None:
    """With shares to spare its complaints cost nothing; else it is left out, as it is in the most disputes."""

    def complain(index: int, message: Any) -> Any:
        return Checked([0, 1, 2, 3, 4, 6]) if index == 5 and isinstance(message, Checked) else message

    run = Run(simulated(SecAgg, session(dropouts=1, colluding=colluding)), ones(), change=complain)
    assert (run.total() == counted).all()
    blamed = {"party:5": "it complains about the shares of others"}
    assert run.coordinator.blamed == (blamed if counted == 6 else {})


def test_colluders_that_complain_together_are_named_with_the_dealer_that_they_have_left_out() -> None:
    """Which side of a dispute is wrong cannot be told. With one colluder fewer there are shares to spare."""
    for colluders, counted in (([4, 5], 6), ([5], 7)):

        def complain(index: int, message: Any, colluders: list[int] = colluders) -> Any:
            return Checked([0]) if index in colluders and isinstance(message, Checked) else message

        run = Run(simulated(SecAgg, session(dropouts=1, colluding=2)), ones(), change=complain)
        assert (run.total() == counted).all()
        reason = {"party:0": "parties 4, 5 say that its shares are not what it marked"}
        assert run.coordinator.blamed == (reason if counted == 6 else {})


def test_if_too_few_are_left_the_abort_names_who_was_left_out() -> None:
    def garbage(index: int, message: Any) -> Any:
        if index == 2 and isinstance(message, Deal):
            return msgspec.structs.replace(message, sealed=[bytes(len(part)) for part in message.sealed])
        return message

    with pytest.raises(Aborted, match=r"only 6 of 7 .* To blame: party 2 \(parties 0, 1, 3, .*, 6 say") as caught:
        Run(simulated(SecAgg, session(dropouts=0)), ones(), change=garbage)
    assert caught.value.blamed == ("party:2",)


def test_shares_that_are_missing_with_the_allowed_dropouts_name_both_sides_of_the_dispute() -> None:
    """One bad share is within what is spare. With two dropouts it is one too many: then nobody stops a sum unnamed."""

    def one_bad(index: int, message: Any) -> Any:
        if index == 0 and isinstance(message, Deal):
            return msgspec.structs.replace(message, sealed=[bytes(len(message.sealed[0])), *message.sealed[1:]])
        return message

    run = Run(simulated(SecAgg, session()), ones(), absent={5, 6}, change=one_bad)
    with pytest.raises(Aborted, match="only 3 shares of party 0 were opened and 4 are needed") as caught:
        run.total()
    assert set(caught.value.blamed) == {"party:0", "party:1"}


@pytest.mark.parametrize("keep_back", [{2}, {0, 1, 2, 3, 4}])
def test_shares_that_are_kept_back_name_who_kept_them(keep_back: set[int]) -> None:
    def nothing(index: int, message: Any) -> Any:
        return Opened([], b"", [], b"") if index in keep_back and isinstance(message, Opened) else message

    run = Run(simulated(SecAgg, session()), ones(), absent={5, 6}, change=nothing)
    with pytest.raises(Aborted, match=r"only \d shares of party 0 were opened and 4 are needed") as caught:
        run.total()
    assert set(caught.value.blamed) == {address_of(party) for party in keep_back - {0}}


def test_a_party_that_is_told_to_begin_again_after_its_masks_refuses() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    with pytest.raises(Rejected, match="told to begin after"):
        run.parties[0].step(b"")


@pytest.mark.parametrize(("parties", "dropouts"), [(1, 0), (2, 1), (7, 6)])
def test_a_sum_that_may_be_left_with_one_party_is_refused(parties: int, dropouts: int) -> None:
    few = session(parties=parties, dropouts=dropouts, colluding=0)
    with pytest.raises(Unsuitable, match="nobody to mask with"):
        SecAgg(few, Options(coordinator="curious"))
    with pytest.raises(Unsuitable, match="nobody to mask with"):
        Pairwise(few, PairwiseOptions())


@pytest.mark.parametrize("kind", ["alive", "gone"])
@pytest.mark.parametrize("liars", [1, 2, 3])
def test_wrong_shares_are_replaced_by_others_as_long_as_there_are_enough(kind: str, liars: int) -> None:
    """Seven parties, threshold four: of five or six holders one or two may lie; else nothing is revealed."""

    def lie(index: int, message: Any) -> Any:
        if index < liars and isinstance(message, Opened):
            wrong = bytes(part ^ 5 for part in getattr(message, f"{kind}_shares"))
            return msgspec.structs.replace(message, **{f"{kind}_shares": wrong})
        return message

    run = Run(simulated(SecAgg, session(dropouts=1)), ones(), absent={6}, change=lie)
    assert run.protocol.protocol.graph.degree.threshold == 4
    if liars <= 1 + (kind == "gone"):
        assert (run.total() == 6).all()
        assert set(run.coordinator.blamed) == {address_of(index) for index in range(liars)}
    else:
        with pytest.raises(Aborted, match=r"of the opened shares of party . were dealt and 4 are needed") as caught:
            run.total()
        assert set(caught.value.blamed) <= {address_of(index) for index in range(liars)}


def test_a_dealer_of_shares_that_do_not_fit_is_named_with_evidence_that_anyone_can_check() -> None:
    """The marks that it signed say which shares it dealt, and these do not give what it committed to."""

    def other_seed(index: int, message: Any) -> Any:
        if index == 2 and isinstance(message, Deal):
            commitments = [bytes(32), *message.commitments[1:]]
            label = run_session.label()
            statement = f"dealt/{label}/2/".encode() + b"".join(commitments) + message.marks
            signature = protocol.keys.identity(2).sign(statement)
            return msgspec.structs.replace(message, commitments=commitments, signature=signature)
        return message

    run_session = session()
    protocol = simulated(SecAgg, run_session)
    run = Run(protocol, ones(), change=other_seed)
    with pytest.raises(Aborted, match="party 2 dealt do not give the secret that it committed to") as caught:
        run.total()
    assert caught.value.blamed == ("party:2",)
    evidence = caught.value.evidence
    found = "it dealt shares that do not give the secret that it committed to"
    assert convicted(protocol.protocol, evidence) == {"party:2": found}
    assert len(evidence[0].exhibit) == 6 * (4 + SHARE_BYTES)


def test_noise_seeds_are_recovered_from_other_shares_too() -> None:
    schedule = NoiseSchedule.plan(7, 2, 1, 1e6, 1.0)

    def lie(index: int, message: Any) -> Any:
        if index == 0 and isinstance(message, Opened):
            return msgspec.structs.replace(message, alive_shares=bytes(part ^ 1 for part in message.alive_shares))
        return message

    run = Run(simulated(SecAgg, session(dropouts=1, schedule=schedule)), ones(), change=lie)
    assert (run.total() == 7).all()
    assert all(len(seeds) == len(run.protocol.session.opened(7)) for seeds in run.coordinator.opened().values())


def test_a_party_takes_no_second_introduction_and_no_second_set_of_shares() -> None:
    run = Run(simulated(SecAgg, session()), ones())
    again = run.coordinator._introduce()[0].body
    with pytest.raises(Rejected, match="introduced twice"):
        run.parties[0].step(again)
    run.coordinator.state.keys.pop(3)
    run.coordinator._chosen = {}
    other = run.coordinator._introduce()[0].body
    with pytest.raises(Aborted, match="two different sets"):
        run.parties[0].step(other)


def test_pairwise_masks_are_lost_with_a_party_that_vanishes_and_the_sum_is_given_up() -> None:
    protocol = SimulatedEndpoints(Pairwise(session(), PairwiseOptions()), SecretStream())
    coordinator = protocol.coordinator()
    parties = [protocol.party(index, SecretStream()) for index in range(7)]
    for party in parties:
        coordinator.step(party.step(b"")[0].body)
    for envelope in coordinator.advance():
        parties[int(envelope.to.split(":")[1])].step(envelope.body)
    for party in parties[:6]:
        coordinator.step(party.submit(np.ones(6, dtype=np.uint64))[0].body)
    with pytest.raises(Aborted, match="party 6 exchanged keys but sent no vector"):
        coordinator.finish()


def test_addresses_are_told_apart() -> None:
    assert address_of(3) == "party:3" != COORDINATOR
    assert len(public_key(bytes(31) + b"1")) == 32
    with pytest.raises(ValueError, match="32 bytes"):
        public_key(b"")
