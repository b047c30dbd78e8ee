"""A store on disk: what is kept is there again; what is stale, foreign, damaged or in use is refused by name."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disks import ME, RECORDS, Folder
from unspoken.roles.file_store import _HEADER_BYTES, FileStore
from unspoken.roles.store import StoreError
from unspoken.summation.keys import Identity

OTHER = Identity(bytes(32))


def test_what_is_kept_is_there_again(folder: Folder) -> None:
    assert folder.read() == []
    folder.fill()
    assert folder.read() == RECORDS
    assert folder.read() == RECORDS


def test_records_that_wait_for_one_sync_are_all_there_again_in_their_order(folder: Folder) -> None:
    store = folder.open()
    store.replace(b"snapshot")
    for number in range(300):
        store.append(number.to_bytes(2, "big"))
    before = folder.journal.stat().st_size
    store.sync()
    store.append(b"alone")
    store.sync()
    store.close()
    assert folder.read() == [b"snapshot", *(number.to_bytes(2, "big") for number in range(300)), b"alone"]
    # Sealed together: not 300 nonces and tags.
    assert folder.journal.stat().st_size - before < 300 * 28


def test_a_snapshot_takes_the_place_of_all_records_and_leaves_nothing_of_them(folder: Folder) -> None:
    folder.fill()
    before = folder.journal.read_bytes()
    store = folder.open()
    store.append(b"not yet kept")
    store.replace(b"small")
    store.append(b"more")
    store.sync()
    store.close()
    assert folder.read() == [b"small", b"more"]
    after = folder.journal.read_bytes()
    assert len(after) < 300
    # Not even sealed: no piece of the old file is in the new one, but for what all files begin with.
    pieces = {before[start : start + 8] for start in range(_HEADER_BYTES, len(before) - 8)}
    assert not any(after[start : start + 8] in pieces for start in range(_HEADER_BYTES, len(after) - 8))
    assert sorted(path.name for path in folder.journal.parent.iterdir()) == ["journal", "journal.lock"]


def test_nothing_can_be_read_without_the_key_and_files_are_the_owner_s(folder: Folder) -> None:
    folder.fill()
    for path in (folder.journal, folder.witness):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not any(record in path.read_bytes() for record in RECORDS)


@pytest.mark.parametrize("other", [{"identity": OTHER}, {"study": "another"}, {"role": "party:1"}])
def test_a_foreign_state_is_refused(other: dict[str, Any], folder: Folder) -> None:
    folder.fill()
    content = folder.journal.read_bytes()
    with pytest.raises(StoreError, match="is no witness of this participant in this study"):
        folder.open(**other)
    folder.witness.unlink()
    with pytest.raises(
        StoreError,
        match=r"is no state of this participant in this study .*\); put its own newest copy back, or leave the study",
    ):
        folder.open(**other)
    assert folder.journal.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"x", b"unspoken journal 2\n", bytes(1000)])
def test_a_file_that_is_no_journal_is_refused(content: bytes, folder: Folder) -> None:
    folder.journal.write_bytes(content)
    with pytest.raises(StoreError, match="is no state of this participant"):
        folder.open()
    assert folder.journal.read_bytes() == content


def test_a_stale_journal_is_refused(folder: Folder) -> None:
    """Every earlier moment of the journal, put back under the witness of now."""
    copies, store = [], folder.open()
    for record in RECORDS:
        copies.append(folder.journal.read_bytes())
        store.replace(record)
        copies.append(folder.journal.read_bytes())
        store.append(record)
        store.sync()
    store.close()
    now = folder.journal.read_bytes()
    for copy in copies:
        folder.journal.write_bytes(copy)
        with pytest.raises(
            StoreError, match=r"is stale: it has \d records, but its witness .* counts 8; put its own new"
        ):
            folder.open()
    folder.journal.write_bytes(now)
    assert folder.read() == [RECORDS[-1]] * 2


def test_another_history_of_the_same_length_is_refused(folder: Folder, tmp_path: Path) -> None:
    """A copy of both files went on by itself. Its journal does not fit the witness that saw other records."""
    folder.fill(RECORDS[:2])
    shutil.copytree(folder.folder, twin := tmp_path.parent / (tmp_path.name + "-twin"))
    for each, record in ((folder, b"mine"), (Folder(twin), b"theirs"), (Folder(twin), b"and more")):
        store = each.open()
        store.append(record)
        store.sync()
        store.close()
    shutil.copy(Folder(twin).journal, folder.journal)
    with pytest.raises(StoreError, match=r"is stale: it is not what its witness .* last saw"):
        folder.open()


def test_a_lost_file_is_noticed(folder: Folder) -> None:
    folder.fill()
    journal, witness = folder.journal.read_bytes(), folder.witness.read_bytes()
    folder.journal.unlink()
    with pytest.raises(
        StoreError, match=r"is gone, but its witness .* counts 4 records; put its own newest copy back, or"
    ):
        folder.open()
    assert not folder.journal.exists()
    folder.journal.write_bytes(journal)
    folder.witness.unlink()
    with pytest.raises(StoreError, match=r"has records, but its witness .* is gone; put its own newest copy back, or"):
        folder.open()
    folder.witness.write_bytes(witness)
    assert folder.read() == RECORDS


def test_copies_of_both_files_from_the_same_moment_are_not_recognised(folder: Folder) -> None:
    """The stated limit: nothing on this disk knows better."""
    folder.fill(RECORDS[:2])
    journal, witness = folder.journal.read_bytes(), folder.witness.read_bytes()
    store = folder.open()
    store.append(b"forgotten")
    store.sync()
    store.close()
    folder.journal.write_bytes(journal)
    folder.witness.write_bytes(witness)
    assert folder.read() == RECORDS[:2]


def test_a_damaged_record_is_refused_by_its_number(folder: Folder) -> None:
    folder.fill()
    whole = folder.journal.read_bytes()
    damaged = bytearray(whole)
    # In the third record, which is the long one.
    damaged[len(whole) // 2] ^= 1
    folder.journal.write_bytes(damaged)
    with pytest.raises(StoreError, match="is damaged: record 3 of 4 cannot be read; put its own newest copy back"):
        folder.open()
    assert folder.journal.read_bytes() == damaged


@given(place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_no_flipped_byte_goes_unnoticed(place: int, flip: int) -> None:
    journal, witness = _filled()
    content = bytearray(journal)
    content[place % len(content)] ^= flip
    folder = Folder(_scratch())
    folder.journal.write_bytes(content)
    folder.witness.write_bytes(witness)
    with pytest.raises(StoreError):
        folder.open()


_SCRATCH: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def _a_place_for_scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    _SCRATCH.append(tmp_path_factory.mktemp("scratch"))
    yield
    _SCRATCH.clear()


def _scratch() -> Path:
    return Path(tempfile.mkdtemp(dir=_SCRATCH[0]))


@cache
def _filled() -> tuple[bytes, bytes]:
    folder = Folder(_scratch())
    folder.fill([b"snapshot", b"first", b"second"])
    return folder.journal.read_bytes(), folder.witness.read_bytes()


def test_two_stores_on_one_journal_are_refused(folder: Folder) -> None:
    store = folder.open()
    with pytest.raises(StoreError, match="is in use by another process; wait until it ends"):
        folder.open()
    store.close()
    folder.open().close()


def test_who_deletes_the_lock_does_not_get_a_second_store(folder: Folder) -> None:
    """Two processes on one state would each spend all that there is. The witness itself is locked, too; without it,
    nothing opens."""
    folder.fill()
    store = folder.open()
    for path in folder.journal.parent.glob("*.lock"):
        path.unlink()
    with pytest.raises(StoreError, match=r"witness: is in use by another process"):
        folder.open()
    store.close()
    assert folder.read() == RECORDS


def test_a_refused_witness_is_not_held(folder: Folder) -> None:
    folder.fill()
    with pytest.raises(StoreError, match="is no witness of this participant"):
        folder.open(identity=OTHER)
    assert folder.read() == RECORDS


def test_a_new_witness_is_locked_like_an_old_one(folder: Folder) -> None:
    store = folder.open()
    Path(f"{folder.journal}.lock").unlink()
    with pytest.raises(StoreError, match="is in use by another process"):
        folder.open()
    store.close()


def test_a_lock_ends_with_its_process(folder: Folder) -> None:
    program = (
        "import os, sys; from pathlib import Path; from unspoken.roles.file_store import FileStore; "
        "from unspoken.summation.keys import Identity; "
        f"store = FileStore(Path({str(folder.journal)!r}), Path({str(folder.witness)!r}), Identity(bytes(range(32))), "
        "'study', 'party:0'); store.replace(b'theirs'); print('open', flush=True); sys.stdin.read(1); os._exit(9)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="is in use by another process"):
            folder.open()
    finally:
        child.communicate("x", timeout=300)
    assert child.returncode == 9
    assert folder.read() == [b"theirs"]


def test_a_folder_that_cannot_be_written_to_is_named(folder: Folder) -> None:
    with pytest.raises(StoreError, match=r"cannot be used as a state .No such file or directory.; choose another file"):
        FileStore(folder.folder / "nowhere" / "journal", folder.witness, ME, "study", "party:0")


def test_the_same_record_is_never_sealed_in_the_same_way(folder: Folder) -> None:
    """Also not when a torn record is written again under the same number: nonces are drawn anew."""
    folder.fill()
    kept, seen = folder.journal.stat().st_size, set[bytes]()
    for _ in range(20):
        store = folder.open()
        store.append(b"again")
        store.close()
        seen.add(folder.journal.read_bytes()[kept + 4 : kept + 16])
        os.truncate(folder.journal, kept + 20)
    assert len(seen) == 20
