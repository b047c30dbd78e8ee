"""A store on disk after power cuts, failed operations and full disks at any point: all that was said is known."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from disks import RECORDS, FailingDisk, Folder, PowerCut
from unspoken.roles.file_store import _HEADER_BYTES, FileStore
from unspoken.roles.store import StoreError


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


def _life(store: FileStore, said: list[int]) -> None:
    """Four things are said, each when it is kept: after a snapshot, or a message. Some are appended for nothing."""
    for number in range(4):
        if number % 2:
            store.append(bytes([number]))
            store.sync()
        else:
            store.append(b"for nothing")
            store.put(bytes([number - 1]) if number else b"for nothing")
            store.append(b"for nothing")
            store.put(bytes([number]))
            store.sync()
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
    with pytest.raises(StoreError, match="damaged: the snapshot that it begins with cannot be read; put its own"):
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
