"""Lines that others cause, such as complaints about their messages: nobody can fill somebody else's log with them.

Of each participant, some lines are said at once, and after these one every few seconds. What is left out is counted,
and the next line says how many there were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

AT_ONCE = 20
"""How many lines about one participant are said without a pause"""
APART_SECONDS = 10.0
"""The time that makes room for one more"""


@dataclass
class _Room:
    lines: float
    since: float
    left_out: int = 0


@dataclass
class Restraint:
    """Says lines, but not too many.

    >>> said, seconds = [], iter([0.0, 0.0, 1.0, 2.0, 25.0])
    >>> tell = Restraint(said.append, at_once=1, apart_seconds=10.0, clock=lambda: next(seconds))
    >>> for number in range(5): tell("", f"line {number}")
    >>> said
    ['line 0', 'line 4 (3 lines before it are left out)']
    """

    say: Callable[[str], None]
    at_once: int = AT_ONCE
    apart_seconds: float = APART_SECONDS
    clock: Callable[[], float] = time.monotonic
    _rooms: dict[str, _Room] = field(default_factory=dict)

    def __call__(self, who: str, line: str) -> None:
        """Say a line that was caused by `who`, if there is room for it."""
        now = self.clock()
        room = self._rooms.setdefault(who, _Room(self.at_once, now))
        room.lines = min(self.at_once, room.lines + (now - room.since) / self.apart_seconds)
        room.since = now
        if room.lines < 1.0:
            room.left_out += 1
            return
        left_out, room.left_out, room.lines = room.left_out, 0, room.lines - 1.0
        lines = "line before it is" if left_out == 1 else "lines before it are"
        self.say(f"{line} ({left_out:,} {lines} left out)" if left_out else line)
