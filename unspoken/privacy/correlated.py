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
    """The variance of a single Gaussian that gives the same μ: 1 / [1/(h·b) + (1 − 1/h)/(a + b)].

    `factor` is k: the protected site's variances are k times those of the others.

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
    """The factor k ≥ 1 with which a site's `adversary_variance` is `stronger` times that of the others; a = ratio·b.

    >>> factor_for(1.0, 5.0, 4)
    1.0
    >>> k = factor_for(4.0, 5.0, 4)
    >>> round(adversary_variance(5.0, 1.0, 4, k) / adversary_variance(5.0, 1.0, 4), 9)
    4.0
    """
    if stronger <= 1.0:
        return 1.0
    wanted = stronger * adversary_variance(ratio, 1.0, honest)
    # At k = wanted the site's own noise (b = 1) suffices alone, so the root lies below.
    return float(brentq(lambda k: adversary_variance(ratio, 1.0, honest, k) - wanted, 1.0, 2.0 + wanted, rtol=1e-12))


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


def integer_adversary_variance(common: float, own: float, honest: int, factor: float = 1.0) -> float:
    """The variance of a continuous Gaussian that protects no better than integer noise of these variances.

    `factor` is k, for a site whose noise is worth k times that of the others.
    """
    return adversary_variance(*without_losses(common, own), honest, factor)
