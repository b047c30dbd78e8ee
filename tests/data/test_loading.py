"""Records come with the parties that they belong to: by a column, or by a file each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unspoken
from factories import maker
from unspoken.data.files import read_header, read_records
from unspoken.data.loading import joined, load
from unspoken.data.records import DataError, Records
from unspoken.study import Study

study = maker("moments", parties={"count": 2, "records": 2, "max_records": 4})
AGE: dict[str, Any] = {"age": {"min": 0, "max": 100}}
TABLE = {"age": [0, 50, 100, 150, 100], "died": ["no", "yes", "no", "yes", "no"], "site": ["s", "n", "s", "n", "n"]}


def table_study(**columns: Any) -> Study:
    return study(data={"label": "died", "classes": ["no", "yes"], "columns": columns or AGE})


def write(path: Path, table: Any) -> Path:
    frame = pd.DataFrame(table)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


def complaint(paths: list[Path], agreed: Study, parties_by: str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load(paths, agreed, parties_by)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_says_whose_records_are_whose_and_is_no_feature(tmp_path: Path, suffix: str) -> None:
    loaded = load([write(tmp_path / f"all{suffix}", TABLE)], table_study(), "site")
    assert loaded.parties is not None
    assert loaded.parties.tolist() == [1, 0, 1, 0, 0]
    assert loaded.records.features.tolist() == [[-1], [0], [1], [1], [1]]
    assert loaded.records.outside == {"age": 0.2}


def test_the_parties_column_is_a_feature_if_the_study_says_so(tmp_path: Path) -> None:
    loaded = load([write(tmp_path / "all.csv", TABLE)], table_study(site={"categories": ["n", "s"]}), "site")
    assert loaded.records.features.tolist() == [[0, 1], [1, 0], [0, 1], [1, 0], [1, 0]]


def test_each_of_several_files_is_a_party(tmp_path: Path) -> None:
    frame = pd.DataFrame(TABLE)
    paths = [write(tmp_path / "b.csv", frame[:2]), write(tmp_path / "a.parquet", frame[2:])]
    loaded = load(paths, table_study())
    assert loaded.parties is not None
    assert loaded.parties.tolist() == [0, 0, 1, 1, 1]
    np.testing.assert_array_equal(
        loaded.records.features, load([write(tmp_path / "all.csv", frame)], table_study()).records.features
    )
    assert loaded.records.outside == pytest.approx({"age": 0.2})


def test_matrices_come_one_a_party_or_with_an_array_of_parties(tmp_path: Path) -> None:
    agreed = study(data={"features": 1, "classes": 2})
    rows, labels = np.arange(5.0)[:, None], np.arange(5) % 2
    np.savez(tmp_path / "all.npz", X=rows, y=labels, site=["s", "n", "s", "n", "n"])
    np.savez(tmp_path / "a.npz", X=rows[:2], y=labels[:2])
    np.savez(tmp_path / "b.npz", X=rows[2:], y=labels[2:])
    by_array = load([tmp_path / "all.npz"], agreed, "site")
    apart = load([tmp_path / "a.npz", tmp_path / "b.npz"], agreed)
    assert by_array.parties is not None
    assert apart.parties is not None
    assert (by_array.parties.tolist(), apart.parties.tolist()) == ([1, 0, 1, 0, 0], [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(by_array.records.features, apart.records.features)
    assert "has no array 'ward' (it has: 'X', 'y', 'site')" in complaint([tmp_path / "all.npz"], agreed, "ward")
    assert "X has the shape (5, 1), but should have a value for each record." in complaint(
        [tmp_path / "all.npz"], agreed, "X"
    )


def test_a_split_that_does_not_fit_is_told_in_one_sentence(tmp_path: Path) -> None:
    path, agreed = write(tmp_path / "all.csv", TABLE), table_study()
    other = write(tmp_path / "one.csv", pd.DataFrame(TABLE)[:1])
    assert "lacks the column 'sight' that is to name the parties; the table has: 'age', 'died', 'site' — did" in (
        complaint([path], agreed, "sight").replace("; did", " — did")
    )
    assert complaint([path], agreed, "age").startswith(
        "--parties-by age names 4 parties, but the study's [parties] cou"
    )
    assert complaint([path, path], agreed).endswith("all.csv twice, but each file is a party of its own; name it once.")
    said = complaint([tmp_path, path], agreed)
    assert said.startswith(f"--data is {tmp_path}, a folder, beside others")
    assert said.endswith("name files only (simulate takes a folder alone, with a file for each party).")
    assert complaint([path, other], agreed, "site").startswith("--parties-by is 'site', but each --data is a party")
    three = [path, other, tmp_path / "two.csv"]
    assert complaint(three, agreed).startswith("3 files were given, one a party, but the study's")
    assert f"{other} has 1 record, but the study's [parties] asks for at least 2" in complaint(
        [write(tmp_path / "four.csv", pd.DataFrame(TABLE)[:4]), other], agreed
    )
    holes = write(tmp_path / "holes.csv", TABLE | {"site": ["s", "", "s", "n", "n"]})
    assert "holes.csv, line 3, column 'site': is empty, but should name the record's party; fill it in." in complaint(
        [holes], agreed, "site"
    )
    uneven = write(tmp_path / "uneven.csv", TABLE | {"site": ["s", "n", "n", "n", "n"]})
    assert complaint([uneven], agreed, "site").startswith("party 's' has 1 record, but the study's [parties] asks")


def test_joined_files_share_their_shares() -> None:
    one, other = (
        Records(np.zeros((1, 2)), np.zeros(1), {"a": np.array([True])}),
        Records(np.zeros((3, 2)), np.zeros(3), {"b": np.array([True, False, False])}),
    )
    assert joined([one, other]).outside == {"a": 0.25, "b": 0.25}


def test_what_is_no_file_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv: is no regular file; name a CSV or Parquet file\.$"):
        read_records(tmp_path / "pipe.csv", table_study())
    with pytest.raises(DataError, match=r"nope\.csv: there is no such file; name a CSV or Parquet file\.$"):
        read_header(tmp_path / "nope.csv")


def test_a_file_in_place_of_a_folder_is_to_be_read_first(tmp_path: Path) -> None:
    (tmp_path / "rich.csv").write_text("age,lab\n1,a\n")
    with pytest.raises(DataError, match=r"X is the file .*rich\.csv, but should be .*; read it with pandas, or"):
        unspoken.simulate(table_study(), tmp_path / "rich.csv", groups="lab")
