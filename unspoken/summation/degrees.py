"""The table of `unspoken degrees`: the graphs that SecAgg+ takes, as in Bell et al.'s Figure 2."""

from __future__ import annotations

from typing import Literal

from unspoken.summation.base import Session, Unsuitable
from unspoken.summation.graph import Degree
from unspoken.summation.secagg import Options, SecAggPlus

Row = dict[str, float | int | None]

_PARTIES = (100, 300, 1_000, 3_000, 10_000)
_COLLUDING = (0.05, 0.2, 1 / 3, 0.5)


def degree_rows(dropout_fraction: float = 0.05, coordinator: Literal["lying", "curious"] = "lying") -> list[Row]:
    """Degrees and thresholds by number of parties and colluding fraction; None where a study would be refused."""
    rows: list[Row] = []
    for parties in _PARTIES:
        for fraction in _COLLUDING:
            degree = _degree(parties, int(fraction * parties), int(dropout_fraction * parties), coordinator)
            row: Row = {"parties": parties, "colluding": fraction}
            for name in ("neighbours", "threshold", "unseen"):
                row[name] = getattr(degree, name) if degree else None
            rows.append(row)
    return rows


def _degree(parties: int, colluding: int, dropouts: int, coordinator: Literal["lying", "curious"]) -> Degree | None:
    """The degree that `SecAggPlus` takes; None if it refuses the study."""
    session = Session("digest", "table", parties, colluding, parties - dropouts, 1, 64)
    try:
        return SecAggPlus(session, Options(coordinator=coordinator)).graph.degree
    except Unsuitable:
        return None


def degree_table(dropout_fraction: float = 0.05, coordinator: Literal["lying", "curious"] = "lying") -> str:
    """The same in columns, one for each colluding fraction, and a legend below."""
    rows = degree_rows(dropout_fraction, coordinator)
    lines = ["parties  " + "  ".join(f"{fraction:>8.0%} colluding" for fraction in _COLLUDING)]
    for parties in _PARTIES:
        cells = [_cell(row) for row in rows if row["parties"] == parties]
        lines.append(f"{parties:>7}  " + "  ".join(f"{cell:>18}" for cell in cells))
    return "\n".join([*lines, "", *_legend(rows, coordinator)])


def _cell(row: Row) -> str:
    return f"{row['neighbours']} ({row['threshold']})" if row["neighbours"] else "refused"


def _legend(rows: list[Row], coordinator: str) -> list[str]:
    """The meaning of the cells, by one of them for each kind that there is."""
    found = [row for row in rows if row["neighbours"]]
    lines = []
    if found:
        few, enough = found[-1]["neighbours"], found[-1]["threshold"]
        lines.append(
            f"{few} ({enough}): {few} neighbours hold shares of a party's secrets; any {enough} can open them."
        )
    everyone = [row for row in found if row["neighbours"] == (row["parties"] or 0) - 1]
    if everyone:
        lines.append(f"{_cell(everyone[0])} of {everyone[0]['parties']} parties: all others are its neighbours.")
    if len(found) < len(rows):
        allowed = "Fewer than half of those who do not collude"
        if coordinator == "curious":
            allowed = "All but two of those who do not collude"
        lines.append(f"refused: too many may collude or drop out. {allowed} may drop out.")
    return lines
