"""The days of a saved model are those of the calendar, and nothing else is taken for one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io

from factories import make
from unspoken.methods.releases import LinearModel
from unspoken.methods.releases.days import day_numbers
from unspoken.study import day_of


def test_every_day_has_its_number() -> None:
    years = (1, 4, 99, 100, 101, 400, 1600, 1899, 1900, 1999, 2000, 2001, 2100, 9999)
    days = [np.arange(date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal() + 1) for year in years]
    numbers = np.concatenate([*days, np.random.default_rng(0).integers(1, date.max.toordinal() + 1, 2000)])
    texts = [date.fromordinal(number).isoformat() for number in numbers.tolist()]
    found = day_numbers("day", None).transform(pd.DataFrame({"day": texts}))
    np.testing.assert_array_equal(found, np.stack([numbers, np.zeros(len(numbers))], axis=1))


@pytest.mark.parametrize(
    "text", ["2019-01-31 12:00", "2019-01-31T23:59:59", " 2019-01-31 ", "2020-02-29", "2000-02-29"]
)
def test_a_time_has_its_day_s_number(text: str) -> None:
    found = day_numbers("day", None).transform(pd.DataFrame({"day": [text]}))
    assert found[0, 0] == (day_of(text) or date.min).toordinal()


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_days_and_times_of_a_data_frame_need_not_be_texts(zone: str | None) -> None:
    times = pd.Series(pd.to_datetime(["2019-01-31 23:30", None]).tz_localize(zone))
    number = date(2019, 1, 31).toordinal()
    for values in (times, times.astype(object), pd.Series([date(2019, 1, 31), None], dtype=object)):
        found = day_numbers("day", 5.5).transform(pd.DataFrame({"day": values}))
        assert found.tolist() == [[number, 0.0], [5.5, 1.0]]


@pytest.mark.parametrize(
    "text",
    [
        *("", "nan", "2019-02-29", "1900-02-29", "0000-01-01", "2019-13-01", "2019-00-01", "2019-04-31", "2019-01-32"),
        *("31.1.2019", "2019-1-31", "2019-01-31x", "x2019-01-31", "20190131", "2019-01-3１"),
    ],
)
def test_what_is_no_day_is_refused(text: str) -> None:
    assert day_of(text) is None
    with pytest.raises(ValueError, match="unknown categories"):
        day_numbers("day", None).transform(pd.DataFrame({"day": ["2019-01-31", text]}))


def test_a_missing_day_has_a_number_of_its_own() -> None:
    texts = ["", " ", "nan", "NaN", "None", "<NA>", "2019-01-31"]
    found = day_numbers("day", 5.5).transform(pd.DataFrame({"day": texts}))
    assert found.tolist() == [[5.5, 1.0]] * 6 + [[date(2019, 1, 31).toordinal(), 0.0]]


def test_a_model_with_far_bounds_is_small_and_treats_days_beyond_them_as_the_bounds(tmp_path: Path) -> None:
    columns = {"born": {"min": "1000-01-01", "max": "2024-12-31"}}
    agreed = make(data={"label": "died", "classes": ["no", "yes"], "columns": columns})
    LinearModel(np.array([[0.0, 0.0], [1.0, 0.5]]), "softmax", {}).save(agreed, tmp_path / "model.skops")
    assert (tmp_path / "model.skops").stat().st_size < 1_000_000
    model = skops.io.load(tmp_path / "model.skops", trusted=[])
    days = pd.DataFrame({"born": ["0900-06-01", "1000-01-01", "2024-12-31", "2025-01-01 08:00"]})
    found = model.predict_proba(days)[:, 1]
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp([0.5, 0.5, -1.5, -1.5])), rtol=1e-9)
