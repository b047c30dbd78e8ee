"""The line of column names of a CSV file, and what is wrong with a file that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from unspoken.data.lines import csv_header, looks_like_a_record, malformed, torn, uneven
from unspoken.data.records import DataError


def written(folder: Path, content: bytes) -> Path:
    path = folder / "heart.csv"
    path.write_bytes(content)
    return path


def test_names_are_read_whatever_follows_them(tmp_path: Path) -> None:
    assert csv_header(written(tmp_path, b'\xef\xbb\xbfage,"blood, pressure"\n\xff\xfe')) == ["age", "blood, pressure"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "begins with an empty line or has none"),
        (b" ,\n1,2\n", "begins with an empty line or has none"),
        (b"PAR1\x15\x04,died\n", "is not a CSV file, as its first line is no text"),
        (b"s\xe9x,died\n", "is not a CSV file in UTF-8, as line 1 has the byte 0xe9"),
    ],
)
def test_a_file_without_names_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        csv_header(written(tmp_path, content))


def test_a_record_in_place_of_names_is_not_shown() -> None:
    assert looks_like_a_record(["age", "died"]) == ""
    found = looks_like_a_record(["Miller", "47", "yes"])
    assert found.startswith("field 2 of its first line is a number")
    assert "47" not in found
    assert "Miller" not in found


def test_a_line_is_named_as_an_editor_counts_it(tmp_path: Path) -> None:
    path = written(tmp_path, b'age,note\n1,"two\nlines"\n\n2,a,b\n')
    assert str(uneven(path)).endswith("line 5: has 3 values, but there are 2 column names; repair the line, and put "
                                      "values with a comma in quotation marks.")  # fmt: skip
    assert uneven(written(tmp_path, b"age,note\n1,a\n\n")) is None


def test_a_carriage_return_in_a_value_begins_no_record(tmp_path: Path) -> None:
    """Python writes it without quotes; in quotes, and where all lines end so, it is what it seems."""
    for content in (b"a,b\n1,x\n2,y\rz\n", b"a,b\n1,x\n2,\r\r\r\n", b'a,b\r\n1,"q"\r\n2,\r'):
        assert "line 3: has a carriage return in a value without quotes" in str(torn(written(tmp_path, content)))
    for content in (b'a,b\n1,x\n2,"y\rz"\n', b"a,b\r\n1,x\r\n", b"a,b\r1,x\r", b"a,b\n1,x\n", b'a,b\n1,"""\r"""\n'):
        assert torn(written(tmp_path, content)) is None


def test_what_nobody_foresaw_is_quoted_on_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"age,note\n1,a\n")
    assert "(some\nthing)".replace("\n", " ") in str(malformed(path, ValueError("some\nthing")))
