"""Who is who on a connection: the roster's identities, for one study, on fresh challenges, in both directions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from unspoken.engines.network import sign_in
from unspoken.engines.network.frames import Denied, Proof, packed
from unspoken.engines.network.sign_in import ClientSignIn, ServerSignIn, SignInRefused
from unspoken.summation.base import Rejected, Roster
from unspoken.summation.keys import Identity

HUB, PARTY, NODE, STRANGER = (Identity(bytes([number]) * 32) for number in range(4))
ROSTER = Roster((PARTY.public,), HUB.public, (NODE.public,))
PROCESS = bytes(16)


def server(study: str = "study", identity: Identity = HUB) -> ServerSignIn:
    return ServerSignIn(study, ROSTER, ["node:0"], identity)


def client(study: str = "study", identity: Identity = PARTY) -> ClientSignIn:
    return ClientSignIn(study, ROSTER, identity, PROCESS)


@pytest.mark.parametrize(("identity", "address"), [(PARTY, "party:0"), (NODE, "node:0")])
def test_both_sides_know_each_other(identity: Identity, address: str) -> None:
    theirs, mine = server(), client(identity=identity)
    proof = mine.proof(theirs.challenge(), (3, 5))
    assert theirs.check(proof) == address
    assert mine.check(theirs.accepted(proof, PROCESS, (1, 2))).expects == (1, 2)


def test_a_stranger_is_refused() -> None:
    theirs = server()
    with pytest.raises(SignInRefused, match="not in the study's roster"):
        theirs.check(client(identity=STRANGER).proof(theirs.challenge(), (0, 0)))


def test_a_proof_is_worth_nothing_in_another_connection() -> None:
    first, second = server(), server()
    proof = client().proof(first.challenge(), (0, 0))
    with pytest.raises(SignInRefused, match="signature does not match"):
        second.check(proof)


def test_an_acceptance_is_worth_nothing_in_another_connection() -> None:
    theirs, first, second = server(), client(), client()
    accepted = theirs.accepted(first.proof(theirs.challenge(), (0, 0)), PROCESS, (0, 0))
    second.proof(theirs.challenge(), (0, 0))
    with pytest.raises(SignInRefused, match="does not have the coordinator's key"):
        second.check(accepted)


def test_a_proof_cannot_be_turned_round() -> None:
    """What a client signs is no signature of a server."""
    theirs, mine = server(identity=PARTY), client()
    proof = mine.proof(theirs.challenge(), (0, 0))
    forged = msgspec.structs.replace(theirs.accepted(proof, PROCESS, (0, 0)), signature=proof.signature)
    with pytest.raises(SignInRefused, match="does not have the coordinator's key"):
        mine.check(forged)


def test_whoever_is_not_the_coordinator_is_refused() -> None:
    theirs, mine = server(identity=STRANGER), client()
    proof = mine.proof(theirs.challenge(), (0, 0))
    with pytest.raises(SignInRefused, match="does not have the coordinator's key"):
        mine.check(theirs.accepted(proof, PROCESS, (0, 0)))


def test_another_study_is_refused_by_both() -> None:
    theirs = server("other")
    with pytest.raises(SignInRefused, match="another study"):
        client().proof(theirs.challenge(), (0, 0))
    proof = client("other").proof(theirs.challenge(), (0, 0))
    with pytest.raises(SignInRefused, match="differs from the coordinator's"):
        server().check(proof)


def test_another_version_is_refused_by_both_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = client().proof(server().challenge(), (0, 0))
    old = packed(msgspec.structs.replace(proof, wire=0, version="0.0.1"))
    with pytest.raises(SignInRefused, match=r"you have unspoken 0\.0\.1, which speaks version 0"):
        server().read(old)
    challenge = packed(server().challenge())
    assert server().read(packed(proof)) == proof
    monkeypatch.setattr(sign_in, "WIRE_VERSION", 2)
    with pytest.raises(SignInRefused, match=r"the coordinator has unspoken .*, which speaks version 1"):
        client().read(challenge)


def test_a_version_that_may_promise_something_else_is_refused_before_anything_is_spent() -> None:
    """In the end a party would not sign a certificate whose words are not its own."""
    challenge = server().challenge()
    with pytest.raises(
        SignInRefused, match=r"the coordinator has unspoken 0\.0\.1, and this is .* Install unspoken 0\.0"
    ):
        client().read(packed(msgspec.structs.replace(challenge, version="0.0.1")))
    proof = msgspec.structs.replace(client().proof(challenge, (0, 0)), version="0.0.1")
    with pytest.raises(SignInRefused, match=r"you have unspoken 0\.0\.1, and the coordinator has .* Install unspoken"):
        server().read(packed(proof))
    fits = msgspec.structs.replace(proof, version=f"{sign_in.series(challenge.version)}.99")
    assert server().read(packed(fits)) == fits


@pytest.mark.parametrize("rest", [(), (1, {"what": [b"comes"]}, None), ("study", b"n" * 500)])
def test_a_version_of_another_shape_is_still_refused_by_name(rest: tuple[Any, ...]) -> None:
    """Whatever later versions say after their number."""
    with pytest.raises(SignInRefused, match=r"you have unspoken 9\.9, which speaks version 7 .* Install unspoken"):
        server().read(msgspec.msgpack.encode(["net/proof", 7, "9.9", *rest]))
    with pytest.raises(SignInRefused, match=r"the coordinator has unspoken 9\.9, .* Install unspoken 9\.9"):
        client().read(msgspec.msgpack.encode(["net/challenge", 7, "9.9", *rest]))


GARBAGE = [b"", b"garbage", "text", b"\x91" * 5000, msgspec.msgpack.encode(["net/proof", "1", 2])]


@pytest.mark.parametrize("content", GARBAGE)
def test_what_is_no_first_frame_is_rejected(content: Any) -> None:
    for side in (server(), client()):
        with pytest.raises(Rejected):
            side.read(content)


CHANGES: dict[str, Callable[[Proof], Any]] = {
    "nonce": lambda proof: os.urandom(32),
    "signature": lambda proof: bytes(64),
    "identity": lambda proof: NODE.public,
}


@pytest.mark.parametrize("part", CHANGES)
def test_a_changed_proof_is_refused(part: str) -> None:
    theirs = server()
    proof = client().proof(theirs.challenge(), (0, 0))
    with pytest.raises(SignInRefused, match="signature does not match"):
        theirs.check(msgspec.structs.replace(proof, **{part: CHANGES[part](proof)}))


@pytest.mark.parametrize("part", ["nonce", "process"])
def test_a_malformed_proof_is_refused(part: str) -> None:
    theirs = server()
    proof = client().proof(theirs.challenge(), (0, 0))
    with pytest.raises(SignInRefused, match="malformed"):
        theirs.check(msgspec.structs.replace(proof, **{part: b""}))


def test_a_refusal_is_shown_without_control_characters() -> None:
    with pytest.raises(SignInRefused) as raised:
        client().check(Denied("no\x1b[2J\n" + "x" * 1000))
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 500
