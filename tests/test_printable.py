"""Text by others is shown on a terminal without moving the cursor or changing anything else on the screen."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from unspoken.engines.network.cards import CardError, check_name
from unspoken.engines.network.client import Finished
from unspoken.engines.network.frames import Ending
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.live import Progress
from unspoken.report.promise_text import Seat, promise_rows
from unspoken.sites.joining import joined_of
from unspoken.study import Study, StudyError, make_study
from unspoken.summation.keys import Identity

KEYS = [Identity(bytes([number]) * 32).public.hex() for number in range(4)]
EVIL = "age\x1b[2J\x1b]0;x\x07"


def content(column: str = "age", label: str = "died", yes: str = "yes", kind: str = "b", name: str = "hub") -> Any:
    return {
        "study": {"name": "heart", "task": "classification"},
        "data": {
            "label": label,
            "classes": ["no", yes],
            "columns": {column: {"min": 0, "max": 110}, "ward": {"categories": ["a", kind]}},
        },
        "parties": {"count": 3, "records": 40},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "roster": {
            "parties": KEYS[:3],
            "coordinator": KEYS[3],
            "names": {name: KEYS[3]},
        },
    }


@pytest.mark.parametrize("place", ["column", "label", "yes", "kind", "name"])
def test_a_study_with_a_name_that_a_terminal_would_obey_is_refused(place: str) -> None:
    make_study(content())
    with pytest.raises(StudyError, match=r"'age\\x1b\[2J.* cannot be shown as it is; write printable") as refused:
        make_study(content(**{place: EVIL}))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "name",
    [
        "Charité (6998 edcf 1133 84af 0c55), Registry",
        "Charité \uff086998 edcf 1133 84af 0c55\uff09, Registry",
        f"Charité{' ' * 40}Registry",
        "x" * 61,
        "",
    ],
)
def test_a_name_cannot_show_the_digits_of_somebody_else_nor_fill_the_screen(name: str) -> None:
    """`join` shows everyone as NAME (DIGITS), and whoever writes the study chooses the names."""
    make_study(content(name="St. Mary's, Boston & Co / North"))
    with pytest.raises(StudyError, match=r"but a name should have 1 to 60 characters, no brackets"):
        make_study(content(name=name))
    with pytest.raises(CardError, match=r"but should have 1 to 60 characters, no brackets"):
        check_name(name)


def test_the_screen_names_every_column_however_many_there_are() -> None:
    many = content()
    many["summation"] = {"protocol": "secagg+"}
    many["data"]["columns"] |= {f"c{number}": "boolean" for number in range(30)}
    shown = dict(promise_rows(plan_for(make_study(many)), Seat("St Mary", 0, 40), Ledger()))["from"]
    assert all(f" {name}" in shown for name in many["data"]["columns"])


def test_a_mistake_beside_such_a_name_is_told_without_it() -> None:
    with pytest.raises(StudyError) as refused:
        make_study(content() | {EVIL: {}})
    assert str(refused.value).isprintable()


def test_lines_and_reasons_of_others_are_shown_without_control_characters_and_cut() -> None:
    study: Study = make_study(content())
    seen = io.StringIO()
    progress = Progress(study, Console(file=seen, force_terminal=True, highlight=False, markup=False))
    progress.say(f'a request is refused: the request for "{EVIL}\nunspoken: all is well" {"x" * 5000}')
    line = seen.getvalue()
    assert line.endswith("…\n")
    assert line[:-1].isprintable()
    assert len(line) < 700
    plan: Any = None
    roster: Any = None
    joined = joined_of(Finished(Ending(reason=EVIL + "x" * 5000)), plan, roster, 0, None)
    assert joined.reason.isprintable()
    assert len(joined.reason) < 700
