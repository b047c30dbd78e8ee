"""Whatever number of parties drops out within the allowance, what is kept of the noise suffices and is hardly more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.schedule import NoiseSchedule
from unspoken.noise.stream import SecretStream


@given(data=st.data())
def test_the_kept_noise_suffices_for_every_allowed_number_of_survivors(data: st.DataObject) -> None:
    parties = data.draw(st.integers(2, 3000))
    known = data.draw(st.integers(1, parties - 1))
    dropouts = data.draw(st.integers(0, parties - known - 1))
    schedule = NoiseSchedule.plan(parties, known, dropouts, 1e12, 64.0)
    removable = schedule.needed / (parties - known - dropouts) - schedule.needed / (parties - known)
    for survivors in {parties, parties - dropouts, parties - dropouts // 2, parties - dropouts // 3}:
        kept = schedule.kept(survivors) * (survivors - known)
        assert kept >= schedule.needed * (1 - 1e-12)
        # The components come within 1/64 of what could be removed at best.
        best = schedule.needed / (survivors - known)
        assert schedule.kept(survivors) - best <= removable / 63 + 1e-9 * best


@given(data=st.data())
def test_the_largest_total_is_that_of_some_allowed_number_of_survivors(data: st.DataObject) -> None:
    parties = data.draw(st.integers(2, 300))
    known = data.draw(st.integers(1, parties - 1))
    absent = data.draw(st.integers(0, parties - known - 1))
    schedule = NoiseSchedule.plan(parties, known, absent, 1e12, data.draw(st.sampled_from([64.0, 1e9, math.inf])))
    totals = [count * schedule.kept(count) for count in range(parties - absent, parties + 1)]
    assert schedule.largest_total == max(totals)


def test_nothing_is_opened_outside_the_allowance() -> None:
    schedule = NoiseSchedule.plan(100, 10, 5, 1e9, 64.0)
    assert schedule.opened(94) == schedule.opened(101) == ()
    assert schedule.opened(95) == ()
    assert schedule.opened(100) != ()


def test_without_dropouts_there_is_nothing_to_open() -> None:
    schedule = NoiseSchedule.plan(100, 10, 0, 1e9, 64.0)
    assert schedule.components == ()
    assert schedule.whole == pytest.approx(1e9 / 90)


def test_components_that_would_be_too_small_stay_in_the_base() -> None:
    schedule = NoiseSchedule.plan(100, 10, 5, 1e4, 4.0)
    assert all(variance >= 4.0 for variance in schedule.components)
    assert schedule.whole == pytest.approx(1e4 / 85)
    assert NoiseSchedule.plan(100, 10, 5, 1e4, math.inf).components == ()


def test_taking_the_opened_components_away_leaves_the_kept_variance() -> None:
    """20,000 samples of a share minus its opened components: the variance within five standard errors (1 in 10⁶)."""
    schedule = NoiseSchedule.plan(100, 10, 30, 1e10, 64.0)
    stream = SecretStream(bytes(range(32)))
    count = 20_000
    parts = [sample(math.sqrt(variance), count, stream) for variance in (schedule.base, *schedule.components)]
    share = np.sum(parts, axis=0)
    for survivors in (100, 85, 71, 70):
        left = share - sum(
            (parts[1 + number] for number in schedule.opened(survivors)), np.zeros(count, dtype=np.int64)
        )
        assert left.var() == pytest.approx(schedule.kept(survivors), rel=5 * math.sqrt(2 / count))
