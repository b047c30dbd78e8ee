"""The conditions of a simulated run, the same for every engine: who vanishes and when, and where secrets come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unspoken.engines.journal import Journal
from unspoken.methods.base import Collect, Request, Tokens, ZeroSum
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream

Progress = Callable[[str, int, int], None]
"""Called with the present activity, the number of parties that are done, and the number of all parties"""


@dataclass(frozen=True)
class Conditions:
    """How a simulation runs, whatever its study and its engine are."""

    drop: int = 0
    """The number of parties that vanish while they send"""
    seed: int = 0
    """The public seed that chooses them"""
    progress: Progress | None = None
    secrets: SecretStream | None = None
    """The source of all secret randomness: the operating system, unless a test injects a stream"""
    journal: Journal | None = None
    """The journal from which an interrupted run resumes where it stopped. It has its own source of secrets."""

    def vanishing(self, parties: int) -> list[int]:
        """Those of so many parties that vanish."""
        return [int(party) for party in np.random.default_rng(self.seed).permutation(parties)[: self.drop]]


USUAL = Conditions()
"""The default: nobody vanishes, no progress is reported, and there is no journal."""


def vanishing_at(plan: Plan, request: Request, vanishing: list[int]) -> list[int]:
    """Which of the vanishing parties vanish at this request. Messages with common noise take two requests; half of the
    parties vanish at the first."""
    half = vanishing[: len(vanishing) // 2]
    match request:
        case Tokens():
            return []
        case ZeroSum():
            return half
        case Collect(only=only) if only is not None:
            return []
        case Collect(name) if plan.sum_named(name).noise.cancels:
            return half
        case _:
            return vanishing


def early_and_late(vanishing: list[int], setup_stages: int) -> tuple[set[int], set[int]]:
    """Half of those who vanish do so in the setup, if there is one; the others while they send their vectors."""
    early = len(vanishing) // 2 if setup_stages else 0
    return set(vanishing[:early]), set(vanishing[early:])
