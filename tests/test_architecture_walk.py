"""A record, a gradient and a ballot go the way that the page on the architecture says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from small_studies import federation_of, method_of, public_file, small
from test_architecture_page import PAGE, ROOT
from unspoken.engines import actors
from unspoken.report.certificate import certificate

SPINE = (
    ("Method.agreed_plan", "make_plan", "state_plan"),
    ("Coordinator.start",),
    ("Role.receive", "Party._begin", "Contributor.check", "Method.check"),
    ("Contributor.vectors",),
    ("Encoding.encode",),
    ("NoiseShares.added", "sample"),
    ("release_of", "certificate", "Plan.guarantee_after"),
)
"""What all three ways have in common, in the order of the page's steps"""


@contextmanager
def calls() -> Iterator[list[tuple[str, str]]]:
    """The calls of the package's functions, each as its file and its name."""
    package, found, before = str(ROOT / "unspoken") + "/", [], sys.getprofile()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            found.append((code.co_filename.removeprefix(package), code.co_qualname))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def steps(column: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """The rows of the table of ways: the step, and what it names in a column, as pairs of a file and a name."""
    rows = re.findall(r"^\| (\d+|4, 5) \|(.+)\|$", PAGE, flags=re.MULTILINE)
    named = [(step, re.findall(r"`([^`]+\.py)` `([^`]+)`", cells.split("|")[column])) for step, cells in rows]
    return [row for row in named if row[1]]


WAYS = (("helmet", "compute-nodes"), ("cross-silo", "secagg+"), ("voting", "tally"))


@pytest.mark.parametrize("column", range(3), ids=["record", "gradient", "ballot"])
def test_it_goes_the_way_that_the_page_says(column: int, tmp_path: Path) -> None:
    name, protocol = WAYS[column]
    study = small(public_file(tmp_path), name, "classification", summation=protocol, colluding=1, dropouts=2)
    with calls() as found:
        method = method_of(study)
        outcome = actors.run(method, method.agreed_plan, federation_of(study))
        certificate(method.agreed_plan, outcome)
    names = [name for _, name in found]
    first = [names.index(name) for step in SPINE for name in step]
    assert first == sorted(first)
    before = -1
    for step, expected in steps(column):
        if step == "10":
            assert [kind for _, kind in expected] == [type(outcome.release).__name__]
            continue
        places = [
            [place for place, (at, called) in enumerate(found) if at == file and f"{called}.".startswith(f"{name}.")]
            for file, name in expected
        ]
        assert all(places), f"step {step} is not where {expected} says"
        assert max(map(max, places)) > before, f"step {step} is over before the one before it begins"
        before = min(map(min, places))
