"""How long a coordinator waits (`Deadlines`), and what it reports to the person who runs it (`Events`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from unspoken.defaults import GRACE_SECONDS, JOIN_SECONDS, STAGE_SECONDS
from unspoken.engines.network.frames import News
from unspoken.errors import UnspokenError
from unspoken.methods.planning import Plan


@dataclass(frozen=True)
class Deadlines:
    """How long to wait for whom."""

    stage_seconds: float = STAGE_SECONDS
    join_seconds: float = JOIN_SECONDS
    """For everyone to be there before the first request"""
    grace_seconds: float = GRACE_SECONDS
    """A stage does not wait longer than this for someone whose connection is gone"""

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if not 0.0 <= seconds < math.inf:
                raise UnspokenError(f"{name} is {seconds}, but should be a number of seconds, such as 600.")


@dataclass
class Events:
    """What a person may want to be told. All functions do nothing unless replaced."""

    told: Callable[[str], None] = lambda line: None
    news: Callable[[News], None] = lambda news: None
    planned: Callable[[Plan], None] = lambda plan: None
    listening: Callable[[int], None] = lambda port: None
    """Called with the port when parties can join"""
