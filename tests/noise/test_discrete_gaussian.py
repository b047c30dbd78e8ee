"""The sampler follows the discrete Gaussian: against its exact probabilities, its moments, and an independent sampler.

Seeds are fixed, so a failure is a change of the code; each statistical test states its false-alarm rate for a fresh
seed.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from unspoken.noise import discrete_gaussian
from unspoken.noise.discrete_gaussian import DISTANCE, sample
from unspoken.noise.stream import SecretStream

KEY = bytes(range(32))


def probabilities(sigma: float, values: np.ndarray) -> np.ndarray:
    reach = np.arange(-math.ceil(40 * sigma) - 1, math.ceil(40 * sigma) + 2)
    return np.exp(-(values**2) / (2 * sigma**2)) / np.exp(-(reach**2) / (2 * sigma**2)).sum()


@pytest.mark.parametrize("sigma", [0.35, 0.5, 1.0, 3.3, 20.0])
def test_small_deviations_follow_the_exact_probabilities(sigma: float) -> None:
    """χ² over all values that are expected at least ten times; false alarms: 1 in 10,000."""
    samples = sample(sigma, 1_000_000, SecretStream(KEY))
    values = np.arange(-math.ceil(6 * sigma), math.ceil(6 * sigma) + 1)
    expected = probabilities(sigma, values) * len(samples)
    values, expected = values[expected >= 10], expected[expected >= 10]
    observed = np.array([(samples == value).sum() for value in values])
    rest = len(samples) - expected.sum()
    if rest > 10:
        observed, expected = np.append(observed, len(samples) - observed.sum()), np.append(expected, rest)
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, len(observed) - 1) > 1e-4


@pytest.mark.parametrize("sigma", [511.0, 513.0, 5_000.0, 1.5e6, 2.0**33 + 7, 2.0**48])
def test_large_deviations_have_the_right_shape_moments_and_tails(sigma: float) -> None:
    """Kolmogorov–Smirnov, mean, variance, kurtosis and the 4σ tail; false alarms: about 1 in 1,000 altogether."""
    count = 400_000
    scaled = sample(sigma, count, SecretStream(KEY)) / sigma
    assert stats.kstest(scaled, "norm").pvalue > 2e-4
    assert abs(scaled.mean()) < 4 / math.sqrt(count)
    assert abs(scaled.var() - 1) < 4 * math.sqrt(2 / count)
    assert abs(stats.kurtosis(scaled)) < 4 * math.sqrt(24 / count)
    tail = stats.norm.sf(4.0) * 2 * count
    assert abs((np.abs(scaled) > 4.0).sum() - tail) < 4 * math.sqrt(tail)


@pytest.mark.parametrize("sigma", [1_000.0, 2.0**20 + 0.3])
def test_consecutive_integers_are_equally_filled(sigma: float) -> None:
    """A put-together sample must not prefer multiples of its factors: χ² of the residues; false alarms: 1 in 10,000."""
    samples = sample(sigma, 200_000, SecretStream(KEY))
    _, factors = discrete_gaussian._decompose(sigma)
    for modulus in {2, 3, *(int(factor) for factor in factors if 1 < factor < 3_000)}:
        counts = np.bincount(samples % modulus, minlength=modulus)
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("sigma", [2.5, 700.0])
def test_it_agrees_with_an_independent_sampler(sigma: float) -> None:
    """Two-sample Kolmogorov–Smirnov against OpenDP's exact sampler, which cannot be seeded; false alarms: 1 in 10⁶."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    independent = dp.m.make_gaussian(*space, scale=sigma)([0] * 20_000)
    ours = sample(sigma, 20_000, SecretStream(KEY))
    assert stats.ks_2samp(ours, np.array(independent)).pvalue > 1e-6


def masses_of(table: discrete_gaussian._Table) -> list[int]:
    """What the arrays that are drawn from say: the probability of each number, in units of 2⁻¹²⁷."""
    slots = len(table.upper)
    room, masses = 2**127 // slots, [0] * slots
    parts = zip(table.upper, table.middle, table.lower, table.alias, strict=True)
    for slot, (upper, middle, lower, alias) in enumerate(parts):
        own = (int(upper) << 96) + (int(middle) << 64) + int(lower)
        masses[slot] += own
        masses[int(alias)] += room - own
    return masses


@pytest.mark.parametrize("sigma", [0.3, 1.0, 57.3, 585.0])
def test_the_table_is_the_exact_distribution_up_to_the_stated_distance(sigma: float) -> None:
    """The table against the same sums in exact fractions of 400-bit exponentials, each from the one before it: the
    errors of 15,000 steps are far below what is looked for."""
    found = masses_of(discrete_gaussian._table(sigma))
    assert sum(found) == 2**127
    with localcontext() as context:
        context.prec = 130
        step = (-1 / (2 * Decimal(sigma) ** 2)).exp()
        mass, ratio, square, masses = Decimal(2), step, step * step, [Decimal(1)]
        for _ in range(math.ceil(25 * sigma) + 1):
            mass, ratio = mass * ratio, ratio * square
            masses.append(mass)
        found += [0] * (len(masses) - len(found))
        total = sum(masses)
        distance = sum(
            (abs(Decimal(ours) / 2**127 - mass / total) for ours, mass in zip(found, masses, strict=True)), Decimal(0)
        )
    assert Fraction(distance) / 2 < Fraction(DISTANCE) / 7


def test_convolutions_are_smooth_enough_for_every_deviation_and_their_tables_small() -> None:
    for sigma in np.geomspace(586.0, 2.0**48, 300):
        table_sigma, factors = discrete_gaussian._decompose(float(sigma))
        partial = np.sqrt(np.cumsum(factors.astype(float) ** 2))
        assert table_sigma * partial[-1] == pytest.approx(sigma, rel=1e-12)
        smoothing = (table_sigma * partial[:-1] / partial[1:]).min()
        assert 4 * math.exp(-2 * math.pi**2 * smoothing**2) < DISTANCE / 100
        assert len(factors) <= 7
        assert 14.0 * table_sigma < 2**13


def draw(table: discrete_gaussian._Table, words: list[int], spare: list[int], factor: int = 1) -> list[int]:
    drawn = np.zeros(len(words), dtype=np.int64)
    arrays = np.array(words, dtype=np.uint32), np.array(spare, dtype=np.uint64)
    columns = table.upper, table.alias, table.middle, table.lower
    discrete_gaussian._add_draws(*arrays, *columns, factor, drawn)
    return drawn.tolist()


def test_every_word_is_read_as_sign_slot_and_place() -> None:
    """All 2¹⁰ pairs of a sign and a slot, at both sides of the slot's threshold."""
    table = discrete_gaussian._table(29.0)
    slots = len(table.upper)
    assert slots == 512
    for slot in range(slots):
        threshold, other = int(table.upper[slot]), int(table.alias[slot])
        words = [(slot << 1) + sign + ((threshold + side) << 10) for sign in (0, 1) for side in (-1, 1)]
        if threshold == 0:
            assert draw(table, [words[1], words[3]], []) == [other, -other]
        elif threshold == 2**22:
            assert draw(table, [words[0], words[2]], []) == [slot, -slot]
        else:
            assert draw(table, words, [], factor=7) == [7 * slot, 7 * other, -7 * slot, -7 * other]


def test_a_tie_in_the_upper_bits_is_decided_by_the_lower_ones() -> None:
    table = discrete_gaussian._table(3.0)
    slot = next(slot for slot in range(64) if table.middle[slot] > 0 and table.lower[slot] > 0)
    other, middle, lower = int(table.alias[slot]), int(table.middle[slot]), int(table.lower[slot])
    word = (slot << 1) + (int(table.upper[slot]) << 7)
    cases = {(middle - 1, 2**64 - 1): slot, (middle, lower - 1): slot, (middle, lower): other, (middle + 1, 0): other}
    assert len(set(cases.values())) == 2
    for (first, second), expected in cases.items():
        # The word between has no tie: it must not use up what the second tie is decided by.
        spare = [first << 32, second, (2**32 - 1) << 32, 0]
        assert draw(table, [word, word ^ (1 << 20), word + 1], spare)[::2] == [expected, -other]


def test_an_injected_key_repeats_the_samples_and_the_operating_system_does_not() -> None:
    first, again = (sample(50.0, 100, SecretStream(KEY)) for _ in range(2))
    assert (first == again).all()
    assert (sample(50.0, 100, SecretStream()) != sample(50.0, 100, SecretStream())).any()


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**49])
def test_impossible_deviations_are_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="Expected 0 < sigma"):
        sample(sigma, 1, SecretStream(KEY))
