"""A study across machines while it runs, on the terminal of each side: who is there, how far it is, and time left.

On a terminal the last line is updated in place. Elsewhere a line is printed when something has changed, at most once a
second, and after a thousand of them at most once a minute, so that a coordinator cannot fill a participant's log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from unspoken.engines.network.frames import News
from unspoken.engines.network.status import STAGES, duration, with_names
from unspoken.errors import printable
from unspoken.methods.planning import Plan
from unspoken.report.plan_text import size
from unspoken.study import Study
from unspoken.summation.addresses import names_by_address

_REFRESHES = 4
"""A second"""
_APART_SECONDS = 1.0
"""The least time between two lines where there is no terminal"""
_MANY = 1_000
_THEN_APART_SECONDS = 60.0
"""The least time between two lines after many"""
_NAMED = 3
"""The most names of absent participants on a line"""


class Progress:
    """Says lines, and shows how far a study is."""

    def __init__(self, study: Study, console: Console) -> None:
        self._names, self._console = _names(study, ()), console
        self._news: News | None = None
        self._deadline, self._last = 0.0, ""
        self._said_at, self._count = -math.inf, 0

    def meet(self, plan: Plan) -> None:
        """The plan is made: helpers have names from now on."""
        self._names = _names(plan.study, plan.helper_addresses)

    def say(self, line: str) -> None:
        """A line that stays, with names from the roster for addresses. Parts of it may be by others."""
        text = f"{time.strftime('%H:%M:%S')} {printable(with_names(line, self._names))}"
        self._console.print(Text(text), soft_wrap=True)

    def show(self, news: News) -> None:
        """The progress of the study now."""
        self._news, self._deadline = news, time.monotonic() + news.seconds
        apart = _APART_SECONDS if self._count < _MANY else _THEN_APART_SECONDS
        if not self._console.is_terminal and time.monotonic() - self._said_at >= apart:
            self.catch_up()

    def catch_up(self) -> None:
        """Say how far the study is, if that was not said yet. Time left changes always: it is told with the rest."""
        if self._news is None or (told := self.line(self._news, seconds=None)) == self._last:
            return
        self._last, self._said_at, self._count = told, time.monotonic(), self._count + 1
        self.say(self.line(self._news, max(0.0, self._deadline - time.monotonic())))

    def __rich__(self) -> Text:
        """The line of a terminal, in one row."""
        if self._news is None:
            return Text("")
        left = max(0.0, self._deadline - time.monotonic())
        return Text(self.line(self._news, left), no_wrap=True, overflow="ellipsis", style="bold")

    def line(self, news: News, seconds: float | None) -> str:
        """The progress of the study, in one line; without the time left if that is None."""
        stage = STAGES.get(news.stage, "under way")
        if news.stage == "waiting":
            parts = [f"{news.present:,} of {news.expected:,} are there{self._absent(news)}"]
        elif news.stage in ("released", "aborted"):
            return f"{stage}; {size(news.bytes)} moved"
        else:
            again = f", attempt {news.attempt:,}" if news.attempt > 1 else ""
            there = f"{news.present:,} of {news.expected:,} there" if news.present < news.expected else "all there"
            parts = [
                f"round {news.round:,}/{news.rounds:,}{again}: {stage}",
                f"{there}{self._absent(news)}",
                f"{news.survivors:,} parties in it",
                size(news.bytes),
            ]
        return ", ".join(parts) + ("" if seconds is None else f"; {duration(seconds)} left")

    def _absent(self, news: News) -> str:
        names = [self._names[address] for address in news.absent if address in self._names][:_NAMED]
        more = news.expected - news.present - len(names)
        if not names or more < 0:
            return ""
        return f" (without {', '.join(names)}{f' and {more:,} more' if more else ''})"


@contextmanager
def progress(study: Study, stream: TextIO) -> Iterator[Progress]:
    """A live line while something runs; lines that are said appear above it."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    shown = Progress(study, console)
    if not console.is_terminal:
        try:
            yield shown
        finally:
            shown.catch_up()
        return
    with Live(shown, console=console, refresh_per_second=_REFRESHES, transient=True):
        yield shown


def _names(study: Study, helpers: tuple[str, ...]) -> dict[str, str]:
    """Names from the roster, by address."""
    if study.roster is None:
        return {}
    return {address: printable(name) for address, name in names_by_address(study.roster, helpers).items()}
