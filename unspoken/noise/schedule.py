"""Noise shares that suit any number of dropouts: each has removable components, and those not needed are removed.

A share must be large enough for the worst allowed dropout, so a run with fewer dropouts carries too much noise. After
Jiang et al. (XNoise): a party's share is a base that suffices if nobody drops out, plus components. Once the survivors
are known, the seeds of unneeded components are opened, and the coordinator subtracts that noise. XNoise has one
component for each possible dropout; here they halve, E/2, E/4, … of the removable variance E, so that six come within
1/64 of E for any number of dropouts.

The coordinator must draw the same noise from an opened seed as its party did, and all messages are bound to the same
schedule. But machines may differ in the last bits of a floating-point number (a logarithm, say). So variances are
rounded up to a few bits, once, here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

COMPONENTS = 6
_BITS = 26
"""The significant bits of a variance; each rounding raises a deviation by at most 2⁻²⁶ of itself."""
_MARGIN = 2.0**-40
"""The relative amount added before rounding. Without it, a number of few bits, such as a power of two, would lie
exactly on a rounding boundary, where an error in the last bit changes the result."""


@dataclass(frozen=True)
class NoiseSchedule:
    """The variances of a party's noise, in squared units of the encoding."""

    parties: int
    known: int
    """The number of survivors whose shares do not count, because the adversary knows them or can leave them out
    unnoticed"""
    absent: int
    """The number of parties that may drop out"""
    needed: float
    """The variance that the honest survivors' noise must have in total"""
    base: float
    components: tuple[float, ...]

    @classmethod
    def plan(cls, parties: int, known: int, absent: int, needed: float, least: float) -> NoiseSchedule:
        """A schedule that keeps `needed` for any allowed number of survivors; no part has a variance below `least`.

        Only `needed` may differ between machines, in its last bits. Once it is rounded, everything else follows by
        additions, divisions and comparisons, which are the same everywhere.
        """
        needed = rounded_up(needed)
        most = needed / (parties - known - absent)
        removable = _to_few_bits(most - min(most, max(least, needed / (parties - known))))
        components = [removable / 2.0**level for level in range(1, COMPONENTS + 1)]
        while components and components[-1] < least:
            components.pop()
        return cls(parties, known, absent, needed, _to_few_bits(most - sum(components)), tuple(components))

    @property
    def exact(self) -> tuple[int, ...]:
        """The schedule as integers; each variance as mantissa and exponent of two."""
        variances = [_mantissa_and_exponent(variance) for variance in (self.needed, self.base, *self.components)]
        return (self.parties, self.known, self.absent, *(number for pair in variances for number in pair))

    @property
    def whole(self) -> float:
        """The variance of a share with all its components."""
        return self.base + sum(self.components)

    def opened(self, survivors: int) -> tuple[int, ...]:
        """The components that can be opened when so many parties survive, without going below `needed`."""
        if survivors < self.parties - self.absent or survivors > self.parties:
            return ()
        spare = self.whole - self.needed / (survivors - self.known)
        chosen = []
        for number, variance in enumerate(self.components):
            # A margin, so that rounding errors never open a component that is still needed.
            if variance <= spare * (1.0 - 1e-9):
                chosen.append(number)
                spare -= variance
        return tuple(chosen)

    def kept(self, survivors: int) -> float:
        """The variance that remains of each survivor's share."""
        return self.whole - sum(self.components[number] for number in self.opened(survivors))

    @property
    def largest_total(self) -> float:
        """The largest variance of a total after opening, over all numbers of survivors.

        The largest may occur with some parties missing: a survivor's remaining share falls in steps as the number of
        survivors grows, and between two steps the total's variance grows.
        """
        found, survivors = 0.0, range(self.parties - self.absent, self.parties + 1)
        while survivors:
            kept = self.kept(survivors[0])
            step = bisect_right(survivors, -kept, key=lambda count: -self.kept(count))
            found, survivors = max(found, kept * survivors[step - 1]), survivors[step:]
        return found


def rounded_up(variance: float) -> float:
    """A number of 26 significant bits that is larger by at most 2⁻²⁵ of itself, and never smaller.

    Numbers that differ by a few units in the last place give the same result, unless a boundary lies between them,
    which has a probability of about 2⁻²⁶ a unit.

    >>> rounded_up(1.0), rounded_up(0.1) == rounded_up(0.1 + 1e-17) >= 0.1
    (1.0000000298023224, True)
    """
    return _to_few_bits(variance * (1.0 + _MARGIN))


def _to_few_bits(value: float) -> float:
    """The value rounded up to 26 significant bits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.ceil(math.ldexp(mantissa, _BITS)), exponent - _BITS)


def _mantissa_and_exponent(value: float) -> tuple[int, int]:
    """Integers m (odd, or zero) and e with value = m·2ᵉ.

    >>> _mantissa_and_exponent(12.0), _mantissa_and_exponent(0.75), _mantissa_and_exponent(0.0)
    ((3, 2), (3, -2), (0, 0))
    """
    numerator, denominator = value.as_integer_ratio()
    exponent = (numerator & -numerator).bit_length() - 1 if numerator else 0
    return numerator >> exponent, exponent - denominator.bit_length() + 1
