"""CAPE's noise mechanism: common noise, whose sum is subtracted from the total, and a party's own noise, which
stays."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unspoken.methods.planning.mechanisms import Mechanism, NoiseSource, Participation, drawn
from unspoken.noise.stream import SecretStream
from unspoken.privacy import correlated
from unspoken.privacy.guarantee import Trust
from unspoken.types import Flags, Words


@dataclass(frozen=True)
class CorrelatedNoise(Mechanism):
    """CAPE: open messages, each with common noise ê, whose sum becomes known, and a little noise g of the party's own.

    The sum of ê is made before the messages, or after them, over those who sent one. In the second order, messages of
    parties that are not in the sum are left out of the total, so that no ê stays in it.
    """

    in_the_open = True

    ratio: float = 1.0
    """The variance of the noise that is taken away over that of the noise that stays."""
    parties: int = 0
    known: int = 0
    dropouts: int = 0
    common: float = 0.0
    """The variance of ê, whose sum is taken away. That of a party who vanishes after the sum was made stays in the
    total: more noise, and no bias."""
    own: float = 0.0
    """The variance of g."""
    withheld: int = 0
    """Parties that were said to be in the sum of ê and may have been left out of it."""
    messages_first: bool = False
    """Whether the sum of ê is made after the messages, of those who sent one."""
    stronger: tuple[float, ...] = ()
    """For each party, the factor (1 or more) by which the variance that its adversary faces is to exceed the usual one.
    Empty: 1 for all."""

    @property
    def prepares(self) -> bool:  # type: ignore[override]
        return not self.messages_first

    @property
    def cancels(self) -> bool:  # type: ignore[override]
        return self.messages_first

    def sized(self, trust: Trust, adversary_variance: float, opens_noise: bool) -> CorrelatedNoise:
        common, own = correlated.integer_noise_for(adversary_variance, self.ratio, trust.honest_survivors)
        sized = replace(self, common=common, own=own, parties=trust.parties, known=trust.known)
        stronger = correlated.raised(self.stronger, self.ratio, trust.honest_survivors) if self.stronger else ()
        return replace(sized, dropouts=trust.dropouts, withheld=trust.withheld, stronger=stronger)

    def variances(self, index: int) -> tuple[float, float]:
        """The variances of ê and g of the party of this number."""
        if not self.stronger:
            return self.common, self.own
        return correlated.with_losses(*correlated.without_losses(self.common, self.own), self._factor(index).own)

    @property
    def _honest(self) -> int:
        """The fewest honest parties whose noise is in a total."""
        return self.parties - self.known - self.dropouts - self.withheld

    def _factor(self, index: int) -> correlated.Factor:
        """The factor of this party's noise variances, where parties have promises of their own."""
        return self._factors[self.stronger[index]]

    @cached_property
    def _factors(self) -> dict[float, correlated.Factor]:
        return correlated.factors_for(self.stronger, self.ratio, self._honest)

    def variance_for(self, index: int) -> float | None:
        if not self.stronger:
            return None
        return correlated.integer_adversary_variance(self.common, self.own, self._honest, *self._factor(index))

    def adversary_variance(self, there: Participation) -> float:
        # If a party is silent later, the adversary only sees one message less.
        return self.weakened(there.prepared - self.withheld, self.known)

    def weakened(self, present: int, known: int) -> float:
        return correlated.integer_adversary_variance(self.common, self.own, present - known)

    def adversary_variance_alone(self) -> float:
        return self.weakened(1, 0)

    def total(self, there: Participation) -> float:
        """Where parties have promises of their own, the most: the strictest leave their ê, and the least strict were
        never there."""
        if not self.stronger:
            return there.sent * self.own + (there.prepared - there.sent) * self.common
        from_all = sorted(self.variances(index) for index in range(self.parties))
        prepared = from_all[self.parties - there.prepared :]
        own = math.fsum(own for _, own in prepared[: there.sent])
        return own + math.fsum(common for common, _ in prepared[there.sent :])

    def total_of(self, prepared: Flags, sent: Flags) -> float:
        if not self.stronger:
            return super().total_of(prepared, sent)
        own = sum(self.variances(index)[1] for index in np.flatnonzero(sent).tolist())
        return own + sum(self.variances(index)[0] for index in np.flatnonzero(prepared & ~sent).tolist())

    @property
    def largest(self) -> float:
        left = 0.0 if self.messages_first else self.dropouts * max(self.variances(i)[0] for i in range(self.parties))
        return self.total(Participation(self.parties, self.parties)) + left

    @property
    def widest(self) -> float:
        """The largest deviation that a party draws noise with."""
        return math.sqrt(max(max(self.variances(index)) for index in range(self.parties)))

    def added(self, dimension: int, source: NoiseSource) -> Words:
        if source.common is None:
            raise RuntimeError("Expected the common noise that was prepared for the message.")
        own = drawn(self.variances(source.index)[1], dimension, source.secrets)
        return own + self.prepared(dimension, source.common, source.index)

    def prepared(self, dimension: int, common: SecretStream, index: int) -> Words:
        return drawn(self.variances(index)[0], dimension, common)

    def parts(self, scale: float, noise_std: float) -> dict[str, float]:
        """The paper's quantities: τ_e, τ_g, the correlation of two parties' noise given that the ê are taken away, the
        gain G over independent noise of the same promises (Proposition 1), and H, the variance of the total over that
        of one curator (Remark 3), if nobody vanishes. Totals are sums over records, so that G and H are the same for
        parties of any sizes. Where parties have promises of their own, τ_e, τ_g and the correlation are those of the
        parties that add least, and the curator's noise is for the strictest."""
        common = math.fsum(self.variances(index)[0] for index in range(self.parties))
        least, own = min(self.variances(index) for index in range(self.parties))
        shared = least * (1.0 - least / common)
        left = self.total(Participation(self.parties, self.parties))
        # The adversary's variance of each party: that of independent noise with its promise.
        alone = [self.variance_for(index) or (noise_std * scale) ** 2 for index in range(self.parties)]
        return {
            "tau_e": math.sqrt(shared) / scale,
            "tau_g": math.sqrt(own) / scale,
            "correlation": -least * (least / common) / (shared + own),
            "gain": math.fsum(alone) / left,
            "over_curator": left / max(alone),
        }

    def explained(self, parts: dict[str, float]) -> str:
        whose, two = "", "parties"
        if self.stronger:
            usual = "without a promise of their own" if min(self.stronger) == 1.0 else "that add least"
            whose, two = f" of parties {usual}", "of them"
        return (
            f"τ_e = {parts['tau_e']:.4g} cancels and τ_g = {parts['tau_g']:.4g} stays{whose}; the noise of two {two} "
            f"has the correlation {parts['correlation']:.3g}; the total's variance is that of independent noise over G "
            f"= {parts['gain']:.4g}, and H = {parts['over_curator']:.4g} times one curator's, for parties of any sizes"
        )

    def way(self, protocol: str) -> str:
        when = "then " if self.messages_first else ""
        return f"messages in the open, and {when}{protocol} for the sum of the noise that they have in common"

    def amount(self, nobody: float, most: float, dropouts: int) -> str:
        text = super().amount(nobody, most, dropouts)
        if dropouts and not self.messages_first:
            left = "one party vanishes" if dropouts == 1 else f"{dropouts:,} vanish"
            text += f", {'at most ' if self.stronger else ''}{most:.4g} if {left} between the noise and the messages"
        return text
