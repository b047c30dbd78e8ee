"""Evidence: what others find in statements that were signed, whoever shows them."""

from __future__ import annotations

import json
import os

import msgspec
import numpy as np
import pytest

from unspoken.errors import UnspokenError
from unspoken.noise.stream import SecretStream
from unspoken.study import Section
from unspoken.summation import shamir
from unspoken.summation.ballots import statement as ballot_statement
from unspoken.summation.base import COORDINATOR, Aborted, Protocol, Rejected, Session, SignedStatement, VoteShape
from unspoken.summation.compute_nodes import ComputeNodes
from unspoken.summation.evidence import convicted, from_json, to_json
from unspoken.summation.ideal import Ideal
from unspoken.summation.ideal import Options as NoOptions
from unspoken.summation.introductions import keys_beginning
from unspoken.summation.keys import Identity, public_key
from unspoken.summation.node_messages import key_statement
from unspoken.summation.secagg import SecAgg
from unspoken.summation.secagg_evidence import exhibit_of
from unspoken.summation.secagg_messages import commitment, dealt_statement, marks_of
from unspoken.summation.simulated_keys import SimulatedKeys
from unspoken.summation.tally import Tally
from unspoken.summation.tally_agreement import count_statement

PARTIES = 7
LOW_ORDER = bytes(32)


class Court:
    """A protocol with a roster, and everybody's identity."""

    def __init__(self, kind: type[Protocol], options: Section | None = None, attempt: bytes = bytes(16)) -> None:
        vote = VoteShape(3, 2) if kind is Tally else None
        session = Session("digest", "model", PARTIES, 2, PARTIES - 1, 6, 64, vote=vote, attempt=attempt)
        planned = kind(session, options or kind.options_type())
        self.keys = SimulatedKeys(SecretStream(), PARTIES, len(planned.helper_addresses))
        self.protocol = planned.with_roster(self.keys.roster)
        self.label = self.protocol.session.label()

    def signed(self, signer: str, statement: bytes, exhibit: bytes = b"") -> SignedStatement:
        return SignedStatement(signer, statement, self._identity(signer).sign(statement), exhibit)

    def _identity(self, signer: str) -> Identity:
        kind, _, number = signer.partition(":")
        if signer == COORDINATOR:
            return self.keys.coordinator
        return self.keys.identity(int(number)) if kind == "party" else self.keys.helper(int(number))


@pytest.mark.parametrize(("kind", "statement"), [(ComputeNodes, key_statement), (Tally, ballot_statement)])
def test_two_one_time_keys_for_one_sum_convict_a_party(kind: type[Protocol], statement: object) -> None:
    court = Court(kind)
    keys = [public_key(os.urandom(32)) for _ in range(2)]
    both = [court.signed("party:4", statement(court.label, 4, key)) for key in keys]  # type: ignore[operator]
    assert convicted(court.protocol, both) == {"party:4": "it signed two one-time keys"}
    assert convicted(court.protocol, [both[0], both[0]]) == {}, "one key, shown twice"
    other = court.signed("party:3", statement(court.label, 3, keys[1]))  # type: ignore[operator]
    assert convicted(court.protocol, [both[0], other]) == {}, "a key each"


def test_keys_for_two_attempts_convict_nobody() -> None:
    court, later = Court(ComputeNodes), Court(ComputeNodes, attempt=bytes(15) + b"\1")
    keys = [public_key(os.urandom(32)) for _ in range(2)]
    each = [
        court.signed("party:4", key_statement(label.label, 4, key))
        for label, key in zip((court, later), keys, strict=True)
    ]
    assert convicted(court.protocol, each) == {}


def test_a_key_that_nothing_can_be_sealed_with_convicts_a_party() -> None:
    court = Court(ComputeNodes)
    weak = court.signed("party:1", key_statement(court.label, 1, LOW_ORDER))
    assert convicted(court.protocol, [weak]) == {"party:1": "it signed a one-time key of low order"}


def test_two_lists_for_one_vote_convict_the_coordinator() -> None:
    court = Court(Tally)
    lists = [court.signed(COORDINATOR, count_statement(court.label, bytes([number]) * 32)) for number in range(2)]
    assert convicted(court.protocol, lists) == {COORDINATOR: "it signed two lists of parties to count"}
    assert convicted(court.protocol, lists[:1]) == {}


def dealt(court: Court, number: int, *, honest: bool, rows: int, marked: bool = True) -> list[SignedStatement]:
    """A dealer's statements, with shares of one of its two secrets as the exhibit."""
    dealer, mask_secret, seed = 2, os.urandom(32), os.urandom(32)
    receivers = [party for party in range(PARTIES) if party != dealer]
    points = np.array(receivers, dtype=np.uint64) + np.uint64(1)
    threshold = court.protocol.graph.degree.threshold  # type: ignore[attr-defined]
    shares = shamir.split([mask_secret, seed], points, threshold, SecretStream())
    packed = [row.astype("<u4").tobytes() for row in shares]
    marks = b"".join(marks_of(court.label, dealer, to, row) for to, row in zip(receivers, packed, strict=True))
    hashes = [commitment(court.label, dealer, seed if honest else bytes(32))]
    mask_key = public_key(mask_secret if honest else os.urandom(32))
    shown = shares[:rows, number] if marked else shares[:rows, number] ^ np.uint64(1)
    return [
        court.signed(
            f"party:{dealer}", dealt_statement(court.label, dealer, marks, hashes), exhibit_of(points[:rows], shown)
        ),
        court.signed(f"party:{dealer}", keys_beginning(court.label, dealer) + bytes(32) + mask_key + bytes(32)),
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_shares_that_do_not_give_what_was_committed_to_convict_their_dealer(number: int) -> None:
    court = Court(SecAgg)
    enough = court.protocol.graph.degree.threshold  # type: ignore[attr-defined]
    found = convicted(court.protocol, dealt(court, number, honest=False, rows=enough))
    assert found == {"party:2": "it dealt shares that do not give the secret that it committed to"}


@pytest.mark.parametrize("number", [0, 1])
def test_an_honest_dealer_is_not_convicted_by_few_shares_nor_by_others_than_it_dealt(number: int) -> None:
    """Whoever shows the evidence chooses the exhibit. Fewer shares than the threshold give anything."""
    court = Court(SecAgg)
    enough = court.protocol.graph.degree.threshold  # type: ignore[attr-defined]
    for shown in (
        dealt(court, number, honest=True, rows=enough),
        dealt(court, number, honest=True, rows=enough - 1),
        dealt(court, number, honest=True, rows=enough, marked=False),
    ):
        assert convicted(court.protocol, shown) == {}
    twice = dealt(court, number, honest=True, rows=enough - 1)
    padded = msgspec.structs.replace(twice[0], exhibit=twice[0].exhibit + twice[0].exhibit[:40])
    assert convicted(court.protocol, [padded, twice[1]]) == {}, "one share is there twice"


@pytest.mark.parametrize("signer", ["party:4", COORDINATOR, "party:7", "node:0", "node:9", "party:", "nobody"])
def test_a_statement_that_its_signer_did_not_sign_is_rejected(signer: str) -> None:
    court = Court(ComputeNodes)
    genuine = court.signed("party:5", key_statement(court.label, 4, LOW_ORDER))
    with pytest.raises(Rejected, match=r"does not match its identity|takes no part in the study"):
        convicted(court.protocol, [SignedStatement(signer, genuine.statement, genuine.signature)])


def test_a_protocol_without_statements_convicts_nobody() -> None:
    court = Court(Ideal, NoOptions())
    assert convicted(court.protocol, [court.signed("party:0", b"anything")]) == {}


def test_evidence_is_the_same_after_a_file() -> None:
    court = Court(ComputeNodes)
    evidence = (court.signed("party:1", key_statement(court.label, 1, LOW_ORDER), b"exhibit"),)
    assert from_json(json.loads(json.dumps(to_json(evidence)))) == evidence


@pytest.mark.parametrize("content", [3, [3], [{}], [{"signer": "party:1", "statement": "xy"}], {"signer": "party:1"}])
def test_a_file_that_is_no_evidence_is_refused_with_what_it_should_be(content: object) -> None:
    with pytest.raises(UnspokenError, match="is not a list of statements; each has a signer"):
        from_json(content)


def test_an_abort_says_who_is_to_blame_for_what() -> None:
    faults = {"party:2": "it signed two keys", COORDINATOR: "it lied"}
    error = Aborted("there is no total.", faults)
    assert str(error) == "there is no total. To blame: party 2 (it signed two keys), the coordinator (it lied)"
    assert (error.blamed, error.faults) == (("party:2", COORDINATOR), faults)
    many = Aborted("there is no total", {f"party:{index}": "silent" for index in range(8)})
    assert str(many).endswith("party 4 (silent) and 3 more")
    assert str(Aborted("tallier:1 died", ("tallier:1",))) == "tallier:1 died"
