"""What is told while a study runs: numbers that can be, a line a second, and names."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from unspoken.engines.network.frames import News, packed, unpacked
from unspoken.report import live
from unspoken.study import make_study
from unspoken.summation.base import Rejected
from unspoken.summation.keys import Identity

KEYS = [Identity(bytes([number]) * 32).public.hex() for number in range(3)]
STUDY = make_study(
    {
        "study": {"name": "heart", "task": "classification"},
        "data": {"features": 4, "classes": 2},
        "parties": {"count": 2, "records": 10},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "roster": {"parties": KEYS[:2], "coordinator": KEYS[2], "names": {"Hospital 1": KEYS[0], "party:0": KEYS[1]}},
    }
)


@pytest.mark.parametrize(
    "numbers",
    [
        {"present": -7, "expected": 3},
        {"present": 4, "expected": 3},
        {"present": 0, "expected": 1 << 63},
        {"round": 3, "rounds": 2},
        {"round": -3},
        {"rounds": 1 << 62},
        {"attempt": -9},
        {"survivors": 1 << 60},
        {"bytes": -(1 << 60)},
        {"bytes": 1 << 62},
    ],
)
def test_numbers_that_cannot_be_are_not_shown(numbers: dict[str, int]) -> None:
    true = {"stage": "setup", "present": 1, "expected": 3, "seconds": 1.0, "round": 1, "rounds": 1}
    fields: list[Any] = ["net/news", *msgspec.structs.astuple(News(**true))]  # type: ignore[arg-type]
    for name, number in numbers.items():
        fields[1 + News.__struct_fields__.index(name)] = number
    assert unpacked(packed(News(**true)), News) == News(**true)  # type: ignore[arg-type]
    with pytest.raises(Rejected, match="how far the study is cannot be"):
        unpacked(msgspec.msgpack.encode(fields), News)


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Puts a clock that stands still forward, by so many seconds."""
    now = 100.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)

    def forward(seconds: float) -> None:
        nonlocal now
        now += seconds

    return forward


def test_a_log_gets_a_line_a_second_and_the_last_one(log: io.StringIO, pass_time: Callable[[float], None]) -> None:
    with live.progress(STUDY, log) as shown:
        for number in range(1000):
            pass_time(0.01)
            shown.show(News("waiting", number % 2, 2, 60.0))
        assert 9 <= len(log.getvalue().splitlines()) <= 11
        shown.show(News("released", 2, 2, 0.0, bytes=5))
        assert "over" not in log.getvalue()
    assert log.getvalue().splitlines()[-1].endswith("over, with a result; 5 bytes moved")


def test_a_log_of_an_endless_study_grows_by_a_line_a_minute(
    log: io.StringIO, pass_time: Callable[[float], None]
) -> None:
    with live.progress(STUDY, log) as shown:
        for number in range(7_000):
            pass_time(1.0)
            shown.show(News("waiting", number % 2, 2, 60.0))
    assert 1_095 <= len(log.getvalue().splitlines()) <= 1_105


def test_lines_have_names_for_addresses_however_they_are_written(log: io.StringIO) -> None:
    with live.progress(STUDY, log) as shown:
        shown.say("2 of 3 answered (no answer came from party:0, party:1). To blame: party 0")
    assert log.getvalue()[9:] == "2 of 3 answered (no answer came from Hospital 1, party:0). To blame: Hospital 1\n"
