"""Who is who: both sides of a new connection sign fresh challenges and the study's digest by their roster identities.

The signatures are not bound to the TLS certificate, so that a proxy may end TLS in front of the coordinator. Whoever
operates such a proxy can read what the coordinator reads, the result included, and can act in its place after a
sign-in. The promise holds against it as against a coordinator that lies: what a protocol keeps from the coordinator is
sealed end to end by the roster's keys, and what others must not forge is signed by them.

Versions must fit before anything is spent: on the wire, and in their first two numbers. Others may plan a study
otherwise, or state its promise in other words, and then parties would not sign the certificate in the end. Whatever
the numbers say, the coordinator also shows its plan, and who plans otherwise leaves (`participant.agreeing`).
"""

from __future__ import annotations

import hmac
import os
from importlib.metadata import version

from unspoken.engines.network.frames import WIRE_VERSION, Accepted, Challenge, Denied, Proof, unpacked, version_in
from unspoken.errors import UnspokenError, printable
from unspoken.summation.base import Roster, address_of
from unspoken.summation.keys import Identity, is_signed

NONCE_BYTES = 32
PROCESS_BYTES = 16
_DIGITS = 16
"""As many of a study's digest are shown, here and by `unspoken roster`"""


class SignInRefused(UnspokenError):
    """A connection is refused by one of its sides, in a sentence that names the reason."""


class OtherServer(SignInRefused):
    """Whoever answers where the coordinator should be is not the coordinator."""


def _statement(side: str, study: str, nonces: tuple[bytes, bytes], coordinator: bytes, client: bytes) -> bytes:
    parts = (b"unspoken-1/sign-in", side.encode(), study.encode(), *nonces, coordinator, client)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


class ServerSignIn:
    """The coordinator's side of one sign-in."""

    def __init__(self, study: str, roster: Roster, helper_addresses: list[str], identity: Identity) -> None:
        self._study, self._roster, self._identity = study, roster, identity
        self._addresses = {bytes(key): address_of(index) for index, key in enumerate(roster.parties)}
        self._addresses |= {bytes(key): to for key, to in zip(roster.helpers, helper_addresses, strict=False)}
        self._nonce = os.urandom(NONCE_BYTES)

    def challenge(self) -> Challenge:
        return Challenge(WIRE_VERSION, version("unspoken"), self._study, self._nonce)

    def read(self, content: object) -> Proof:
        """The proof in a frame; `Rejected` if the frame is not a proof, `SignInRefused` if it is of another version."""
        wire, theirs = version_in(content, "net/proof") or (WIRE_VERSION, version("unspoken"))
        if wire != WIRE_VERSION:
            raise SignInRefused(
                f"you have unspoken {_short(theirs)}, which speaks version {wire} on the wire; the coordinator has "
                f"unspoken {version('unspoken')} and speaks {WIRE_VERSION}. Install unspoken {version('unspoken')}."
            )
        if series(theirs) != series(version("unspoken")):
            raise SignInRefused(
                f"you have unspoken {_short(theirs)}, and the coordinator has {version('unspoken')}, which may promise "
                f"something else for the same study. Install unspoken {version('unspoken')}."
            )
        return unpacked(content, Proof)

    def check(self, proof: Proof) -> str:
        """The address of who it is; `SignInRefused` with a reason that may be told to anyone."""
        if proof.study != self._study:
            raise SignInRefused("your copy of the study differs from the coordinator's; all need the same file.")
        address = self._addresses.get(proof.identity)
        if address is None:
            raise SignInRefused("your identity is not in the study's roster; ask the coordinator to add your card.")
        if len(proof.nonce) != NONCE_BYTES or len(proof.process) != PROCESS_BYTES:
            raise SignInRefused("the proof of your identity is malformed.")
        statement = self._said("client", proof)
        if not is_signed(proof.identity, statement, proof.signature):
            raise SignInRefused("your signature does not match the identity that you claim.")
        return address

    def accepted(self, proof: Proof, process: bytes, expects: tuple[int, int], plan: bytes = b"") -> Accepted:
        return Accepted(process, expects, self._identity.sign(self._said("server", proof)), plan)

    def _said(self, side: str, proof: Proof) -> bytes:
        return _statement(side, self._study, (self._nonce, proof.nonce), self._identity.public, proof.identity)


class ClientSignIn:
    """A party's or a helper's side of one sign-in."""

    def __init__(self, study: str, roster: Roster, identity: Identity, process: bytes) -> None:
        self._study, self._roster, self._identity, self._process = study, roster, identity, process
        self._nonce = os.urandom(NONCE_BYTES)
        self._theirs = b""

    def read(self, content: object) -> Challenge:
        """The challenge in a frame; `Rejected` if the frame is not a challenge, `SignInRefused` if it is of another
        version."""
        wire, theirs = version_in(content, "net/challenge") or (WIRE_VERSION, version("unspoken"))
        if wire != WIRE_VERSION:
            raise SignInRefused(
                f"the coordinator has unspoken {_short(theirs)}, which speaks version {wire} on the wire; this is "
                f"unspoken {version('unspoken')} and speaks {WIRE_VERSION}. Install unspoken {_short(theirs)}."
            )
        if series(theirs) != series(version("unspoken")):
            raise SignInRefused(
                f"the coordinator has unspoken {_short(theirs)}, and this is {version('unspoken')}, which may promise "
                f"something else for the same study. Install unspoken {_short(theirs)}."
            )
        return unpacked(content, Challenge)

    def proof(self, challenge: Challenge, expects: tuple[int, int]) -> Proof:
        """The answer to the challenge; `SignInRefused` if this is not the coordinator of this study."""
        if not hmac.compare_digest(challenge.study.encode(), self._study.encode()):
            raise OtherServer(
                "the coordinator serves another study, or another version of it: its file's digest begins with "
                f"{printable(challenge.study[:_DIGITS], _DIGITS)}, and yours with {self._study[:_DIGITS]}; compare the "
                "files (`unspoken roster STUDY` shows the digest)."
            )
        if len(challenge.nonce) != NONCE_BYTES:
            raise SignInRefused("the coordinator's challenge is malformed.")
        self._theirs = challenge.nonce
        signature = self._identity.sign(self._said("client"))
        mine = self._identity.public
        given = (version("unspoken"), self._study, mine, self._nonce, self._process, expects)
        return Proof(WIRE_VERSION, *given, signature)

    def check(self, answer: Accepted | Denied) -> Accepted:
        """`SignInRefused` unless the coordinator of the roster has accepted."""
        if isinstance(answer, Denied):
            raise SignInRefused(f"the coordinator refuses: {printable(answer.reason, 400)}")
        if not is_signed(self._roster.coordinator, self._said("server"), answer.signature):
            raise OtherServer("whoever answers does not have the coordinator's key of the study's roster.")
        return answer

    def _said(self, side: str) -> bytes:
        nonces = (self._theirs, self._nonce)
        return _statement(side, self._study, nonces, self._roster.coordinator, self._identity.public)


def series(version: str) -> str:
    """The part of a version that stays the same as long as studies are planned alike and promised in the same words.

    >>> series("0.2.0.dev0"), series("1.10.3")
    ('0.2', '1.10')
    """
    return ".".join(version.split(".")[:2])


def _short(version: str) -> str:
    return printable(version, 40)
