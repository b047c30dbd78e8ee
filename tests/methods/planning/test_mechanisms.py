"""Every noise mechanism keeps what it was sized for, and draws what it states. (`promises` attacks whole plans.)"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.planning.mechanisms import (
    CuratorNoise,
    IndependentNoise,
    Mechanism,
    NoiseShares,
    NoiseSource,
    NoNoise,
    Participation,
    PreNoised,
)
from unspoken.noise.stream import SecretStream
from unspoken.privacy.correlated import without_losses
from unspoken.privacy.guarantee import Trust
from unspoken.privacy.integer import LOST_VARIANCE
from unspoken.types import Words

TRUST = Trust(parties=10, colluding=2, dropouts=3)
VARIANCE = 50_000.0
NOISY = [NoiseShares(), CorrelatedNoise(10.0), IndependentNoise(), CuratorNoise(), PreNoised()]
EACH = pytest.mark.parametrize("mechanism", NOISY, ids=lambda kind: type(kind).__name__)
THERE = [Participation(prepared, sent) for prepared in (7, 8, 10) for sent in range(7, prepared + 1)]
"""What a run that may be released can have: of those who prepared, at most as many send"""


def sized(mechanism: Mechanism, opens_noise: bool = False) -> Mechanism:
    return mechanism.sized(TRUST, VARIANCE, opens_noise)


def allowed(mechanism: Mechanism) -> list[Participation]:
    """Without a sum of common noise, those who prepared are those who sent."""
    return [there for there in THERE if mechanism.prepares or there.prepared == there.sent]


@EACH
@pytest.mark.parametrize("opens_noise", [True, False])
def test_whoever_takes_part_the_adversary_faces_at_least_what_was_asked_for(
    mechanism: Mechanism, opens_noise: bool
) -> None:
    found = sized(mechanism, opens_noise)
    variances = [found.adversary_variance(there) for there in allowed(mechanism)]
    assert min(variances) >= VARIANCE * (1.0 - 1e-12)
    assert found.adversary_variance(Participation(7, 7)) == pytest.approx(VARIANCE, rel=1e-6)


@pytest.mark.parametrize("opens_noise", [True, False])
def test_parties_that_can_be_left_out_unseen_are_not_counted_on(opens_noise: bool) -> None:
    """Of 7 who are said to be in the total, 2 may not be, and 2 collude: the shares of the other 3 must do."""
    shares = NoiseShares().sized(replace(TRUST, withheld=2), VARIANCE, opens_noise)
    assert shares.weakened(5, 2) >= VARIANCE * (1.0 - 1e-12)
    assert shares.adversary_variance(Participation(7, 7)) == pytest.approx(VARIANCE, rel=1e-6)


def test_messages_do_not_count_on_common_noise_that_can_be_left_out_unseen() -> None:
    """Of 7 whose common noise is said to be in its sum, 2 may not be, and 2 collude: 3 are left, whoever is strict."""
    trust, stronger = replace(TRUST, withheld=2), (4.0,) + (1.0,) * 9
    alike = CorrelatedNoise(10.0).sized(trust, VARIANCE, False)
    assert alike.adversary_variance(Participation(7, 7)) == pytest.approx(VARIANCE, rel=1e-6)
    assert faced(alike, (1, 2, 3)) == pytest.approx(VARIANCE, rel=1e-6)
    found = CorrelatedNoise(10.0, stronger=stronger).sized(trust, VARIANCE, False)
    for site, wanted in ((0, 4.0 * VARIANCE), (1, VARIANCE)):
        stated = found.variance_for(site)
        assert stated is not None
        assert stated >= wanted * (1.0 - 1e-9)
        assert faced(found, (site, 8, 9)) == pytest.approx(stated, rel=1e-6)


def faced(noise: CorrelatedNoise, honest: tuple[int, ...]) -> float:
    """The variance that the first of these sites hides a number behind, from the covariance of all messages and of the
    sum of the common noise."""
    common, own = np.array([without_losses(*noise.variances(site)) for site in honest]).T
    seen = np.block([[np.diag(common + own), common[:, None]], [common[None], np.array([[common.sum()]])]])
    return float(1.0 / np.linalg.inv(seen)[0, 0])


@EACH
def test_more_colluders_face_less_and_a_party_alone_no_more(mechanism: Mechanism) -> None:
    found = sized(mechanism)
    faced = [found.weakened(7, known) for known in (2, 3, 6)]
    assert faced == sorted(faced, reverse=True)
    assert 0.0 < found.adversary_variance_alone() <= faced[0]


@pytest.mark.parametrize("opens_noise", [True, False])
def test_a_party_alone_has_only_the_noise_that_nobody_can_open(opens_noise: bool) -> None:
    shares, correlated = NoiseShares().sized(TRUST, VARIANCE, opens_noise), CorrelatedNoise(10.0)
    assert shares.adversary_variance_alone() == pytest.approx(shares.schedule.base - LOST_VARIANCE)
    messages = correlated.sized(TRUST, VARIANCE, opens_noise)
    assert messages.adversary_variance_alone() == pytest.approx(without_losses(messages.common, messages.own)[1])


@EACH
def test_no_total_has_more_noise_than_the_largest(mechanism: Mechanism) -> None:
    found = sized(mechanism)
    assert max(found.total(there) for there in allowed(mechanism)) <= found.largest * (1.0 + 1e-12)
    assert found.largest_released <= found.largest


@pytest.mark.parametrize("mechanism", [NoiseShares(), CorrelatedNoise(10.0), IndependentNoise()])
def test_what_parties_add_is_the_noise_of_the_total(mechanism: Mechanism) -> None:
    """The variance of 20,000 draws within 5 of its deviations: a false alarm in a million.

    Of 9 parties that prepare common noise two send nothing: what they prepared stays in the total.
    """
    found, count = sized(mechanism), 20_000
    there = Participation(9 if found.prepares else 7, 7)
    total = np.zeros(count, dtype=np.uint64)
    for party in range(there.sent):
        own, common = SecretStream(bytes([party]) * 32), SecretStream(bytes([100 + party]) * 32)
        total += found.added(count, NoiseSource(own, (), common))
    for party in range(there.prepared if found.prepares else 0):
        total -= found.prepared(count, SecretStream(bytes([100 + party]) * 32), party)
    measured = float(total.view(np.int64).astype(float).var())
    expected = found.total(there)
    assert abs(measured / expected - 1.0) < 5.0 * math.sqrt(2.0 / count)


def test_components_that_prove_unneeded_are_taken_away_exactly() -> None:
    found = sized(NoiseShares(), opens_noise=True)
    schedule = found.schedule
    assert schedule is not None
    seeds = [bytes([number]) * 32 for number in range(len(schedule.components))]
    whole = found.added(100, NoiseSource(SecretStream(bytes(32)), seeds))
    assert schedule.opened(10)
    kept = [seed if number not in schedule.opened(10) else None for number, seed in enumerate(seeds)]

    def drawn(variance: float, key: bytes) -> Words:
        """Noise of this variance alone."""
        return NoiseShares(type(schedule)(10, 2, 3, 1.0, variance, ())).added(100, NoiseSource(SecretStream(key)))

    rest = drawn(schedule.base, bytes(32))
    for number, seed in enumerate(kept):
        if seed is not None:
            rest += drawn(schedule.components[number], seed)
    opened = found.opened(100, 10, [seeds[number] for number in schedule.opened(10)])
    assert np.array_equal(whole - opened, rest)


def test_no_noise_hides_nothing() -> None:
    for mechanism in (NoNoise(), NoNoise(trusted=True)):
        found = sized(mechanism)
        assert (found.adversary_variance(THERE[0]), found.total(THERE[0]), found.largest) == (0.0, 0.0, 0.0)
        assert found.in_the_open == found.counted == (not mechanism.trusted)
    with pytest.raises(RuntimeError, match="no size yet"):
        NoiseShares().total(THERE[0])
