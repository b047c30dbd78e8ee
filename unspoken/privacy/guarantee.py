"""The guarantee: (ε, δ), the protected unit, and the trust it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unspoken.privacy.events import Adjacency
from unspoken.privacy.gaussian import advantage as gaussian_advantage


@dataclass(frozen=True)
class Trust:
    """The adversary that a guarantee holds against: `colluding` parties pool what they know, and `dropouts` others
    vanish."""

    parties: int
    colluding: int
    dropouts: int
    enclaves: bool = False
    """Whether noise is drawn where not even its own party can see it"""
    withheld: int = 0
    """The number of survivors that an adversary can leave out of a total unnoticed"""
    lying: bool = False
    """Whether the coordinator may deviate from the protocol in any way"""

    @property
    def known(self) -> int:
        """The number of noise shares that the adversary knows: the coalition's, or a single curious party's own.

        With enclaves these are the shares of enclaves that were broken into.
        """
        return self.colluding if self.enclaves else max(self.colluding, 1)

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
    attempts: int = 1
    """The number of times that a party may send its vector for one sum: all of them are counted"""

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
        """The success rate of the best attacker who knows everything else and guesses which of two neighbouring data
        sets was used."""
        if self.mu is not None:
            return min(1.0, (1.0 + gaussian_advantage(self.mu) + self.slack) / 2.0)
        if self.advantage is not None:
            return min(1.0, (1.0 + self.advantage + self.slack) / 2.0)
        # From (ε, δ) alone: 1/(1 + e^−ε) + δ.
        return min(1.0, 1.0 / (1.0 + math.exp(-self.epsilon)) + self.delta)

    @property
    def guesses(self) -> str:
        """Of 100 guesses, how many are right at most: to a tenth, rounded up.

        >>> Guarantee(1.0, 1e-6, 1, Trust(9, 0, 0), mu=0.001).guesses
        '50.1'
        """
        return f"{math.ceil(1000.0 * self.attack_success) / 10.0:.1f}"

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon if self.is_promise else None,
            "delta": self.delta,
            "unit": self.unit,
            "adjacency": self.adjacency,
            "colluding": self.trust.colluding,
            "dropouts": self.trust.dropouts,
            "attempts": self.attempts,
            "coordinator": "lying" if self.trust.lying else "curious",
            "mu": self.mu,
            "attack_success": self.attack_success,
            "assumptions": list(self.assumptions),
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """The guarantee in plain words."""
        if not self.is_promise and (self.mu is not None or self.advantage is not None):
            return f"No privacy is promised: the noise in {self.seen} is too little to prove any epsilon at this delta."
        if not self.is_promise:
            return "No privacy is promised: the result is computed from all records, without noise."
        protected = unit_in_words(self.group)
        liar = "a lying coordinator" if self.trust.lying else ""
        accomplices = f"together with {self.trust.colluding:,} of the {self.trust.parties:,} parties"
        if not self.trust.colluding:
            accomplices = "or one of the parties" if liar else "if it is one of the parties"
        accomplices = " ".join(part for part in ("even", liar, accomplices) if part)
        if self.trust.parties == 1:
            accomplices = "except the only party itself, whose noise it is"
        changed = "replaced by something else" if self.adjacency == "replace" else "left out or put in"
        promise = (
            f"Whoever sees {self.seen}, {accomplices}, and tries to find out whether {protected} had been {changed} "
            f"guesses right at most {self.guesses} times in 100 (a coin flip: 50), "
            f"even knowing all the other data{self._tries()}: epsilon = {self.epsilon:.4g}, delta = {self.delta:.4g}"
        )
        if self.assumptions:
            promise += "; this assumes that " + "; that ".join(self.assumptions)
        return promise + "."

    def _tries(self) -> str:
        often = f"{self.attempts} times"
        return "" if self.attempts == 1 else f", and even if each party has to send its part of each sum {often}"


def unit_in_words(group: int | None) -> str:
    """The protected unit, from the number of its records; None: all of a party's.

    >>> unit_in_words(1), unit_in_words(5), unit_in_words(None)
    ('one record', 'any 5 records', 'all records of one party')
    """
    return "all records of one party" if group is None else "one record" if group == 1 else f"any {group:,} records"
