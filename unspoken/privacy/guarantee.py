"""The promise: (ε, δ), for whom, against whom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unspoken.privacy.events import Adjacency
from unspoken.privacy.gaussian import advantage as gaussian_advantage


@dataclass(frozen=True)
class Trust:
    """Whom a guarantee holds against: `colluding` parties that pool what they know, while `dropouts` others vanish."""

    parties: int
    colluding: int
    dropouts: int
    enclaves: bool = False
    """Is the noise drawn where not even its own party can see it?"""
    withheld: int = 0
    """How many parties more than `dropouts` an adversary can keep out of a total, because not every helper sees all
    parties."""

    @property
    def known(self) -> int:
        """How many noise shares the adversary knows: a coalition its own, and so does a single curious party."""
        return 0 if self.enclaves else max(self.colluding, 1)

    @property
    def honest_survivors(self) -> int:
        """How many noise shares are in the smallest total that can open and are not known to the adversary:
        n − max(T, 1) − D, less what is withheld, since a party that is left out takes its share along."""
        return self.parties - self.known - self.dropouts - self.withheld

    @property
    def least_survivors(self) -> int:
        """With fewer parties than this in a total, it must not be revealed."""
        return self.parties - self.dropouts


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of everything that becomes public, and the trust it rests on.

    Neighbours are data sets in which one unit (a record, k records, or all records of a party) is replaced.
    """

    epsilon: float
    delta: float
    group: int | None
    """How many records are protected at once; None: all of a party's."""
    trust: Trust
    mu: float | None
    """The whole trade-off in one number: the release is as hard to attack as telling N(0, 1) from N(μ, 1). None for
    noise that is not Gaussian: then (ε, δ) is all there is."""
    assumptions: tuple[str, ...] = ()
    adjacency: Adjacency = "replace"
    seen: str = "the result"
    """What is public, in words that follow 'sees'"""
    advantage: float | None = None
    """δ at ε = 0, where it is known and μ is not: how much better than a coin flip the best attacker is."""
    slack: float = 0.0
    """What of δ is set aside for dice and draws, beside the trade-off of μ or of the advantage"""

    @property
    def unit(self) -> str | dict[str, int]:
        if self.group is None:
            return "party"
        return "record" if self.group == 1 else {"group": self.group}

    @property
    def is_promise(self) -> bool:
        """Is anything promised at all?"""
        return math.isfinite(self.epsilon)

    @property
    def attack_success(self) -> float:
        """How often, at best, an attacker who knows all else is right about which of two neighbours was used."""
        if self.mu is not None:
            return min(1.0, (1.0 + gaussian_advantage(self.mu) + self.slack) / 2.0)
        if self.advantage is not None:
            return min(1.0, (1.0 + self.advantage + self.slack) / 2.0)
        # For (ε, δ) alone: 1/(1 + e^−ε), and δ more.
        return min(1.0, 1.0 / (1.0 + math.exp(-self.epsilon)) + self.delta)

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon if self.is_promise else None,
            "delta": self.delta,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "colluding": self.trust.colluding,
            "dropouts": self.trust.dropouts,
            "mu": self.mu,
            "attack_success": self.attack_success,
            "assumptions": list(self.assumptions),
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """The guarantee in plain words."""
        if not self.is_promise:
            return "No privacy is promised: the result is computed from all records, without noise."
        protected = {1: "one record", None: "all records of one party"}.get(self.group, f"any {self.group} records")
        accomplices = (
            f"even together with {self.trust.colluding:,} of the {self.trust.parties:,} parties"
            if self.trust.colluding
            else "even if it is one of the parties"
        )
        changed = "replaced by something else" if self.adjacency == "replace" else "left out or put in"
        promise = (
            f"Whoever sees {self.seen}, {accomplices}, and tries to find out whether {protected} had been {changed} "
            f"guesses right at most {100 * self.attack_success:.1f} times in 100 (a coin flip: 50), "
            f"even knowing all the other data: epsilon = {self.epsilon:.4g}, delta = {self.delta:.4g}"
        )
        if self.assumptions:
            promise += "; this assumes that " + "; that ".join(self.assumptions)
        return promise + "."
