"""The privacy cost of a run as plain data: events, which add up to a spend.

A plan yields a `Spend`; `privacy.accounting` turns it, or the spends of many runs, into ε. Nothing here computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

Adjacency = Literal["replace", "add-remove"]
Sampling = Literal["poisson", "without-replacement"]
_NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """An event. It is a struct, so that a ledger can store it as it is."""


class Gaussian(_Event, frozen=True, tag="gaussian"):
    """A release as hard to attack as telling N(0, 1) from N(μ, 1)."""

    mu: _NotNegative
    count: _Count = 1


class SubsampledGaussian(_Event, frozen=True, tag="subsampled-gaussian"):
    """Gaussian sums over random subsets of the records: see `privacy.subsampled`."""

    noise_multiplier: _NotNegative
    rate: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
    sampling: Sampling
    count: _Count = 1


class PureLoss(_Event, frozen=True, tag="pure-loss"):
    """A release that is ε-private with δ = 0."""

    epsilon: _NotNegative


class Unprotected(_Event, frozen=True, tag="unprotected"):
    """A release without any privacy."""


Event = Gaussian | SubsampledGaussian | PureLoss | Unprotected


@dataclass(frozen=True)
class Spend:
    """Everything that one run releases about one protected unit."""

    events: tuple[Event, ...]
    group: int | None
    """The number of records protected together; None: all of a party's"""
    adjacency: Adjacency = "replace"
    slack: float = 0.0
    """The part of δ reserved for failures of the protocol and of the noise sampler"""


def together(spends: Sequence[Spend]) -> Spend:
    """The spend of several runs on the same records; all must have the same unit and adjacency."""
    kinds = {(spend.group, spend.adjacency) for spend in spends}
    if len(kinds) != 1:
        raise ValueError(f"Expected runs that protect the same unit in the same sense, got {sorted(map(str, kinds))}.")
    ((group, adjacency),) = kinds
    events = tuple(event for spend in spends for event in spend.events)
    return Spend(events, group, adjacency, sum(spend.slack for spend in spends))
