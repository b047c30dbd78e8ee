"""A store on disk: what is kept survives a crash at any point; what is stale, foreign or damaged is refused by name."""

from __future__ import annotations

import os
import resource
import shutil
import signal
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

from disks import ME, RECORDS, FailingDisk, Folder, PowerCut
from unspoken.roles.file_store import _HEADER_BYTES, FileStore
from unspoken.roles.store import StoreError
from unspoken.summation.keys import Identity

OTHER = Identity(bytes(32))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_what_is_kept_is_there_again(folder: Folder) -> None:
    assert folder.read() == []
    folder.fill()
    assert folder.read() == RECORDS
    assert folder.read() == RECORDS


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
    with pytest.raises(StoreError, match=r"is no state of this participant in this study .* choose its own file"):
        folder.open(**other)
    assert folder.journal.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"x", b"unspoken journal 1\n", bytes(1000)])
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
        with pytest.raises(StoreError, match=r"is stale: it has \d records, but its witness .* counts 8; put the new"):
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
    with pytest.raises(StoreError, match=r"is gone, but its witness .* counts 4 records; put the newest copy back, or"):
        folder.open()
    assert not folder.journal.exists()
    folder.journal.write_bytes(journal)
    folder.witness.unlink()
    with pytest.raises(StoreError, match=r"has records, but its witness .* is gone; put the newest copy back, or"):
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
    with pytest.raises(StoreError, match="is damaged: record 3 of 4 cannot be read; put the newest copy back"):
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


def _scratch() -> Path:
    return Path(tempfile.mkdtemp(dir=_SCRATCH[0]))


_SCRATCH: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def _a_place_for_scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    _SCRATCH.append(tmp_path_factory.mktemp("scratch"))
    yield
    _SCRATCH.clear()


@cache
def _filled() -> tuple[bytes, bytes]:
    folder = Folder(_scratch())
    folder.fill([b"snapshot", b"first", b"second"])
    return folder.journal.read_bytes(), folder.witness.read_bytes()


def test_a_torn_tail_that_nothing_relied_on_is_dropped(folder: Folder) -> None:
    """Records were appended and not yet kept: a crash may leave any part of them, and zeros where nothing arrived."""
    folder.fill()
    store = folder.open()
    kept = folder.journal.stat().st_size
    store.append(b"fourth")
    store.append(b"fifth")
    store.close()
    whole = folder.journal.read_bytes()
    for length in range(kept, len(whole)):
        for tail in (b"", bytes(len(whole) - length)):
            folder.journal.write_bytes(whole[:length] + tail)
            found = folder.read()
            assert found[:4] == RECORDS
            assert found[4:] in ([], [b"fourth"])
            # What is appended later follows what is whole.
            store = folder.open()
            store.append(b"later")
            store.close()
            assert folder.read() == [*found, b"later"]


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


def _life(store: FileStore, said: list[int]) -> None:
    """Four things are said, each when it is kept: after a snapshot, or a message; and one is appended for nothing."""
    for number in range(4):
        if number % 2:
            store.append(bytes([number]))
            store.sync()
        else:
            store.append(b"for nothing")
            store.replace(bytes([number]))
        said.append(number)


def _last(records: list[bytes]) -> int:
    """The last thing that the records know to have been said."""
    known = [record[0] for record in records if record != b"for nothing"]
    return max(known, default=-1)


@pytest.mark.parametrize(("torn", "lost"), [(0.0, False), (0.5, False), (1.0, False), (0.0, True)])
def test_after_a_power_cut_at_any_point_all_that_was_said_is_known(torn: float, lost: bool, tmp_path: Path) -> None:
    """And it is opened again without complaint, with at most one thing that was kept and not said. What was not synced
    is there, in part, or lost."""
    cuts = 0
    for operations in range(100):
        before, after = Folder(tmp_path / f"{operations}"), tmp_path / f"{operations}-after"

        def cut(disk: FailingDisk, before: Folder = before, after: Path = after) -> None:
            disk.survivors(before.folder, after) if lost else shutil.copytree(before.folder, after)
            raise PowerCut

        said: list[int] = []
        try:
            store = before.open(disk=FailingDisk(operations, cut, torn))
            _life(store, said)
            store.close()
            break
        except PowerCut:
            cuts += 1
        found = _last(Folder(after).read())
        assert found in (said[-1] if said else -1, len(said))
        # It goes on.
        store = Folder(after).open()
        store.replace(b"\x05")
        store.close()
        assert Folder(after).read() == [b"\x05"]
    assert said == [0, 1, 2, 3]
    assert cuts > 20


@pytest.mark.parametrize("damage", ["flipped", "cut off"])
@pytest.mark.parametrize("place", [_HEADER_BYTES, -1])
def test_a_snapshot_that_cannot_be_read_is_refused_also_if_the_witness_has_not_seen_it(
    damage: str, place: int, folder: Folder
) -> None:
    """The power goes after a snapshot took the place of all records, and before the witness knows. If it were dropped
    as something that nothing relied on, the role would begin as if it had never taken part."""
    folder.fill()

    def cut(disk: FailingDisk) -> None:
        raise PowerCut

    store = folder.open(disk=FailingDisk(4, cut))
    with pytest.raises(PowerCut):
        store.replace(b"all that was spent")
    store.close()
    assert folder.read() == [b"all that was spent"]
    content = bytearray(folder.journal.read_bytes())
    content[place] ^= 1
    folder.journal.write_bytes(content if damage == "flipped" else content[:place])
    with pytest.raises(StoreError, match="is damaged: the snapshot that it begins with cannot be read; put the newest"):
        folder.open()


@pytest.mark.parametrize("torn", [0.0, 0.5])
def test_a_failed_operation_says_so_and_a_new_beginning_goes_on(torn: float, tmp_path: Path) -> None:
    """A full disk or a failing one: nothing is said that is not kept, and what was said stays known. Before anything
    is uncertain, the same store goes on; otherwise it asks for a new beginning."""
    went_on = ended = 0
    for operations in range(100):
        folder = Folder(tmp_path / f"{operations}")

        def fail(disk: FailingDisk) -> None:
            raise OSError(28, "No space left on device")

        disk, said = FailingDisk(operations, fail, torn), list[int]()
        try:
            store = folder.open(disk=disk)
        except (OSError, StoreError):
            folder.open().close()
            continue
        try:
            _life(store, said)
            break
        except OSError:
            disk.left = 1000
        if store._broken:
            with pytest.raises(StoreError, match="end this process and begin again"):
                store.replace(b"\x05")
            store.close()
            assert _last(folder.read()) in (said[-1] if said else -1, len(said))
            ended += 1
        else:
            assert _last(store.read()) == (said[-1] if said else -1)
            store.replace(b"\x05")
            store.close()
            went_on += 1
    assert went_on > 3
    assert ended > 3


def test_a_full_disk_leaves_the_records_as_they_were(folder: Folder) -> None:
    """The error is the operating system's own: no file may grow beyond a limit."""
    folder.fill()
    store = folder.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (folder.journal.stat().st_size + 100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            store.replace(os.urandom(50_000))
        assert store.read() == RECORDS
        store.append(b"short")
        store.sync()
        store.append(os.urandom(5000))
        with pytest.raises(OSError, match="File too large"):
            store.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    with pytest.raises(StoreError, match=r"could not be kept \(File too large\); end this process and begin again"):
        store.append(b"more")
    store.close()
    assert folder.read() == [*RECORDS, b"short"]


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
