"""Whatever number of parties drops out within the allowance, what is kept of the noise suffices and is hardly more."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.noise.discrete_gaussian import sample
from unspoken.noise.schedule import NoiseSchedule, rounded_up
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
        # The components come within 1/64 of what could be removed at best, and rounding adds next to nothing.
        best = schedule.needed / (survivors - known)
        assert schedule.kept(survivors) - best <= removable / 63 + 2.0**-24 * schedule.kept(survivors)


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


@given(variance=st.floats(1e-6, 1e30))
def test_rounding_never_takes_noise_away_and_hardly_adds_any(variance: float) -> None:
    found = rounded_up(variance)
    assert variance <= found <= variance * (1.0 + 2.0**-25 + 2.0**-39)
    mantissa, _ = math.frexp(found)
    assert math.ldexp(mantissa, 26).is_integer()


@pytest.mark.parametrize("needed", [1e6, 2.0**40, 3.0, 1e12, 12_345_678.9, math.pi * 1e7])
@pytest.mark.parametrize("parties", [7, 100, 1000])
def test_an_ulp_more_or_less_is_the_same_schedule(needed: float, parties: int) -> None:
    """So two machines whose logarithms or roots differ in the last bits draw the same noise."""
    schedules = {
        NoiseSchedule.plan(parties, 1, parties // 10, around, 64.0)
        for around in (needed, math.nextafter(needed, math.inf), math.nextafter(needed, 0.0), needed * (1.0 - 2.0**-50))
    }
    assert len(schedules) == 1
    assert len({schedule.exact for schedule in schedules}) == 1


def test_the_exact_numbers_tell_schedules_apart_and_are_whole() -> None:
    schedules = [NoiseSchedule.plan(100, known, 5, needed, 64.0) for known in (1, 10) for needed in (1e9, 1.000001e9)]
    assert len({schedule.exact for schedule in schedules}) == 4
    for schedule in schedules:
        assert all(type(number) is int for number in schedule.exact)
        variances = (schedule.needed, schedule.base, *schedule.components)
        pairs = zip(schedule.exact[3::2], schedule.exact[4::2], strict=True)
        assert [mantissa * 2.0**exponent for mantissa, exponent in pairs] == list(variances)
