"""The guarantee: (ε, δ), the protected unit, and the trust it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unspoken.privacy.events import Adjacency
from unspoken.privacy.gaussian import advantage as gaussian_advantage


@dataclass(frozen=True)
class Trust:
    """The adversary of a guarantee: `colluding` parties that pool what they know, while `dropouts` others vanish."""

    parties: int
    colluding: int
    dropouts: int
    enclaves: bool = False
    """Whether noise is drawn where not even its own party can see it"""
    withheld: int = 0
    """Parties beyond `dropouts` that an adversary can keep out of a total, because not every helper sees all parties"""

    @property
    def known(self) -> int:
        """The number of noise shares that the adversary knows: the coalition's, or a single curious party's own."""
        return 0 if self.enclaves else max(self.colluding, 1)

    @property
    def honest_survivors(self) -> int:
        """The number of noise shares unknown to the adversary in the smallest total that can open.

        This is n − max(T, 1) − D minus `withheld`, as a party that is left out takes its share along.
        """
        return self.parties - self.known - self.dropouts - self.withheld

    @property
    def least_survivors(self) -> int:
        """The smallest number of parties in a total that may be revealed."""
        return self.parties - self.dropouts


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy of everything that becomes public, and the trust it rests on.

    Neighbours are data sets in which one unit (a record, k records, or all records of a party) is replaced.
    """

    epsilon: float
    delta: float
    group: int | None
    """The number of records protected together; None: all of a party's"""
    trust: Trust
    mu: float | None
    """The release is as hard to attack as telling N(0, 1) from N(μ, 1). None if the noise is not Gaussian."""
    assumptions: tuple[str, ...] = ()
    adjacency: Adjacency = "replace"
    seen: str = "the result"
    """The public output, as a phrase that follows 'sees'"""
    advantage: float | None = None
    """δ at ε = 0, the best attacker's advantage over a coin flip, where it is known and μ is not"""
    slack: float = 0.0
    """The part of δ reserved for failures of protocol and sampler, on top of μ or the advantage"""

    @property
    def unit(self) -> str | dict[str, int]:
        if self.group is None:
            return "party"
        return "record" if self.group == 1 else {"group": self.group}

    @property
    def is_promise(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.epsilon)

    @property
    def attack_success(self) -> float:
        """The best success rate of an attacker who knows all else in guessing which of two neighbours was used."""
        if self.mu is not None:
            return min(1.0, (1.0 + gaussian_advantage(self.mu) + self.slack) / 2.0)
        if self.advantage is not None:
            return min(1.0, (1.0 + self.advantage + self.slack) / 2.0)
        # From (ε, δ) alone: 1/(1 + e^−ε) + δ.
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
