"""Addresses of parties and helpers: whose an address is, and its name in the study's roster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unspoken.study.sections import RosterSection


def address_of(party: int) -> str:
    return f"party:{party}"


def party_at(address: str) -> int:
    """The index of the party at an address."""
    return int(address.removeprefix("party:"))


def is_party(address: str) -> bool:
    """
    >>> is_party(address_of(3)), is_party("node:1"), is_party("coordinator")
    (True, False, False)
    """
    return address.startswith("party:")


def names_by_address(roster: RosterSection, helpers: Sequence[str]) -> dict[str, str]:
    """The names of parties and helpers, by address. `helpers` are the addresses that the plan has for these."""
    addresses = [*map(address_of, range(len(roster.parties))), *helpers]
    keys = [*roster.parties, *roster.helpers]
    return {address: roster.name_of(key) for address, key in zip(addresses, keys, strict=False)}
