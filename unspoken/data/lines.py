"""The lines of a CSV file: its line of column names, and what is wrong with a file that cannot be read.

If the first line seems not to be a line of names, messages do not show it: it may be a person's record.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from unspoken.data.records import DataError


def csv_header(path: Path) -> list[str]:
    """The column names in a file's first line. What follows it may be anything."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            names = next(csv.reader(file), [])
        "".join(names).encode()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); name another file.") from None
    except (ValueError, csv.Error) as error:
        raise malformed(path, error) from None
    if any(character < " " and not character.isspace() for name in names for character in name):
        raise DataError(f"{path}: is not a CSV file, as its first line is no text; save the table as CSV.")
    if not any(name.strip() for name in names):
        raise DataError(f"{path}: begins with an empty line or has none; its first line should be column names.")
    return names


def looks_like_a_record(names: list[str]) -> str:
    """The end of a sentence about a file whose first line has numbers where names should be; empty if it has none."""
    places = [place for place, name in enumerate(names, 1) if _is_number(name)]
    if not places:
        return ""
    return (
        f"field {places[0]} of its first line is a number, so it looks like a record and not like column names; put a "
        "line of names first"
    )


def malformed(path: Path, error: Exception) -> DataError:
    """What is wrong with a file that could not be read, and where."""
    try:
        path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as found:
        line = found.object[: found.start].count(b"\n") + 1
        return DataError(
            f"{path}: is not a CSV file in UTF-8, as line {line} has the byte 0x{found.object[found.start]:02x}; save "
            "it in UTF-8."
        )
    text = " ".join(str(error).split())
    if opened := re.search(r"EOF inside string starting at row (\d+)", text):
        line = int(opened.group(1)) + 1
        return DataError(f"{path}, line {line}: has a quotation mark that no other one closes; repair the line.")
    return uneven(path) or DataError(
        f"{path}: is not a CSV file in UTF-8 with a line of column names ({text}); repair it."
    )


def uneven(path: Path) -> DataError | None:
    """An error about the first line that has more or fewer values than there are column names; None if only blank lines
    do."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        names = len(next(reader, []))
        try:
            found = next(((reader.line_num, len(row)) for row in reader if len(row) not in (0, names)), None)
        except csv.Error:
            return None
    if found is None:
        return None
    line, values = found
    return DataError(
        f"{path}, line {line}: has {values} value{'s' if values > 1 else ''}, but there are {names} column names; "
        "repair the line, and put values with a comma in quotation marks."
    )


def blank_lines_at_end(path: Path) -> int:
    """The number of lines at a file's end in which there is nothing at all."""
    count = 0
    with path.open(encoding="latin-1") as file:  # it reads any bytes, and all kinds of ends of lines
        for line in file:
            count = 0 if line.strip("\n") else count + 1
    return count


def torn(path: Path) -> DataError | None:
    """The error of a carriage return in a value that is not quoted, in a file whose lines end otherwise.

    It would end a record, so that one value could make several of one. Python writes such values without quotes.
    """
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    returns = np.flatnonzero(content == ord("\r"))
    if not len(returns) or not (content == ord("\n")).any():
        return None
    following = content[np.minimum(returns + 1, len(content) - 1)]
    alone = returns[(following != ord("\n")) | (returns + 1 == len(content))]
    quotes = np.flatnonzero(content == ord('"'))
    torn_at = alone[np.searchsorted(quotes, alone) % 2 == 0]
    if not len(torn_at):
        return None
    line = 1 + int((content[: torn_at[0]] == ord("\n")).sum())
    return DataError(
        f"{path}, line {line}: has a carriage return in a value without quotes, where other programs would begin "
        "another record; quote the value, or remove the carriage return."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
