"""The ledger knows the very records that a party takes part with: a file that changes meanwhile is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commands import contents, in_process
from network.town import NAMES, Town
from unspoken.data import digests
from unspoken.data.files import DataError, read_records
from unspoken.data.records import Records
from unspoken.flower.taking_part import _TakingPart
from unspoken.study import Study

CHANGED = "was changed while it was read; wait until it is whole, and begin again."


@pytest.fixture(params=["before", "after"])
def town(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    """Somebody writes a party's file anew, just before its records are read, or just after."""
    found = Town(tmp_path)
    file = found.folder / f"{NAMES[0]}.npz"

    def change() -> None:
        rng = np.random.default_rng(1)
        np.savez(file, X=rng.normal(size=(50, 4)), y=rng.integers(0, 2, 50))

    def changing(path: Path, study: Study) -> Records:
        if request.param == "before":
            change()
        records = read_records(path, study)
        if request.param == "after":
            change()
        return records

    monkeypatch.setattr(digests, "read_records", changing)
    monkeypatch.setenv("UNSPOKEN_HOME", str(tmp_path / "homes" / NAMES[0]))
    return found


def test_who_joins_with_a_file_that_changes_is_told_before_the_question(town: Town) -> None:
    before = contents(town.folder)
    where = ("--coordinator", "127.0.0.1:9", "--patience", "0")
    done = in_process(town.folder, "join", "study.toml", "--data", f"{NAMES[0]}.npz", *where, "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"unspoken: {NAMES[0]}.npz: {CHANGED}\n")
    assert contents(town.folder).keys() == before.keys()


def test_a_site_of_a_federation_refuses_it_too(town: Town) -> None:
    place = _TakingPart.__new__(_TakingPart)
    place.study = town.study
    with pytest.raises(DataError, match=CHANGED):
        place.read(town.folder / f"{NAMES[0]}.npz")


def test_a_folder_is_no_party_s_records(tmp_path: Path) -> None:
    """The folder of a simulation has a file for each party, and this is one."""
    (folder := tmp_path / "records").mkdir()
    with pytest.raises(DataError, match=r"records: is a folder; name an NPZ file\.$"):
        digests.read_with_digest(folder, Town(tmp_path).study)
