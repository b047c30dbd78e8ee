"""The privacy of correlated noise: CAPE (Imtiaz, Mohammadi & Sarwate 2019), with its Theorem 1 corrected.

Setting. Site s publishes the message f_s + ê_s + g_s, where f_s is computed from its records, ê_s is its *common* noise
of variance a, and g_s its *own* noise of variance b. The sum of all ê is public: it comes from a secure sum, and the
coordinator subtracts it from the sum of the messages. Colluding sites pool what they know, so the adversary knows their
noise. Of the h honest sites it sees the messages and the sum of their ê. The functions below give μ for a change of f
by a vector of L2 norm v at one honest site: the view is as private as telling N(0, 1) from N(μ, 1) is hard.

Noise first. The sum of ê is made before the messages. Given this sum, the noise in the honest messages has covariance
a(I − 11ᵀ/h) + bI: variance b along the vector 1, and a + b across it. So

    μ² = v² [ 1/(h·b) + (1 − 1/h)/(a + b) ].

With the paper's a = τ² and b = τ²/S for S sites this is (v²/τ²) · S/(S+1) · (1 + S/h). (The paper's Theorem 1 treats
the colluders' noise as unknown and inverts the covariance wrongly: for S = 10 sites, 3 of them colluding, it states
1.296 v²/τ² where 2.208 is true.) For a → ∞ it becomes v²/(h·b), the μ² of a secure sum.

Messages first. The messages come first, and then the sum of ê over the set U of sites that are still there. Each ê is
in at most one such sum. U may depend on the messages, since a lying coordinator chooses it. The μ² is the same as
above, with h the smallest number of honest sites that U can have:

1. A message by itself is a Gaussian mechanism of variance a + b. It costs v²/(a + b).
2. Given all messages m, the ê are independent, because ê_s depends on the message of s only. Each is a Gaussian of mean
   (m_s − f_s)·a/(a + b) and variance ab/(a + b). So the sum over U is a Gaussian of variance h·ab/(a + b), whatever m
   is, and a change v at one site of U moves its mean by v·a/(a + b). It costs v²·a/((a + b)·h·b).
3. Gaussian mechanisms compose adaptively by adding up μ² (Dong, Roth & Su 2022, Corollary 3.3). Both costs together are
   v²/(a + b) · [1 + a/(h·b)], which equals the μ² above. A site outside of U pays for step 1 only.

This holds for any order of messages and sums in which each site's ê is summed at most once, and after its message; for
several sums over disjoint sets of sites; and for changes at several sites whose norms add up to v, because μ² is convex
in the changes and so largest when all of v is at one site.

Sites with promises of their own (Remark 3 of the paper). A site that wants more privacy takes k times the variances, ka
and kb. Let w = ab/(a + b). If the other h − 1 honest sites have at least a and b each, the sum in step 2 hides this
site's ê under variance (k + h − 1)·w, so

    μ² = v² [ 1/(k(a + b)) + (a/(a + b))²/((k + h − 1)·w) ].

The other sites lose nothing: whoever colludes, their h − 1 honest partners have at least a and b each. With the noise
first the result is the same: it is one entry of the inverse of diag(a + b) − aaᵀ/Σa.

If several sites want more privacy, each counts on the noise of the others as well. In general h − 1 partners with the
factors k_j hide ê under (k + Σk_j)·w, so Σk_j takes the place of h − 1. The smaller Σk_j is, the larger is μ², so at
worst the h − 1 other sites with the smallest factors are left. Let r sites want less than this one, whose factors are
known by then. If r ≥ h − 1, the smallest h − 1 of these are left; if not, all r of them and h − 1 − r others, whose
factors are k or more. Both give a lower bound on Σk_j, and k follows from it (`factors_for`). The factors come out in
the order of the wishes: at this site's k the next one up has the same bound.

Two strict sites cannot count on each other if one of them may collude, and each hides the total alone. If everyone adds
a share, less noise is enough. So the sites that want less are raised to one of the wishes, where this leaves less noise
in the total (`raised`).

Formal guarantee for integer noise, noise first. All ê and g are discrete Gaussians. The view (messages, sum of ê) is a
linear image of them onto ℤ^(h+1), with the kernel {(k, −k): Σk = 0}. For variances of 64 and more, it is a discrete
Gaussian of covariance C up to a factor 1 ± 2⁻⁴⁰⁰ (Micciancio & Peikert 2013, for lattices). As in `privacy.integer`, it
is post-processing of a continuous Gaussian of covariance C − r²I with r = 2.5. Since C(a, b) − r²I ≥ C(a − 2r², b −
3r²) for any h, the formula holds with A = a − 2r² and B = b − 3r² in place of a and b.

Formal guarantee for integer noise, messages first, for a ≥ 0.9·b. A message is an integer plus two discrete Gaussians.
It costs v²/(a + b − r²) ≤ v²/(A + B). Given the messages, each ê is exactly a discrete Gaussian of variance w = ab/(a +
b) ≥ 30 around a real centre, and their sum is one of variance h·w up to a factor 1 ± h·4·exp(−π²w), which is within
h·2⁻⁴²⁰ of 1. For any centre this sum is the random rounding of a continuous Gaussian of variance h·w − r², so it costs
(v·a/(a + b))²/(h·w − r²) = v²·a/((a + b)·(h·b − r²(a + b)/a)). As (a + b)/a ≤ 3 and 3a ≥ 2b, this is at most v²·A/((A +
B)·h·B). So neither step costs more than the formula says with A and B. For sites with different variances: each w loses
at least 1.2·r² from (a, b) to (A, B), and the joint covariance of messages and sum is linear in all a and b.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from unspoken.privacy.integer import LOST_VARIANCE

_LOST_COMMON, _LOST_OWN = 2.0 * LOST_VARIANCE, 3.0 * LOST_VARIANCE
_MOST_LEVELS = 16
"""The number of wishes that the others are tried to be raised to"""


def correlated_mu(change: float, common: float, own: float, honest: int) -> float:
    """μ for a change of L2 norm `change` at one of `honest` sites; `common` and `own` are variances.

    >>> tau, sites, colluding = 1.0, 10, 3
    >>> round(correlated_mu(1.0, tau**2, tau**2 / sites, sites - colluding) ** 2, 3)
    2.208
    """
    return change / math.sqrt(adversary_variance(common, own, honest))


def adversary_variance(
    common: float, own: float, honest: int, factor: float = 1.0, partners: float | None = None
) -> float:
    """The variance of a single Gaussian that gives the same μ: 1 / [1/(h·b) + (1 − 1/h)/(a + b)].

    `factor` is k: the protected site's variances are k times a and b. `partners` is the sum of the factors of the other
    honest sites; None: h − 1, for sites with a and b.

    >>> adversary_variance(4.0, 1.0, 3) == 1.0 / (1.0 / 3.0 + (2.0 / 3.0) / 5.0)
    True
    """
    if honest < 1:
        raise ValueError(f"Expected honest >= 1, got honest={honest}.")
    others = honest - 1.0 if partners is None else partners
    if factor == 1.0 and others == honest - 1.0:
        return 1.0 / (1.0 / (honest * own) + (1.0 - 1.0 / honest) / (common + own))
    shared = common / (common + own)
    return 1.0 / (1.0 / (factor * (common + own)) + shared / ((factor + others) * own))


class Factor(NamedTuple):
    """What a site with a promise of its own adds, and what it counts on."""

    own: float
    """k, for its variances"""
    partners: float
    """The least sum of the factors of the other honest sites in a sum of ê"""


@lru_cache(maxsize=64)
def factors_for(stronger: tuple[float, ...], ratio: float, honest: int) -> dict[float, Factor]:
    """The factors of sites whose adversaries are to face `stronger` (1 or more) times the usual variance, by these
    numbers; a = ratio·b, and at least `honest` honest sites are in a sum of ê.

    >>> factors_for((1.0, 1.0, 4.0, 1.0), 5.0, 3)[1.0]
    Factor(own=1.0, partners=2.0)
    >>> factor = factors_for((1.0, 1.0, 4.0, 1.0), 5.0, 3)[4.0]
    >>> round(adversary_variance(5.0, 1.0, 3, *factor) / adversary_variance(5.0, 1.0, 3), 9)
    4.0
    >>> round(factors_for((4.0, 4.0, 4.0, 4.0), 5.0, 3)[4.0].own, 9)  # as if all had asked for it together
    4.0
    """
    usual, found, smaller = adversary_variance(ratio, 1.0, honest), dict[float, Factor](), list[float]()
    for wish, count in sorted(Counter(stronger).items()):
        least, alike = math.fsum(smaller[: honest - 1]), max(0, honest - 1 - len(smaller))
        own = 1.0 if wish <= 1.0 else _own_factor(wish * usual, ratio, honest, least, alike)
        found[wish] = Factor(own, least + alike * own)
        smaller += [own] * min(count, honest)
    return found


def _own_factor(wanted: float, ratio: float, honest: int, least: float, alike: int) -> float:
    """The k at which a site's adversary faces this variance, if its partners' factors add up to least + alike·k."""

    def missing(k: float) -> float:
        return adversary_variance(ratio, 1.0, honest, k, least + alike * k) - wanted

    # At k = wanted the site's own noise (b = 1) suffices alone, so the root lies below.
    return float(brentq(missing, 1.0, 2.0 + wanted, rtol=1e-12))


@lru_cache(maxsize=64)
def raised(stronger: tuple[float, ...], ratio: float, honest: int) -> tuple[float, ...]:
    """The wishes, with the lower ones raised to the one of them with which the total has the least noise.

    Of many wishes only some are tried. A level between two of them may serve a little better.

    >>> raised((1.0, 1.0, 1.0, 4.0), 5.0, 3), raised((1.0, 1.0, 4.0, 4.0), 5.0, 3)
    ((1.0, 1.0, 1.0, 4.0), (4.0, 4.0, 4.0, 4.0))
    """

    def in_all(wishes: tuple[float, ...]) -> float:
        factors = factors_for(wishes, ratio, honest)
        return math.fsum(count * factors[wish].own for wish, count in Counter(wishes).items())

    distinct = sorted(set(stronger))
    tried = {distinct[round(place)] for place in np.linspace(0, len(distinct) - 1, min(len(distinct), _MOST_LEVELS))}
    return min((tuple(max(wish, level) for wish in stronger) for level in sorted(tried)), key=in_all)


def noise_for(variance: float, ratio: float, honest: int) -> tuple[float, float]:
    """The inverse of `adversary_variance`: variances (a, b), a = ratio·b, that protect like a Gaussian of this
    variance.

    >>> common, own = noise_for(10.0, 4.0, 3)
    >>> round(common / own, 9), round(adversary_variance(common, own, 3), 9)
    (4.0, 10.0)
    """
    own = variance * (1.0 / honest + (1.0 - 1.0 / honest) / (ratio + 1.0))
    return ratio * own, own


def integer_noise_for(variance: float, ratio: float, honest: int) -> tuple[float, float]:
    """Variances of integer noise that protect like a continuous Gaussian of variance `variance`."""
    return with_losses(*noise_for(variance, ratio, honest))


def with_losses(common: float, own: float, factor: float = 1.0) -> tuple[float, float]:
    """The variances of integer noise that protects like continuous noise of `factor` times these variances."""
    return factor * common + _LOST_COMMON, factor * own + _LOST_OWN


def without_losses(common: float, own: float) -> tuple[float, float]:
    """The inverse: the variances of continuous noise that protects like integer noise of these variances."""
    return common - _LOST_COMMON, own - _LOST_OWN


def integer_adversary_variance(
    common: float, own: float, honest: int, factor: float = 1.0, partners: float | None = None
) -> float:
    """The variance of a continuous Gaussian that protects no better than integer noise of these variances.

    `factor` is k, for a site whose noise is worth k times these, and `partners` as in `adversary_variance`.
    """
    return adversary_variance(*without_losses(common, own), honest, factor, partners)
