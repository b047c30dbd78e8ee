"""A bad party in a sum by SecAgg or SecAgg+ is left out, and the others go on; or an abort names whom it can."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np
import pytest

from masked_sums import Run, ones, session, simulated
from unspoken.noise.stream import SecretStream
from unspoken.summation.base import Aborted, Envelope, Rejected, address_of
from unspoken.summation.evidence import convicted
from unspoken.summation.incoming import bitmap
from unspoken.summation.introductions import Advertise, Framed
from unspoken.summation.keys import is_signed
from unspoken.summation.secagg import SecAgg, SecAggPlus
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
from unspoken.summation.simulated_keys import SimulatedEndpoints


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
