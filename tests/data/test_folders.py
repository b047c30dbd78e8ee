"""A folder of Parquet files, one for each party: the same records as in one table, a few at a time."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import unspoken
from factories import make, maker
from party_folders import DAMAGED, DATA, agreed, frame, study, written
from unspoken.cli import app
from unspoken.data import folders
from unspoken.data.digests import digest_of
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import DataError, Records
from unspoken.data.folders import FolderFederation, files_in
from unspoken.data.tables import Table
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.ledger import Ledger
from unspoken.study import Study
from unspoken.types import Floats


def as_array(study: Study, parties: int = 6) -> ArrayFederation:
    """The same parties with all their records in memory."""
    frames = [frame(party) for party in range(parties)]
    groups = np.repeat(np.arange(parties), [len(part) for part in frames])
    return ArrayFederation(study, Table(pd.concat(frames, ignore_index=True), "all").records(study), groups)


def test_blocks_are_those_of_the_same_records_in_memory(tmp_path: Path) -> None:
    folder, array = FolderFederation(agreed(), written(tmp_path)), as_array(agreed())
    assert (folder.counts() == array.counts()).all()
    for (parties, one), (others, other) in zip(folder.blocks(4), array.blocks(4), strict=True):
        assert (parties == others).all()
        for name in ("features", "labels", "counts"):
            assert (getattr(one, name) == getattr(other, name)).all()


class Halved:
    """A map of bounded records."""

    def apply(self, rows: Floats) -> tuple[Floats, Floats]:
        return rows / 2.0, np.ones(len(rows))


def test_records_go_through_the_map_that_a_method_learns_with(tmp_path: Path) -> None:
    plain, mapped = (FolderFederation(agreed(), written(tmp_path), by) for by in (None, Halved()))
    for (_, one), (_, other) in zip(plain.blocks(), mapped.blocks(), strict=True):
        assert (other.features == one.features / 2.0).all()


def test_a_folder_is_found_by_processes_that_work_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a cluster do."""
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    folder = FolderFederation(agreed(), Path(tmp_path.name))
    monkeypatch.chdir(tmp_path / "elsewhere")
    folder.check()


def test_a_run_from_a_folder_releases_the_same(tmp_path: Path) -> None:
    method = method_for(agreed())
    plan = method.plan()
    federations = (FolderFederation(agreed(), written(tmp_path)), as_array(agreed()))
    one, other = (
        local.run(method, plan, each, Conditions(secrets=SecretStream(bytes(32)))).release.weights
        for each in federations
    )
    assert (one == other).all()


def test_a_partition_of_several_files_is_one_party(tmp_path: Path) -> None:
    for party in range(6):
        (tmp_path / f"clinic={party}").mkdir()
        rows = frame(party)
        rows[:1].to_parquet(tmp_path / f"clinic={party}" / "0.parquet")
        rows[1:].to_parquet(tmp_path / f"clinic={party}" / "1.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    (tmp_path / "_delta_log").mkdir()
    frame(0).to_parquet(tmp_path / "_delta_log" / "checkpoint.parquet")
    folder, array = FolderFederation(agreed(), tmp_path), as_array(agreed())
    ((_, one),), ((_, other),) = folder.blocks(), array.blocks()
    assert (one.features == other.features).all()


def test_no_record_of_a_partition_is_left_out_or_counted_twice(tmp_path: Path) -> None:
    """Below it, too: what programs keep for themselves is passed over, and links lead to files like any others."""
    (tmp_path / "all").mkdir()
    folder = written(tmp_path / "all")
    clinic, elsewhere = folder / "clinic", tmp_path / "elsewhere"
    for place in (clinic / "2019", clinic / "_temporary", clinic / "2019" / ".copies", elsewhere):
        place.mkdir(parents=True)
        shutil.copy(folder / "00000.parquet", place / "0.parquet")
    assert files_in(folder)[6:] == [clinic / "2019" / "0.parquet"]
    (clinic / "2020").symlink_to(elsewhere)
    assert files_in(folder)[6:] == [clinic / "2019" / "0.parquet", clinic / "2020" / "0.parquet"]
    (clinic / "2021").symlink_to(clinic)
    with pytest.raises(
        DataError, match=r"2021: leads to .*clinic, which is among this party's folders already; remove"
    ):
        files_in(folder)


def test_memory_does_not_grow_with_the_number_of_parties(tmp_path: Path) -> None:
    large, sizes = pd.concat([frame(3)] * 500, ignore_index=True), (4, 8, 64)
    large.to_parquet(tmp_path / "one")
    peaks = []
    for parties in sizes:
        (folder := tmp_path / str(parties)).mkdir()
        for party in range(parties):
            shutil.copy(tmp_path / "one", folder / f"{party:05}.parquet")
        many = study(parties={"count": parties, "records": 3, "max_records": len(large)}, summation="compute-nodes")
        federation = FolderFederation(many, folder)
        gc.collect()
        tracemalloc.start()
        assert sum(len(block) for _, block in federation.blocks(4)) == parties
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 2.0 * peaks[1], peaks  # the first has the imports


def test_python_takes_a_folder(tmp_path: Path) -> None:
    done = unspoken.simulate(agreed(), written(tmp_path), X_test=frame(7))
    assert done.outcome.survivors == 6
    assert 0.0 <= done.metrics["accuracy"] <= 1.0
    with pytest.raises(DataError, match="leave y and groups out"):
        unspoken.simulate(agreed(), tmp_path, groups="sex")


TOML = """
[study]
name = "folder"
task = "classification"
[data]
label = "died"
classes = ["no", "yes"]
[data.columns]
age = { min = 0, max = 100 }
sex = { categories = ["f", "m"] }
[parties]
count = 6
records = 3
max_records = 9
[privacy]
epsilon = 1.0
delta = 1e-6
"""


def test_the_command_line_takes_a_folder_and_charges_a_ledger_for_it(tmp_path: Path) -> None:
    records, study = tmp_path / "records", tmp_path / "study.toml"
    records.mkdir()
    study.write_text(TOML)
    ledger = ("--ledger", str(tmp_path / "ledger.sqlite"), "--dataset", "folder")
    arguments = ["simulate", str(study), "--data", str(written(records)), "--output", str(tmp_path)]
    done = CliRunner().invoke(app, [*arguments, *ledger, "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["survivors"] == 6
    assert said["metrics"] == {}
    assert CliRunner().invoke(app, arguments).exit_code == 0
    refused = CliRunner().invoke(app, [*arguments, "--split", "iid"])
    assert refused.exit_code == 2
    assert "each file of the folder" in refused.stderr
    records = tmp_path / "nothing"
    records.mkdir()
    for more in (ledger, ()):
        refused = CliRunner().invoke(app, ["simulate", str(study), "--data", str(records), *more])
        assert refused.exit_code == 2
        assert "has no Parquet files" in refused.stderr


def test_a_checkpoint_knows_the_folder_by_its_records(tmp_path: Path) -> None:
    records, checkpoint = tmp_path / "records", tmp_path / "checkpoint"
    records.mkdir()
    first = unspoken.simulate(agreed(), written(records), checkpoint=checkpoint)
    again = unspoken.simulate(agreed(), records, checkpoint=checkpoint)
    assert (first.outcome.release.weights == again.outcome.release.weights).all()
    changed = frame(3)
    changed["age"] += 1.0
    changed.to_parquet(records / "00003.parquet")
    with pytest.raises(unspoken.UnspokenError, match="the checkpoint of another study or other data"):
        unspoken.simulate(agreed(), records, checkpoint=checkpoint)


def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(DataError, match=r"has 6 parties, but the study's \[parties\] count is 7"):
        FolderFederation(agreed(7), tmp_path)
    frame(0)[:2].to_parquet(tmp_path / "00002.parquet")
    with pytest.raises(DataError, match=r"00002\.parquet has 2 records, but .* asks for at least 3"):
        FolderFederation(agreed(), tmp_path)
    (tmp_path / "00002.parquet").write_text("nothing")
    with pytest.raises(DataError, match=r"00002\.parquet: is not a Parquet file"):
        FolderFederation(agreed(), tmp_path)
    matrix = maker(data={"features": 3, "classes": 2})(parties=6)
    with pytest.raises(DataError, match=r"a folder of tables, but the study's .data. describes a matrix"):
        FolderFederation(matrix, tmp_path)


def test_a_column_that_a_file_lacks_or_a_name_without_a_file_is_told_before_any_value_is_read(tmp_path: Path) -> None:
    file = written(tmp_path) / "00002.parquet"
    frame(2).drop(columns="sex").to_parquet(file)
    with pytest.raises(DataError, match=r"00002\.parquet: lacks the column 'sex' .* 'age', 'died'"):
        FolderFederation(agreed(), tmp_path)
    file.unlink()
    file.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"00002\.parquet: there is no such file"):
        FolderFederation(agreed(), tmp_path)
    file.unlink()
    os.mkfifo(file)
    for reads in (lambda: FolderFederation(agreed(), tmp_path), lambda: digest_of([tmp_path])):
        with pytest.raises(DataError, match=r"00002\.parquet: is no regular file"):
            reads()


@pytest.mark.parametrize("happens", DAMAGED)
def test_a_file_that_cannot_be_read_is_named_with_the_place_and_a_remedy(tmp_path: Path, happens: str) -> None:
    folder = FolderFederation(agreed(), written(tmp_path))
    happen, sentence = DAMAGED[happens]
    happen(tmp_path / "00002.parquet")
    for reads in (folder.check, lambda: list(folder.blocks())):
        with pytest.raises(DataError, match=sentence) as error:
            reads()
        assert "\n" not in str(error.value)


def test_nothing_is_charged_and_no_ledger_begun_for_a_file_that_does_not_fit(tmp_path: Path) -> None:
    records, ledger = tmp_path / "records", Ledger(tmp_path / "ledger.sqlite", "folder")
    records.mkdir()
    DAMAGED["another type"][0](written(records) / "00002.parquet")
    with pytest.raises(DataError, match="row 2, column 'age'"):
        unspoken.simulate(agreed(), records, ledger=ledger)
    assert [file.name for file in tmp_path.iterdir()] == ["records"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    (written(tmp_path) / "00002.parquet").chmod(0)
    with pytest.raises(DataError, match=r"00002\.parquet: may not be read; change its permissions"):
        FolderFederation(agreed(), tmp_path)
    (tmp_path / "00002.parquet").unlink()
    (tmp_path / "clinic").mkdir(0)
    with pytest.raises(DataError, match=r"clinic: cannot be read \(Permission denied\); change its permissions"):
        FolderFederation(agreed(), tmp_path)
    (tmp_path / "clinic").chmod(0o700)
    (tmp_path / "clinic" / "2019").mkdir(0)
    with pytest.raises(DataError, match=r"2019: cannot be read \(Permission denied\); change its permissions"):
        FolderFederation(agreed(), tmp_path)


def test_files_without_rows_are_passed_over_and_a_party_may_have_none_if_the_promise_hides_it(tmp_path: Path) -> None:
    for party in range(6):
        (tmp_path / f"clinic={party}").mkdir()
        frame(party)[:0].to_parquet(tmp_path / f"clinic={party}" / "0.parquet")
        frame(party)[: 9 * (party < 3)].to_parquet(tmp_path / f"clinic={party}" / "1.parquet")
    hidden = agreed(unit="party", adjacency="add-remove", method={"name": "moments"})
    folder = FolderFederation(hidden, tmp_path)
    assert folder.counts().tolist() == [3, 4, 5, 0, 0, 0]
    blocks = dict(zip("ab", (block for _, block in folder.blocks(3)), strict=True))
    assert blocks["a"].features.shape == (3, 5, 4)
    assert blocks["b"].features.shape == (3, 0, 4)
    folder.check()


def test_a_file_that_changes_in_the_middle_ends_the_run(tmp_path: Path) -> None:
    folder = FolderFederation(agreed(), written(tmp_path))
    frame(0).to_parquet(tmp_path / "00001.parquet")
    with pytest.raises(DataError, match=r"00001\.parquet: has changed since the run began"):
        list(folder.blocks())


def test_a_file_that_changes_while_it_is_read_for_the_first_time_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger and the checkpoint know the values that it had, and what is read again would be others."""
    file, read = written(tmp_path) / "00003.parquet", folders.read_records

    def changing(path: Path, described: Study) -> Records:
        found = read(path, described)
        if path == file:
            frame(3).assign(age=7.0).to_parquet(file)
        return found

    monkeypatch.setattr(folders, "read_records", changing)
    with pytest.raises(DataError, match=r"00003\.parquet: has changed since the run began; run it again"):
        FolderFederation(agreed(), tmp_path).check()


def test_a_file_whose_values_change_in_the_middle_ends_the_run_too(tmp_path: Path) -> None:
    """It has as many rows as before. The ledger is charged for the values that it had, and the checkpoint's noise was
    drawn for these."""
    (folder := tmp_path / "records").mkdir()
    file, account = written(folder) / "00003.parquet", Ledger(tmp_path / "ledger.sqlite", "records")
    other = frame(3).assign(age=7.0)

    def change(what: str, done: int, parties: int) -> None:
        if what.startswith("training"):
            other.to_parquet(file)

    sizes = {"count": 6, "records": 3, "max_records": 9}
    several = make("moments", data=DATA, parties=sizes, method={"function": "softmax", "steps": 2})
    for more in ({"checkpoint": tmp_path / "checkpoint"}, {}):
        frame(3).to_parquet(file)
        with pytest.raises(DataError, match=r"00003\.parquet: has changed since the run began; run it again"):
            unspoken.simulate(several, folder, ledger=account, progress=change, **more)


def test_what_was_read_before_a_run_is_known_in_other_processes(tmp_path: Path) -> None:
    """On a cluster a file may be read again by a process that has not read it: a run that was charged notices."""
    federation = FolderFederation(agreed(), written(tmp_path))
    federation.check()
    elsewhere = pickle.loads(pickle.dumps(federation))  # noqa: S301
    changed = frame(3)
    changed["age"] += 1.0
    changed.to_parquet(tmp_path / "00003.parquet")
    with pytest.raises(DataError, match=r"00003\.parquet: has changed since the run began; run it again"):
        elsewhere.block(np.array([3]))
