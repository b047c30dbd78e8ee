"""The data-dependent privacy cost of noisy votes: a label on which parties agree reveals little.

Papernot et al. 2018 ("Scalable Private Learning with PATE"), Theorem 6 and Propositions 7 and 8. (Lemma 14 of the
voting paper is no substitute: it does not hold.) The resulting ε depends on the ballots, so it is itself secret: it is
for those who may see the ballots anyway, and must not be published.

With ε(λ) = λ/s² for one query, s = σ√2/Δ the noise over a ballot's sensitivity, and q an upper bound on the probability
that a query's label is not the likeliest one: μ₂ = s√log(1/q), μ₁ = μ₂ + 1, and for orders λ ≤ μ₂

    ε(λ) ≤ log((1 − q)·A^(λ−1) + q·B^(λ−1)) / (λ − 1),
    A = (1 − q) / (1 − (q·e^(μ₂/s²))^(1−1/μ₂)),    B = e^(μ₁/s²) / q^(1/(μ₁−1)),

if q ≤ e^((μ₂−1)μ₂/s²) / (μ₁/(μ₁−1) · μ₂/(μ₂−1))^μ₂. The adversary sees only the labels.

Both ways. The theorem bounds the divergence of M(D) from M(D′) by the q of D. That of M(D′) from M(D) may be larger,
since D′ may be closer to another label; it is bounded by the q of D′. No lead of D′ is smaller than that of D by more
than √2·Δ: a vector of length Δ changes the difference of two of its numbers by no more. So q is computed for leads that
are smaller by √2·Δ, and bounds both. (Published analyses state the first direction only.)

Colluders know their own part c of the noise, which is independent of everybody else's records. For what they see, c and
the label y, and any neighbouring records (primed),

    e^((λ−1)·D_λ((c, y) ‖ (c, y′))) = E_c e^((λ−1)·D_λ(y | c ‖ y′ | c)).

Given c, the label is that of a vote whose totals are moved by c, under the honest parties' noise alone (σ_h in s). If c
moves no other label towards the leader by more than t, every lead is t smaller at most: the bound above holds with q
for such leads. It moves one by more with a probability of at most η = Σ Φ(−t/(√2·σ_c)), and then λ/s² holds. So the
expectation is at most e^((λ−1)·bound) + η·e^((λ−1)λ/s²), for every t. This takes colluders who
draw their noise as agreed.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri

from unspoken.privacy.gaussian import epsilon_of
from unspoken.types import Floats

_ORDERS = np.concatenate([np.arange(1.5, 10.0, 0.25), np.geomspace(10.0, 10_000.0, 200)])
_MOVED = np.linspace(0.05, 0.95, 19)
"""The shares of a lead that are tried for t"""


def data_dependent_epsilon(
    totals: Floats,
    deviation: float,
    move: float,
    delta: float,
    drawn: float | None = None,
    others: float = 0.0,
    known: float = 0.0,
) -> float:
    """ε of the labels of all queries, for these totals of ballots: (Q, K), without noise.

    `drawn` is the deviation of the noise in each total, `deviation` that of the continuous Gaussian it is worth (a
    little less); `move` is the L2 sensitivity of one query's ballots to the protected unit. `others` is μ² of further
    Gaussian releases, whose totals are not known. `known` is the deviation of further noise in each total, which the
    adversary knows. The result never exceeds the ε that holds for all data.

    >>> agreed = np.tile([100.0, 0.0, 0.0], (50, 1))
    >>> round(data_dependent_epsilon(agreed, 10.0, math.sqrt(2.0), 1e-5), 2)
    0.38
    >>> round(epsilon_of(math.sqrt(50.0) * math.sqrt(2.0) / 10.0, 1e-5), 2)
    4.38
    """
    scale, nearer = deviation * math.sqrt(2.0) / move, math.sqrt(2.0) * move
    if known:
        spent = _spent_before_colluders(totals, scale, drawn or deviation, known, nearer)
    else:
        mistakes = log_mistake(totals, drawn or deviation, nearer)
        spent = np.sum([renyi_bound(float(log_q), scale, _ORDERS) for log_q in mistakes], axis=0)
    spent = spent + _ORDERS * others / 2.0
    whatever = epsilon_of(math.sqrt(len(totals) * (move / deviation) ** 2 + others), delta)
    return min(_epsilon_from_renyi(np.asarray(spent), delta), whatever)


def _spent_before_colluders(totals: Floats, scale: float, deviation: float, known: float, nearer: float) -> Floats:
    """Rényi divergences of all labels, by order, for who knows noise of the deviation `known`: the least over t.

    `nearer` is taken off every lead besides.
    """
    whatever, rivals = _ORDERS / scale**2, totals.shape[1] - 1
    ordered = np.sort(totals, axis=1)
    spent = np.zeros_like(_ORDERS)
    for total, lead in zip(totals, ordered[:, -1] - ordered[:, -2], strict=True):
        best = whatever
        for moved in lead * _MOVED:
            log_missed = math.log(rivals) + float(log_ndtr(-moved / (math.sqrt(2.0) * known)))
            log_q = float(log_mistake(total[None], deviation, moved + nearer)[0])
            clear = (_ORDERS - 1.0) * renyi_bound(log_q, scale, _ORDERS)
            found = np.logaddexp(clear, log_missed + (_ORDERS - 1.0) * whatever) / (_ORDERS - 1.0)
            best = np.minimum(best, found)
        spent += best
    return spent


def log_mistake(totals: Floats, deviation: float, moved: float = 0.0) -> Floats:
    """The log of an upper bound, for each query, on the probability that noise makes another label than the leader win.

    A label overtakes the leader if the difference of two noises, of deviation √2·σ, exceeds the lead; the bound is the
    sum over all other labels. `moved` is taken off every lead.
    """
    leader = totals.argmax(axis=1)
    leads = totals.max(axis=1, keepdims=True) - totals - moved
    chances = log_ndtr(-leads / (math.sqrt(2.0) * deviation))
    chances[np.arange(len(totals)), leader] = -np.inf
    return np.asarray(logsumexp(chances, axis=1))


def sure_lead(classes: int, deviation: float, mistake: float) -> float:
    """The lead L over all other labels with which a label wins, except with probability `mistake`.

    Each of K − 1 others overtakes it with probability Φ(−L/(√2·σ)): L = −√2·σ·Φ⁻¹(mistake/(K − 1)).

    >>> round(sure_lead(2, 1.0, 0.02), 2), round(sure_lead(100, 1.0, 0.02), 2)
    (2.9, 5.0)
    """
    return -math.sqrt(2.0) * deviation * float(ndtri(mistake / (classes - 1)))


def winning_chance(lead: float, classes: int, deviation: float) -> float:
    """The probability that a label wins if it leads all others by `lead`: ∫ φ(x)·Φ(x + lead/σ)^(K−1) dx.

    >>> round(winning_chance(0.0, 10, 1.0), 6)
    0.1
    """
    x, step = np.linspace(-12.0, 12.0, 4001, retstep=True)
    logarithms = -x * x / 2.0 + (classes - 1) * log_ndtr(x + lead / deviation)
    return float(np.exp(logarithms).sum() * step / math.sqrt(2.0 * math.pi))


def renyi_bound(log_q: float, scale: float, orders: Floats) -> Floats:
    """An upper bound on the Rényi divergence of one query's label, by order."""
    whatever = orders / scale**2
    if log_q >= 0.0:
        return whatever
    second = scale * math.sqrt(-log_q)
    first = second + 1.0
    if second <= 1.0:
        return whatever
    spent_first, spent_second = first / scale**2, second / scale**2
    largest = (second - 1.0) * spent_second - second * (math.log(first / second) + math.log(second / (second - 1.0)))
    if log_q > largest or log_q + spent_second >= 0.0:
        return whatever
    right = _log_one_minus_exp(log_q)
    log_a = right - _log_one_minus_exp((log_q + spent_second) * (1.0 - 1.0 / second))
    log_b = spent_first - log_q / (first - 1.0)
    bounds = np.logaddexp(right + (orders - 1.0) * log_a, log_q + (orders - 1.0) * log_b) / (orders - 1.0)
    return np.where(orders <= second, np.minimum(bounds, whatever), whatever)


def _log_one_minus_exp(x: float) -> float:
    """log(1 − eˣ) for x < 0."""
    return math.log(-math.expm1(x)) if x > -0.7 else math.log1p(-math.exp(x))


def _epsilon_from_renyi(spent: Floats, delta: float) -> float:
    """The smallest ε over all orders (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    found = spent + np.log1p(-1.0 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1.0)
    return max(0.0, float(found.min()))
