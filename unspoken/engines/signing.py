"""Signatures of a certificate: what they cover, and whose they are.

A certificate's file has its signatures beside its content. They cover the content alone, as canonical JSON: keys in
order, no spaces. So the signatures still hold for a file that was reformatted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from unspoken.summation.base import COORDINATOR, Roster, address_of
from unspoken.summation.keys import Identity, is_signed

SIGNATURES = "signatures"
"""The key of the signatures in a certificate's file"""


@dataclass(frozen=True)
class Signature:
    """Someone's signature of a certificate. Key and signature are hexadecimal digits."""

    address: str
    key: str
    signature: str


def canonical(content: Mapping[str, Any]) -> bytes:
    """The bytes of a certificate that are signed."""
    signed = {key: value for key, value in content.items() if key != SIGNATURES}
    return json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parsed(text: str | bytes) -> Any:
    """The content of a certificate. It must be unambiguous: no key may occur twice, and numbers must be valid JSON.

    `ValueError` or `RecursionError` if the text is not a certificate's.
    """
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number, parse_float=_finite)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _finite(digits: str) -> float:
    return number if math.isfinite(number := float(digits)) else _no_number(digits[:40])


def _statement(content: bytes) -> bytes:
    return b"unspoken-1/certificate\n" + content


def sign(identity: Identity, content: bytes) -> bytes:
    """The identity's signature of a certificate, given as canonical JSON."""
    return identity.sign(_statement(content))


def signers(roster: Roster) -> dict[str, bytes]:
    """The keys of all who may sign, by their addresses: the coordinator and the parties."""
    parties = {address_of(index): bytes(key) for index, key in enumerate(roster.parties)}
    return {COORDINATOR: roster.coordinator, **parties}


def is_signature(key: bytes, content: bytes, signature: bytes) -> bool:
    """Whether this is the signature of a certificate by the owner of the key."""
    return is_signed(key, _statement(content), signature)


def valid(roster: Roster, content: bytes, given: Mapping[str, bytes]) -> list[Signature]:
    """Those of the signatures, by addresses, that are by members of the roster: the coordinator's first."""
    keys = signers(roster)
    return [
        Signature(address, key.hex(), given[address].hex())
        for address, key in keys.items()
        if address in given and is_signature(key, content, given[address])
    ]


def without(given: Mapping[str, bytes], signatures: Iterable[Signature]) -> tuple[str, ...]:
    """The addresses of those of the given signatures that are not among the valid ones."""
    known = {signature.address for signature in signatures}
    return tuple(address for address, made in given.items() if made and address not in known)


def with_signatures(content: Mapping[str, Any], signatures: Iterable[Signature]) -> dict[str, Any]:
    """The content of a certificate's file."""
    return {**content, SIGNATURES: [vars(signature) for signature in signatures]}
