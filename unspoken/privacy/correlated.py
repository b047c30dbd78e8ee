"""The privacy of correlated noise: CAPE (Imtiaz, Mohammadi & Sarwate 2019), with its Theorem 1 corrected.

Site s publishes f_s + ê_s + g_s, and the sum of all ê is public: the sites learn it from a secure sum and the
aggregator subtracts it. ê has variance a (the common noise), g has variance b (a site's own). An adversary who knows
the colluding sites' noise sees the messages of the h honest sites and the sum of their ê. Given that sum, the noise of
their messages has the covariance a(I − 11ᵀ/h) + bI: variance b along 1, a + b across it. So a change v at one site has

    μ² = v² [ 1/(h·b) + (1 − 1/h)/(a + b) ],

and with the paper's a = τ², b = τ²/S that is (v²/τ²) · S/(S+1) · (1 + S/h). (The paper's Theorem 1 treats the
colluders' noise as unknown and inverts the covariance wrongly: for S = 10 sites, 3 colluding, it states 1.296 v²/τ²
where 2.208 is true.) With a → ∞ it is v²/(h·b), that of a secure sum.

The other order. Site s publishes f_s + ê_s + g_s first, and the sum of ê is made afterwards, of the sites U that are
still there; each ê is in one such sum at most. Who is in U may depend on the messages: a lying coordinator chooses it.
This costs nothing. Write h for the honest sites in U.

1. A message by itself is a Gaussian mechanism of variance a + b: v²/(a + b).
2. Given all messages m, the ê are independent Gaussians, of mean (m_s − f_s)·a/(a + b) and variance ab/(a + b), since
   the ê of s depends on the message of s only. So the sum over U is a Gaussian of variance h·ab/(a + b), whatever m,
   and a change v at one site of U moves its mean by v·a/(a + b): v²·a/((a + b)·h·b).
3. Gaussian mechanisms compose adaptively by adding up μ² (Dong, Roth & Su 2022, Corollary 3.3):
   v²/(a + b) · [1 + a/(h·b)], the μ² above, for the smallest h that may be in a sum. A site outside of U has
   step 1 only.

The same holds for any order of messages and sums in which a site's ê comes after its message and once, for several sums
over sites that have none in common, and for a change at several sites: μ² is convex in the changes, so that the sum of
their norms is best spent at one site.

A promise of each site's own (Remark 3 of the paper). A site that wants more takes k times the variances, ka and kb.
With w = ab/(a + b), the second step is under noise of variance (k + h − 1)·w for this site, if each of the other h − 1
honest ones has at least a and b; so

    μ² = v² [ 1/(k(a + b)) + (a/(a + b))²/((k + h − 1)·w) ].

For the others nothing is lost: their h − 1 have at least a and b, whoever colludes. The same is the view of the first
order: given the sum of ê, one entry of the inverse of diag(a + b) − aaᵀ/Σa.

Formal guarantee for integer noise. All ê and g are discrete Gaussians. The view (messages, sum of ê) is an integer
image of them onto all of ℤ^(h+1), whose kernel {(k, −k): Σk = 0} is so fine against variances of 64 and more that the
view is a discrete Gaussian of covariance C up to a factor 1 ± 2⁻⁴⁰⁰ (Micciancio & Peikert 2013, for lattices). As in
`privacy.integer`, that is post-processing of a continuous Gaussian of covariance C − r²I, r = 2.5, and C(a, b) − r²I ≥
C(a − 2r², b − 3r²) for any h, so the formula holds for the noise that is left of a − 2r² and b − 3r².

In the other order, with A = a − 2r², B = b − 3r² and a ≥ 0.9·b: a message is an integer under the sum of two discrete
Gaussians, and costs v²/(a + b − r²) ≤ v²/(A + B). Given the messages, each ê is exactly a discrete Gaussian of variance
w = ab/(a + b) ≥ 30 around a real centre, and their sum one of variance h·w up to a factor 1 ± h·4·exp(−π²w), which is
below h·2⁻⁴²⁰. Rounding a continuous Gaussian of variance h·w − r² at random gives it for any centre, so it costs
(v·a/(a + b))²/(h·w − r²) = v²·a/((a + b)·(h·b − r²(a + b)/a)). As (a + b)/a ≤ 3 and 3a ≥ 2b, this is at most
v²·A/((A + B)·h·B): both steps cost no more than with A and B in the formula. With several variances: each w loses at
least 1.2·r² from (a, b) to (A, B), and the joint covariance of messages and sum is linear in all a and b.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.optimize import brentq

from unspoken.privacy.integer import LOST_VARIANCE

_LOST_COMMON, _LOST_OWN = 2.0 * LOST_VARIANCE, 3.0 * LOST_VARIANCE


def correlated_mu(change: float, common: float, own: float, honest: int) -> float:
    """μ for a change of L2 norm `change` at one of `honest` sites; `common` and `own` are variances.

    >>> tau, sites, colluding = 1.0, 10, 3
    >>> round(correlated_mu(1.0, tau**2, tau**2 / sites, sites - colluding) ** 2, 3)
    2.208
    """
    return change / math.sqrt(adversary_variance(common, own, honest))


def adversary_variance(common: float, own: float, honest: int, factor: float = 1.0) -> float:
    """The variance of a single Gaussian that protects as well: 1 / [1/(h·b) + (1 − 1/h)/(a + b)].

    `factor` is k, of the protected site's variances over those of the others.

    >>> adversary_variance(4.0, 1.0, 3) == 1.0 / (1.0 / 3.0 + (2.0 / 3.0) / 5.0)
    True
    """
    if honest < 1:
        raise ValueError(f"Expected honest >= 1, got honest={honest}.")
    if factor == 1.0:
        return 1.0 / (1.0 / (honest * own) + (1.0 - 1.0 / honest) / (common + own))
    shared = common / (common + own)
    return 1.0 / (1.0 / (factor * (common + own)) + shared / ((factor + honest - 1) * own))


@lru_cache(maxsize=1024)
def factor_for(stronger: float, ratio: float, honest: int) -> float:
    """The factor k by which a site's adversary has `stronger` times the variance of the others', from 1; a = ratio·b.

    >>> factor_for(1.0, 5.0, 4)
    1.0
    >>> k = factor_for(4.0, 5.0, 4)
    >>> round(adversary_variance(5.0, 1.0, 4, k) / adversary_variance(5.0, 1.0, 4), 9)
    4.0
    """
    if stronger <= 1.0:
        return 1.0
    wanted = stronger * adversary_variance(ratio, 1.0, honest)
    # All of the site's own noise is enough, and with it 1/(1 + ratio) of that.
    return float(brentq(lambda k: adversary_variance(ratio, 1.0, honest, k) - wanted, 1.0, 2.0 + wanted, rtol=1e-12))


def noise_for(variance: float, ratio: float, honest: int) -> tuple[float, float]:
    """The inverse: variances (a, b), a = ratio·b, that protect like a Gaussian of variance `variance`.

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
    """Variances of integer noise that are worth these ones, `factor` times."""
    return factor * common + _LOST_COMMON, factor * own + _LOST_OWN


def without_losses(common: float, own: float) -> tuple[float, float]:
    """The inverse: what integer noise of these variances is worth."""
    return common - _LOST_COMMON, own - _LOST_OWN


def integer_adversary_variance(common: float, own: float, honest: int, factor: float = 1.0) -> float:
    """The variance of a continuous Gaussian that protects no better than integer noise of these variances.

    `factor`: for a site whose noise is worth that many times as much.
    """
    return adversary_variance(*without_losses(common, own), honest, factor)
