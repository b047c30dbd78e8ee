"""How large a plan makes noise: what is added to a stated sensitivity, and how coarse whole numbers may be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from factories import make
from unspoken.methods.planning import DeclaredSum, PlannedSum, RecordSampling, making
from unspoken.methods.planning.making import plan_sum, setting_of
from unspoken.methods.planning.mechanisms import CuratorNoise, NoiseShares
from unspoken.methods.registry import method_for
from unspoken.noise.encoding import Encoding
from unspoken.privacy.integer import LEAST_SHARE

PARTIES, MOST, BOUND = 7, 20, 30.0
ONE = 1e-4
"""An error of floating point for each record that is added up, made large enough to be seen"""


def sized(declared: DeclaredSum, mu: float = 1.0, count: int = PARTIES, unit: Any = "record") -> PlannedSum:
    parties = {"count": count, "records": 10, "max_records": MOST}
    study = make("moments", task="statistics", parties=parties, unit=unit, summation="compute-nodes")
    return plan_sum(study, setting_of(study, [declared]), declared, mu)


@pytest.mark.parametrize(
    ("unit", "said", "sums", "parties"),
    [
        ("record", {}, 1, 1),
        ({"group": 3}, {}, 3, 1),
        ({"group": 99}, {}, PARTIES, 1),
        ("party", {}, 1, 1),
        # A curator makes one sum of all records, however many of them are protected together.
        ({"group": 3}, {"noise": CuratorNoise()}, 1, PARTIES),
    ],
)
def test_errors_of_floating_point_are_added_for_each_sum_that_records_are_in(
    unit: Any, said: dict[str, Any], sums: int, parties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum's error grows with the number of its records, and with its norm."""
    monkeypatch.setattr(making, "floating_point_slack", lambda records, rows: ONE * records)
    found = sized(DeclaredSum("total", dimension=1, bound=BOUND, sensitivity=1.0, **said), unit=unit)
    rounding = sums * Encoding.rounding(1) / found.encoding.scale
    error = sums * ONE * parties * MOST * parties * BOUND
    assert found.sensitivity == pytest.approx(1.0 + error + rounding, rel=1e-9)


def test_a_batch_that_lost_a_record_and_got_another_is_two_sums_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "floating_point_slack", lambda records, rows: ONE * records)
    sampling = RecordSampling(0.5)
    found = sized(DeclaredSum("total", dimension=1, bound=BOUND, sensitivity=1.0, sampling=sampling))
    rounding = Encoding.rounding(1) / found.encoding.scale
    assert found.contribution == pytest.approx(0.5 + ONE * MOST * BOUND + rounding, rel=1e-9)
    assert found.sensitivity == pytest.approx(2.0 * found.contribution, rel=1e-9)


def test_words_hold_the_largest_total_with_its_noise() -> None:
    """Where contributions are small against noise, and where they nearly fill a word of 32 bits."""
    drowned = sized(DeclaredSum("total", dimension=1, bound=1.0, sensitivity=2.0), mu=1e-7)
    assert drowned.encoding.bits == 64
    used = set()
    for bound in (0.78 + 0.001 * step for step in range(60)):
        filled = sized(DeclaredSum("total", dimension=10**6, bound=bound, sensitivity=2.0 * bound), count=20_000)
        each = bound * filled.encoding.scale + Encoding.rounding(10**6)
        assert 20_000 * each + 14.0 * math.sqrt(filled.noise.largest) < 2.0 ** (filled.encoding.bits - 1)
        used.add(filled.encoding.bits)
    assert used == {32, 64}


@pytest.mark.parametrize("dropouts", [0, 50])
@pytest.mark.parametrize("method", ["moments", "cape"])
def test_a_party_s_share_is_never_too_small_for_whole_numbers(method: str, dropouts: int) -> None:
    """For a thousand parties a share has a thirtieth of the whole deviation; a number that is coarse would do for that
    of the whole."""
    parties = {"count": 1000, "records": 1, "max_records": 1}
    study = make(
        method,
        task="statistics",
        data={"features": 1},
        parties=parties,
        epsilon=30.0,
        dropouts=dropouts,
        summation="compute-nodes",
    )
    noise: Any = method_for(study).plan().sums[0].noise
    parts = (noise.schedule.base, *noise.schedule.components) if isinstance(noise, NoiseShares) else noise.variances(0)
    assert LEAST_SHARE**2 <= min(parts) < 10.0 * LEAST_SHARE**2
