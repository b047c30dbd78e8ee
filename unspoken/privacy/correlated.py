"""The privacy of correlated noise: CAPE (Imtiaz, Mohammadi & Sarwate 2019), with its Theorem 1 corrected.

Site s publishes f_s + ê_s + g_s, and the sum of all ê is public: the sites learn it from a secure sum and the
aggregator subtracts it. ê has variance a (the common noise), g has variance b (a site's own). An adversary who knows
the colluding sites' noise sees the messages of the h honest sites and the sum of their ê. Given that sum, the noise of
their messages has the covariance a(I − 11ᵀ/h) + bI: variance b along 1, a + b across it. So a change v at one site has

    μ² = v² [ 1/(h·b) + (1 − 1/h)/(a + b) ],

and with the paper's a = τ², b = τ²/S that is (v²/τ²) · S/(S+1) · (1 + S/h). (The paper's Theorem 1 treats the
colluders' noise as unknown and inverts the covariance wrongly: for S = 10 sites, 3 colluding, it states 1.296 v²/τ²
where 2.208 is true.) With a → ∞ it is v²/(h·b), that of a secure sum.

Formal guarantee for integer noise. All ê and g are discrete Gaussians. The view (messages, sum of ê) is an integer
image of them onto all of ℤ^(h+1), whose kernel {(k, −k): Σk = 0} is so fine against variances of 64 and more that the
view is a discrete Gaussian of covariance C up to a factor 1 ± 2⁻⁴⁰⁰ (Micciancio & Peikert 2013, for lattices). As in
`privacy.integer`, that is post-processing of a continuous Gaussian of covariance C − r²I, r = 2.5, and C(a, b) − r²I ≥
C(a − 2r², b − 3r²) for any h, so the formula holds for the noise that is left of a − 2r² and b − 3r².
"""

from __future__ import annotations

import math

from unspoken.privacy.integer import LOST_VARIANCE

_LOST_COMMON, _LOST_OWN = 2.0 * LOST_VARIANCE, 3.0 * LOST_VARIANCE


def correlated_mu(change: float, common: float, own: float, honest: int) -> float:
    """μ for a change of L2 norm `change` at one of `honest` sites; `common` and `own` are variances.

    >>> tau, sites, colluding = 1.0, 10, 3
    >>> round(correlated_mu(1.0, tau**2, tau**2 / sites, sites - colluding) ** 2, 3)
    2.208
    """
    return change / math.sqrt(hidden_variance(common, own, honest))


def hidden_variance(common: float, own: float, honest: int) -> float:
    """The variance of a Gaussian that protects equally: 1 / [1/(h·b) + (1 − 1/h)/(a + b)]."""
    if honest < 1:
        raise ValueError(f"Expected honest >= 1, got honest={honest}.")
    return 1.0 / (1.0 / (honest * own) + (1.0 - 1.0 / honest) / (common + own))


def noise_for(hidden: float, ratio: float, honest: int) -> tuple[float, float]:
    """The inverse: variances (a, b), a = ratio·b, that protect like a Gaussian of variance `hidden`.

    >>> common, own = noise_for(10.0, 4.0, 3)
    >>> round(common / own, 9), round(hidden_variance(common, own, 3), 9)
    (4.0, 10.0)
    """
    own = hidden * (1.0 / honest + (1.0 - 1.0 / honest) / (ratio + 1.0))
    return ratio * own, own


def integer_noise_for(hidden: float, ratio: float, honest: int) -> tuple[float, float]:
    """Variances of integer noise that protect like a continuous Gaussian of variance `hidden`."""
    common, own = noise_for(hidden, ratio, honest)
    return common + _LOST_COMMON, own + _LOST_OWN


def integer_hidden_variance(common: float, own: float, honest: int) -> float:
    """The variance of a continuous Gaussian that protects no better than integer noise of these variances."""
    return hidden_variance(common - _LOST_COMMON, own - _LOST_OWN, honest)
