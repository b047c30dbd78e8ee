"""CAPE's guarantee against a brute-force view: everything that colluders see, as one joint Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.privacy.correlated import (
    correlated_mu,
    hidden_variance,
    integer_hidden_variance,
    integer_noise_for,
    noise_for,
)
from unspoken.privacy.integer import LOST_VARIANCE


def brute_force_mu(change: float, common: float, own: float, sites: int, colluding: int) -> float:
    """μ of all that the adversary sees: every message, the sum of ê, and the colluders' ê and g.

    The noise (ê_1 … ê_S, g_1 … g_S) is mapped to the view by a matrix; a change v at site 1 moves the first message.
    """
    deviations = np.concatenate([np.full(sites, math.sqrt(common)), np.full(sites, math.sqrt(own))])
    one, zero = np.eye(sites), np.zeros((sites, sites))
    known = slice(sites - colluding, sites)
    view = np.vstack(
        [
            np.hstack([one, one]),  # messages
            np.concatenate([np.ones(sites), np.zeros(sites)])[None],  # the sum of ê
            np.hstack([one, zero])[known],
            np.hstack([zero, one])[known],
        ]
    )
    shift = np.zeros(len(view))
    shift[0] = change
    # The least noise that explains the shift: μ² = min ‖z‖² over view · D z = shift.
    least, _, _, _ = np.linalg.lstsq(view * deviations, shift, rcond=1e-13)
    return float(np.linalg.norm(least))


@given(data=st.data())
def test_the_formula_is_the_brute_force_view(data: st.DataObject) -> None:
    sites = data.draw(st.integers(2, 40))
    colluding = data.draw(st.integers(0, sites - 1))
    own = data.draw(st.floats(0.05, 20.0))
    common = own * data.draw(st.floats(0.1, 100.0))
    change = data.draw(st.floats(0.1, 10.0))
    expected = brute_force_mu(change, common, own, sites, colluding)
    assert correlated_mu(change, common, own, sites - colluding) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("sites", "colluding", "exact"), [(10, 3, 2.208), (30, 9, 2.350), (100, 0, 1.980)])
def test_the_published_variances_leak_more_than_the_paper_says(sites: int, colluding: int, exact: float) -> None:
    """In units of v²/τ²: the corrected figures, twice what the paper's Theorem 1 states for the same case."""
    squared = correlated_mu(1.0, 1.0, 1.0 / sites, sites - colluding) ** 2
    assert squared == pytest.approx(exact, abs=5e-4)
    assert squared == pytest.approx(sites / (sites + 1) * (1 + sites / (sites - colluding)), rel=1e-12)
    assert squared > 1.5 * paper_mu_squared(sites, colluding)


def paper_mu_squared(sites: int, colluding: int) -> float:
    """Theorem 1 as printed, for v = τ = 1."""
    honest = sites - colluding
    correction = 9.0 / honest * colluding**2 / (sites * (1 + sites) - 3 * colluding**2)
    return sites / (1 + sites) * ((honest + 2) / honest + correction)


def test_the_paper_s_formula_is_transcribed_rightly() -> None:
    assert paper_mu_squared(10, 3) == pytest.approx(1.296, abs=5e-4)
    assert paper_mu_squared(30, 9) == pytest.approx(1.109, abs=5e-4)
    assert paper_mu_squared(100, 0) == pytest.approx(1.010, abs=5e-4)


@given(hidden=st.floats(1.0, 1e12), ratio=st.floats(1.0, 1e6), honest=st.integers(1, 1000))
def test_the_planned_noise_hides_what_was_asked_for(hidden: float, ratio: float, honest: int) -> None:
    common, own = noise_for(hidden, ratio, honest)
    assert hidden_variance(common, own, honest) == pytest.approx(hidden, rel=1e-12)
    common, own = integer_noise_for(hidden, ratio, honest)
    assert integer_hidden_variance(common, own, honest) == pytest.approx(hidden, rel=1e-6)


@given(honest=st.integers(1, 60))
def test_what_is_given_up_for_integers_covers_the_rounding_of_the_whole_view(honest: int) -> None:
    """C(a, b) − C(a − 2r², b − 3r²) ≥ r²I: the lost covariance is enough to round every coordinate of the view."""

    def covariance(common: float, own: float) -> np.ndarray:
        matrix = np.empty((honest + 1, honest + 1))
        matrix[:honest, :honest] = (common + own) * np.eye(honest)
        matrix[honest, :honest] = matrix[:honest, honest] = common
        matrix[honest, honest] = honest * common
        return matrix

    lost = covariance(100.0, 100.0) - covariance(100.0 - 2 * LOST_VARIANCE, 100.0 - 3 * LOST_VARIANCE)
    assert np.linalg.eigvalsh(lost).min() >= LOST_VARIANCE * (1 - 1e-9)


def test_no_honest_site_is_refused() -> None:
    with pytest.raises(ValueError, match="honest"):
        hidden_variance(1.0, 1.0, 0)
