"""`unspoken demo`: it learns, and says what privacy costs."""

import re
from pathlib import Path

import pytest

from commands import SIMULATION_FIELDS, answer, shown


@pytest.mark.long
def test_the_demo_learns_and_says_what_privacy_costs(tmp_path: Path) -> None:
    text = shown(tmp_path, "demo")
    private, pooled, alone = (
        float(re.search(rf"{re.escape(name)} +(\d+\.\d) %", text)[1])
        for name in ("accuracy, private", "not private, all data in one place", "of a party alone (average)")
    )
    assert alone < private < pooled
    assert "100 of 100 took part to the end" in text
    assert "Guarantee. Whoever sees the result, even a lying coordinator together with 10 of the 100 parties" in text
    written = {path.name for path in (tmp_path / "unspoken-demo").iterdir()}
    assert written == {"study.toml", "train.npz", "test.npz", "digits.model.skops", "digits.certificate.json"}
    assert "unspoken-demo/digits.certificate.json" in text.replace(" ", "").replace("\n", "")
    # What it suggests to do next works.
    suggested = text[text.rindex("unspoken simulate ") :].split()[1:]
    assert re.search(r"accuracy \d+\.\d %", shown(tmp_path, *suggested))


@pytest.mark.long
def test_the_demo_for_programs_prints_one_object(tmp_path: Path) -> None:
    result = answer(tmp_path, "demo", "--output", "here")
    assert result.keys() >= SIMULATION_FIELDS | {"comparison", "files"}
    assert result["survivors"] == 100
    # The accuracy of the demo varies by about 0.035 around 0.8; guessing would give 0.1.
    assert result["metrics"]["accuracy"] > 0.5
    for path in result["files"].values():
        assert (tmp_path / path).is_file()
