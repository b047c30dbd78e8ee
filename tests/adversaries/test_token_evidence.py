"""Who spoils a list of tokens is convicted by what it signed, and nobody else ever is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cast import Cast, study_of
from shuffles import Run, assert_nobody_accepts, malicious
from unspoken.engines.actors import Vanishing
from unspoken.roles.evidence import convicted as convicted_by_study
from unspoken.roles.messages import Ask, Carried, Over
from unspoken.roles.party import Party
from unspoken.summation.base import Aborted, Envelope, Rejected, SignedStatement, address_of
from unspoken.summation.evidence import convicted, from_json, to_json
from unspoken.summation.keys import SIGNATURE_BYTES
from unspoken.summation.mixnet import onion_bytes
from unspoken.summation.record_shuffle import ShuffleCoordinator, ShuffleParty
from unspoken.summation.shuffle_course import (
    STAGES,
    Announce,
    Confirm,
    Exhibit,
    Publish,
    Signed,
    Submit,
    evidence,
    submitted,
)

GUILTY = 1


def says(run: Run, kind: type[Signed], change: Callable[[bytes], bytes]) -> Run:
    """A run in which the guilty party signs something else in one stage."""
    party = run.parties[GUILTY]
    honest = party._signed
    party._signed = lambda of, body: honest(of, change(body) if of is kind else body)
    return run.finish()


@pytest.mark.parametrize(
    ("kind", "change", "fault"),
    [
        (Announce, lambda body: body[:-1], "it announced a key and a digest of 63 bytes"),
        (Announce, lambda body: bytes(32) + body[32:], "it announced a key that hides nothing"),
        (Submit, lambda body: body + b"1", "it submitted 625 bytes of onions, which no allowed number has"),
        (Publish, lambda body: body[onion_bytes(2) :], "it published a list of 896 bytes, where 1008 were due"),
        (Publish, lambda body: body + body[: onion_bytes(2)], "it published a list of 1120 bytes, where 1008 were due"),
        (Confirm, lambda body: bytes(32), "it revealed another part of the seed than it had committed to"),
        (Confirm, lambda body: body + body, "it revealed a part of the seed of 64 bytes"),
    ],
)
def test_what_is_wrong_by_itself_convicts_its_signer(
    kind: type[Signed], change: Callable[[bytes], bytes], fault: str
) -> None:
    run = says(Run((3, 3, 2, 1)), kind, change)
    shown = from_json(to_json(run.coordinator.state.evidence))
    assert convicted(run.protocol, shown) == {address_of(GUILTY): fault}


def test_who_commits_to_a_part_of_another_length_is_convicted_when_it_reveals_that() -> None:
    run = Run()
    run.parties[GUILTY].state.part_of_seed = bytes(33)
    run.finish()
    assert_nobody_accepts(run)
    found = convicted(run.protocol, run.coordinator.state.evidence)
    assert found == {address_of(GUILTY): "it revealed a part of the seed of 33 bytes"}


@pytest.mark.parametrize("index", range(4))
def test_a_list_of_another_length_convicts_whoever_published_it(index: int) -> None:
    """Every party has seen another number of lists before."""
    run = malicious(Run(), index, lambda onions, run: onions[1:])
    assert list(convicted(run.protocol, run.coordinator.state.evidence)) == [address_of(index)]


def twice(run: Run, kind: type[Signed], party: int = GUILTY) -> None:
    """The party signs two messages of a kind. The second one comes after the first."""
    honest, once = run.parties[party]._signed, run.parties[party].step
    second: list[Envelope] = []

    def signed(of: type[Signed], body: bytes) -> Envelope:
        if of is kind:
            second.append(honest(of, body[:-1] + bytes([body[-1] ^ 1])))
        return honest(of, body)

    def step(incoming: bytes) -> list[Envelope]:
        sent = once(incoming)
        return sent + [second.pop() for _ in second[:1]]

    run.parties[party]._signed, run.parties[party].step = signed, step


@pytest.mark.parametrize("kind", STAGES)
def test_who_signs_two_messages_is_convicted_and_the_list_is_made_with_the_first(kind: type[Signed]) -> None:
    run = Run((2, 2, 1))
    twice(run, kind)
    run.finish()
    assert run.coordinator.complete
    assert run.parties[0].all_tokens().tolist() == run.coordinator.tokens().tolist()
    assert list(run.coordinator.blamed) == [address_of(GUILTY)]
    found = convicted(run.protocol, run.coordinator.evidence)
    name = str(kind.__struct_config__.tag).removeprefix("tokens/")
    assert found == {address_of(GUILTY): f"it signed two different messages of the kind {name}"}


def test_a_second_message_that_was_not_signed_by_its_sender_counts_for_nothing() -> None:
    run = Run().finish()
    before = run.coordinator.dump()
    for message in run.seen:
        forged = msgspec.structs.replace(message, body=b"other", signature=bytes(SIGNATURE_BYTES))
        with pytest.raises(Rejected, match="does not match its identity"):
            run.coordinator.step(msgspec.msgpack.encode(forged))
    assert run.coordinator.dump() == before
    assert run.coordinator.blamed == {}


HONEST = Run((2, 1, 3)).finish()
SAID = [evidence(message) for message in HONEST.seen]
HISTORY = HONEST.coordinator.state.history


def with_exhibit(signed: SignedStatement, exhibit: bytes) -> SignedStatement:
    return msgspec.structs.replace(signed, exhibit=exhibit)


def test_honest_parties_are_not_convicted_whatever_goes_with_their_statements() -> None:
    """Their own histories, shorter ones, those of others, one with other numbers of tokens, another body."""
    assert len(SAID) == 4 * 3
    other = Run((2, 2, 2), "other").finish()
    changed = [HISTORY[0], submitted([1, 1, 3], bytes(32)), *HISTORY[2:]]
    histories = [HISTORY[:length] for length in range(len(HISTORY) + 1)] + [changed, other.coordinator.state.history]
    bodies = [b"", bytes(32), *(bytes(message.body) for message in HONEST.seen), *HISTORY]
    for signed in SAID:
        for history in histories:
            for body in bodies:
                shown = with_exhibit(signed, msgspec.msgpack.encode(Exhibit(body, history)))
                assert convicted(HONEST.protocol, [shown]) == {}
    assert convicted(HONEST.protocol, SAID) == {}
    shown = [with_exhibit(signed, msgspec.msgpack.encode(Exhibit(history=HISTORY))) for signed in SAID]
    assert convicted(HONEST.protocol, [*SAID, *SAID, *shown]) == {}, "one statement, shown three times"


def test_what_is_no_message_of_its_signer_convicts_nobody() -> None:
    """Such a statement is not of this protocol: in another's name, or longer than any."""
    identity, (mine, other) = HONEST.keys.identity(GUILTY), SAID[GUILTY : GUILTY + 2]
    for said in (other.statement, mine.statement + b"1"):
        signed = SignedStatement(address_of(GUILTY), said, identity.sign(said))
        assert convicted(HONEST.protocol, [mine, signed]) == {}


@given(
    which=st.sampled_from(range(len(SAID))),
    exhibit=st.binary() | st.builds(Exhibit, st.binary(), st.lists(st.binary())).map(msgspec.msgpack.encode),
)
def test_no_exhibit_makes_a_reader_fail(which: int, exhibit: bytes) -> None:
    assert convicted(HONEST.protocol, [with_exhibit(SAID[which], exhibit)]) == {}


@pytest.mark.parametrize("entry", [b"", b";", b"1,,2;" + bytes(32), b"9" * 99 + b";" + bytes(32), bytes(64)])
def test_a_history_that_a_liar_made_up_makes_no_reader_fail(entry: bytes) -> None:
    run = Run()
    party = run.parties[GUILTY]
    for history in ([], [entry], [entry, entry], [entry] * 7):
        party.state.after = Run().coordinator.state.after
        for each in history:
            party._log(each)
        for kind in (Publish, Confirm):
            message = msgspec.msgpack.decode(party._signed(kind, bytes(32)).body, type=kind)
            shown = evidence(message, Exhibit(bytes(32), history))
            assert convicted(run.protocol, [shown]).keys() <= {address_of(GUILTY)}


def test_a_statement_about_another_list_convicts_nobody_here() -> None:
    here, there = Run(attempt=bytes([1] * 16)), Run(attempt=bytes([2] * 16))
    says(there, Announce, lambda body: body[:-1])
    assert convicted(there.protocol, there.coordinator.state.evidence)
    assert convicted(here.protocol, there.coordinator.state.evidence) == {}


class Spoilt(Cast):
    """A study with lists of tokens, in which one party spoils them."""

    def __init__(self, public: Path) -> None:
        super().__init__(study_of(public, "tokens", "ideal"))

    def step(self, to: str, body: bytes, gone: Vanishing, sender: str) -> list[Envelope]:
        try:
            return super().step(to, body, gone, sender)
        except Rejected:
            return []

    def convicted(self) -> dict[str, str]:
        """Whom a reader of the study finds guilty."""
        shown = from_json(to_json(self.coordinator.evidence))
        return convicted_by_study(self.plan, self._keys.roster, shown)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.long) for kind in STAGES[:3]] + [Confirm])
def test_a_run_that_is_given_up_names_who_spoilt_its_lists_and_others_find_the_same(
    kind: type[Signed], public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ShuffleParty._signed

    def signed(self: ShuffleParty, of: type[Signed], body: bytes) -> Envelope:
        return honest(self, of, body[:-16] if self._index == GUILTY and of is kind else body)

    monkeypatch.setattr(ShuffleParty, "_signed", signed)
    cast = Spoilt(public)
    with pytest.raises(Aborted) as ended:
        cast.run([])
    assert ended.value.blamed == (address_of(GUILTY),)
    assert ended.value.evidence == cast.coordinator.evidence
    assert list(cast.convicted()) == [address_of(GUILTY)]


def test_parties_have_the_evidence_that_a_coordinator_hands_on_without_a_look(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShuffleCoordinator, "_take_confirmation", lambda self, message: None)
    honest = ShuffleParty._signed

    def signed(self: ShuffleParty, of: type[Signed], body: bytes) -> Envelope:
        return honest(self, of, bytes(32) if self._index == GUILTY and of is Confirm else body)

    monkeypatch.setattr(ShuffleParty, "_signed", signed)
    cast = Spoilt(public)
    with pytest.raises(Aborted):
        cast.run([])
    (noticed,) = (party for party in cast.parties.values() if party.evidence)
    assert list(noticed.blamed) == [address_of(GUILTY)]
    assert list(convicted_by_study(cast.plan, cast._keys.roster, noticed.evidence)) == [address_of(GUILTY)]


def test_a_party_that_comes_twice_is_named_and_convicted(public: Path) -> None:
    """Its twin's key counts, and it cannot go on; but both have signed."""
    cast = Spoilt(public)

    def answer_twice(to: str, body: bytes) -> None:
        message = msgspec.msgpack.decode(body, type=Ask | Carried | Over) if to == address_of(GUILTY) else None
        if isinstance(message, Ask) and message.kind == "shuffle":
            keys = cast._keys.identity(GUILTY), cast._keys.roster
            twin = Party(cast.method, cast._records[GUILTY], *keys, plan=cast.plan)
            cast.send(twin.receive(body), address_of(GUILTY))

    cast.before = answer_twice
    with pytest.raises(Aborted, match="two different messages") as ended:
        cast.run([])
    assert address_of(GUILTY) in ended.value.blamed
    assert cast.convicted() == {address_of(GUILTY): "it signed two different messages of the kind announce"}
