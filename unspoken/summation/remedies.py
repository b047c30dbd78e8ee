"""What would suit a protocol, for the sentence that refuses a study.

A remedy is found by trying, with the check that refused the study, so following it literally never leads to another
refusal of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable

Fits = Callable[[int, int, int], bool]
"""Whether so many parties, of which so many may collude and so many may drop out, can run the protocol"""

_MOST_PARTIES = 4
"""More parties than this times as many are no remedy"""


def has_honest(parties: int, colluding: int, dropouts: int) -> bool:
    """Whether a party stays whose noise nobody else knows. (Even without colluders, each party knows its own.)"""
    return parties - max(colluding, 1) - dropouts >= 1


def has_partner(parties: int, colluding: int, dropouts: int) -> bool:
    """Whether two parties stay, to mask with each other, and an honest one among them."""
    return parties - dropouts >= 2 and has_honest(parties, colluding, dropouts)


def remedies(parties: int, colluding: int, dropouts: int, fits: Fits) -> list[str]:
    """The least changes of [privacy] and [parties] that fit, one number at a time where that is enough.

    >>> remedies(10, 3, 5, lambda n, t, d: n - d >= (n + t) // 2 + 1)
    ['set dropouts = 3', 'have 14 parties (with colluding = 3 and dropouts = 5)']
    >>> remedies(3, 2, 2, lambda n, t, d: n - d - t >= 1)
    ['set dropouts = 0', 'set colluding = 0', 'have 5 parties (with colluding = 2 and dropouts = 2)']
    """
    found = []
    if (fewer := _largest(dropouts, parties, lambda number: fits(parties, colluding, number))) is not None:
        found.append(f"set dropouts = {fewer}")
    if (fewer := _largest(colluding, parties, lambda number: fits(parties, number, dropouts))) is not None:
        found.append(f"set colluding = {fewer}")
    if not found and (fewer := _largest(colluding, parties, lambda number: fits(parties, number, 0))) is not None:
        found.append(f"set dropouts = 0 and colluding = {fewer}")
    for more in range(parties + 1, _MOST_PARTIES * parties + 1):
        if fits(more, colluding, dropouts):
            return [*found, f"have {more} parties (with colluding = {colluding} and dropouts = {dropouts})"]
    return found


def _largest(number: int, parties: int, fits: Callable[[int], bool]) -> int | None:
    """The largest smaller number that fits."""
    return next((fewer for fewer in range(min(number, parties) - 1, -1, -1) if fits(fewer)), None)


def one_of(ways: list[str]) -> str:
    """The ways out as one clause, of which one is enough.

    >>> one_of(["set dropouts = 3", "have 14 parties", "pray"])
    'set dropouts = 3, have 14 parties, or pray'
    """
    comma = "," if len(ways) > 2 else ""
    return f"{', '.join(ways[:-1])}{comma} or {ways[-1]}" if len(ways) > 1 else ways[0]
