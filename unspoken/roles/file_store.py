"""A store on disk: an encrypted journal, and a small second file, the witness, that says how far the journal has come.

The journal is a header and records. Every record is sealed with AES-256-GCM under a key of this file alone, derived by
HKDF from the secret of the role's identity, the study, the role, and a random salt in the header. Each record is bound
to its number and to a digest of all records before it (the chain). Records that are written together are sealed
together and count as one. Nonces are random, so a record that a crash tore is written again under a new nonce. A
snapshot is a new file that is written completely and then replaces the old one atomically. Its name in the folder and
the witness reach the disk before a message leaves that depends on it.

The witness is a small file at another path, for example beside the identity's secret. It has the number of records and
the chain, authenticated by the same identity. It is written once the journal is on disk, and before the message that
depends on the journal leaves. It has two slots, written in turn, so that a crash can spoil only the older one.

When a store is opened, these are recognised:

- Another identity's, study's or role's file: its header does not fit the key.
- A stale journal, put back from a copy: it has fewer records than the witness counts, or other ones.
- A lost journal or a lost witness.
- A damaged record among those that the witness counts; it is named.
- A snapshot that cannot be read: it stands for all that was before it.
- A store that is in use, by locks that end with its process: one beside the journal, and one on the witness itself.

No message ever depended on records beyond those that the witness counts. A crash may have torn or lost some of them:
the first that is not whole, and all that follow, are dropped.

Not recognised: copies of journal and witness from the same moment, if both are put back together (except by a party's
ledger, if that was charged since: `roles.charging`). Keep the two files apart, and leave both out of backups and
machine snapshots. If both go back to an earlier moment, the role repeats itself from there. Attempts that it begins
then are new: their keys, noise and masks are drawn anew. But it does not know what it has spent since, so a lying
coordinator gets more totals than planned; and an attempt that was under way goes on with its old keys and noise, so it
can be made to send the same noisy vector under other masks, and the difference of the two totals shows what the others
contributed. Of other parties, at most the planned number of totals opens.

If both files are gone, the role has forgotten all that it spent. Only a party's ledger that was charged recognises this
(`Party`), so whoever loses both files must leave the study.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from unspoken.roles.store import Store, StoreError
from unspoken.summation.keys import NONCE_BYTES, TAG_BYTES, Identity

_MAGIC = b"unspoken journal 2\n"
_SALT_BYTES = 16
_MAC_BYTES = 32
_LENGTH_BYTES = 4
_MOST_WAITING = 1 << 20
"""The number of bytes that may wait in memory"""
_SLOTS = (0, 512)
"""Where the two slots of the witness begin, in different sectors of a disk"""
_REMEDY = "put its own newest copy back, or leave the study and join another under a new identity"


class Mark(NamedTuple):
    """A point in a journal: the number of records so far, and the digest of their chain."""

    records: int
    chain: bytes

    def packed(self) -> bytes:
        return struct.pack(">Q32s", *self)

    @classmethod
    def unpacked(cls, content: bytes) -> Mark:
        return cls(*struct.unpack(">Q32s", content))

    def after(self, frame: bytes | memoryview) -> Mark:
        """The point after one more record, given as it stands in the file. The chain takes in its nonce and tag."""
        ends = bytes(frame[_LENGTH_BYTES : _LENGTH_BYTES + NONCE_BYTES]) + bytes(frame[-TAG_BYTES:])
        return Mark(self.records + 1, hashlib.sha256(self.chain + ends).digest())


_BEGINNING = Mark(0, bytes(32))
_MARK_BYTES = len(_BEGINNING.packed())
_HEADER_BYTES = len(_MAGIC) + _SALT_BYTES + _MARK_BYTES + _MAC_BYTES


class Disk:
    """The operations that a store asks of the operating system. Tests replace them."""

    def write(self, file: int, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]

    def sync(self, file: int) -> None:
        os.fsync(file)

    def rename(self, old: Path, new: Path) -> None:
        """Replace a file by another, atomically."""
        os.replace(old, new)

    def sync_folder(self, folder: Path) -> None:
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


class FileStore(Store):
    """A journal on disk, for one role of one study. It is locked while it is open."""

    def __init__(
        self, path: Path, witness: Path, identity: Identity, study: str, role: str, disk: Disk | None = None
    ) -> None:
        """`study` is the study's digest; `role` is the role's address in it."""
        self._path, self._disk = path, disk or Disk()
        self._secret, self._purpose = identity.secret, f"{study}/{role}"
        self._file = self._lock = -1
        self._key, self._mark, self._length = b"", _BEGINNING, 0
        self._waiting: list[bytes] = []
        self._size = 0
        self._seen, self._rest = True, 0
        """Whether the witness's point was found in the file, and the number of bytes after the last whole record"""
        self._is_synced = self._is_named = False
        """Whether the file's content is on disk, and whether its name in the folder is"""
        self._broken = "could not be opened"
        try:
            self._lock = _locked(path)
            self._witness = _Witness(witness, identity.secret, self._purpose, self._disk)
            self._open()
            self._broken = ""
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                problem = f"cannot be used as a state ({error.strerror}); choose another file."
                raise StoreError(f"{path}: {problem}") from None
            raise

    def read(self) -> list[bytes]:
        self._check_whole()
        return self._read() + self._waiting

    def append(self, record: bytes) -> None:
        """Add a record. It waits in memory for the next `sync`, or until too much is waiting."""
        self._check_whole()
        self._waiting.append(record)
        self._size += len(record)
        if self._size > _MOST_WAITING:
            self._settle(self._flush)

    def sync(self) -> None:
        self._check_whole()
        self._settle(self._flush)
        if self._mark != self._witness.mark:
            self._settle(self._sync)
            self._settle(lambda: self._witness.write(self._mark))

    def _sync(self) -> None:
        """Write the journal to disk, and its name in the folder."""
        if not self._is_synced:
            self._disk.sync(self._file)
        if not self._is_named:
            self._disk.sync_folder(self._path.parent)
        self._is_synced = self._is_named = True

    def put(self, snapshot: bytes) -> None:
        self._check_whole()
        self._begin(snapshot)
        self._waiting, self._size = [], 0

    def close(self) -> None:
        """Release the store. What waits is written if possible, and what a snapshot replaced is erased."""
        if not self._broken:
            with suppress(OSError):
                self._flush()
                self._sync()
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1
        self._broken = "is closed"
        if hasattr(self, "_witness"):
            self._witness.close()

    def _open(self) -> None:
        """Open the journal, or begin one; refuse one that does not fit the witness."""
        seen = self._witness.mark
        if not self._path.exists():
            if seen.records:
                self._refuse(f"is gone, but its witness {self._witness.path} counts {seen.records} records; {_REMEDY}")
            self._begin(None)
            self._settle(self._sync)
        else:
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND)
            if not self._read() and self._mark.records:
                # A file replaces another only when its snapshot is complete: no crash leaves this.
                self._refuse(f"is damaged: the snapshot that it begins with cannot be read; {_REMEDY}")
            if self._mark.records and not self._witness.is_there:
                self._refuse(f"has records, but its witness {self._witness.path} is gone; {_REMEDY}")
            self._check_witness()
        if not self._witness.is_there:
            self._witness.create()

    def _begin(self, snapshot: bytes | None) -> None:
        """Begin a new file at the point in the witness. No message depended on what came after it."""
        salt, mark = os.urandom(_SALT_BYTES), self._witness.mark
        key, mac = self._keys(salt)
        content = _MAGIC + salt + mark.packed()
        content += hmac.digest(mac, content, "sha256")
        if snapshot is not None:
            frame = _frame([snapshot], key, mark)
            content, mark = content + frame, mark.after(frame)
        file = _put(self._path, content, os.O_APPEND, self._disk)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._key, self._mark = file, key, mark
        self._is_synced, self._is_named = True, False

    def _read(self) -> list[bytes]:
        """All whole records, from the first on."""
        content, records = memoryview(self._path.read_bytes()), list[bytes]()
        self._unseal_header(content)
        self._length, self._seen = _HEADER_BYTES, self._mark == self._witness.mark
        while (found := self._records(content, self._length)) is not None:
            records += found
            self._seen |= self._mark == self._witness.mark
        self._rest = len(content) - self._length
        return records

    def _check_witness(self) -> None:
        """Refuse a journal that is behind the witness, and drop the torn rest after its last whole record."""
        has, due, witness = self._mark.records, self._witness.mark.records, self._witness.path
        if not self._seen and has < due and self._rest:
            self._refuse(f"is damaged: record {has + 1} of {due} cannot be read; {_REMEDY}")
        if not self._seen and has < due:
            self._refuse(f"is stale: it has {has} records, but its witness {witness} counts {due}; {_REMEDY}")
        if not self._seen:
            self._refuse(f"is stale: it is not what its witness {witness} last saw; {_REMEDY}")
        if self._rest:
            os.ftruncate(self._file, self._length)

    def _unseal_header(self, content: memoryview) -> None:
        """Check the header, and take the records' key and the first mark from it."""
        head, mac = bytes(content[: _HEADER_BYTES - _MAC_BYTES]), content[_HEADER_BYTES - _MAC_BYTES : _HEADER_BYTES]
        self._key, mine = self._keys(head[len(_MAGIC) : len(_MAGIC) + _SALT_BYTES])
        if not head.startswith(_MAGIC) or not hmac.compare_digest(hmac.digest(mine, head, "sha256"), bytes(mac)):
            self._refuse(
                "is no state of this participant in this study (another identity, study or role, or a damaged "
                f"beginning); {_REMEDY}"
            )
        self._mark = Mark.unpacked(head[-_MARK_BYTES:])

    def _records(self, content: memoryview, start: int) -> list[bytes] | None:
        """The records that were written together at a place; nothing if they are not whole."""
        nonce = start + _LENGTH_BYTES
        sealed = nonce + NONCE_BYTES
        end = sealed + int.from_bytes(content[start:nonce], "big")
        if len(content) < end:
            return None
        try:
            plain = AESGCM(self._key).decrypt(content[nonce:sealed], content[sealed:end], self._mark.packed())
        except (InvalidTag, ValueError):
            return None
        self._mark, self._length = self._mark.after(content[start:end]), end
        return msgspec.msgpack.decode(plain, type=list[bytes])

    def _keys(self, salt: bytes) -> tuple[bytes, bytes]:
        """The keys of the records and of the header."""
        both = _derived(self._secret, 64, salt, f"store/{self._purpose}")
        return both[:32], both[32:]

    def _flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            frame = _frame(self._waiting, self._key, self._mark)
            self._disk.write(self._file, frame)
            self._mark, self._waiting, self._size, self._is_synced = self._mark.after(frame), [], 0, False

    def _settle(self, kept: Callable[[], None]) -> None:
        """Write something to disk. If that fails, it is unknown what is on disk, until the store is opened again."""
        try:
            kept()
        except BaseException as error:
            why = f" ({error.strerror})" if isinstance(error, OSError) else ""
            self._broken = f"could not be kept{why}"
            raise

    def _check_whole(self) -> None:
        if self._broken:
            raise StoreError(f"{self._path}: {self._broken}; end this process and begin again.")

    def _refuse(self, problem: str) -> NoReturn:
        raise StoreError(f"{self._path}: {problem}.")


class _Witness:
    """The file that records the point that a journal has reached."""

    def __init__(self, path: Path, secret: bytes, purpose: str, disk: Disk) -> None:
        self.path, self._disk, self._slot, self._file = path, disk, 0, -1
        self._key = _derived(secret, 32, None, f"witness/{purpose}")
        self.mark, self.is_there = _BEGINNING, path.exists()
        if self.is_there:
            self._file = os.open(path, os.O_RDWR)
            try:
                _lock(self._file, path)
                self._read()
            except BaseException:
                self.close()
                raise

    def create(self) -> None:
        self._file = _put(self.path, self._authentic(_BEGINNING), 0, self._disk)
        _lock(self._file, self.path)
        self._disk.sync_folder(self.path.parent)
        self._slot, self.is_there = 1, True

    def write(self, mark: Mark) -> None:
        """Keep the point that the journal has reached."""
        os.lseek(self._file, _SLOTS[self._slot], os.SEEK_SET)
        self._disk.write(self._file, self._authentic(mark))
        self._disk.sync(self._file)
        self.mark, self._slot = mark, 1 - self._slot

    def _authentic(self, mark: Mark) -> bytes:
        return mark.packed() + hmac.digest(self._key, mark.packed(), "sha256")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _read(self) -> None:
        content, found = self.path.read_bytes(), dict[int, Mark]()
        for slot, place in enumerate(_SLOTS):
            packed, mac = content[place : place + _MARK_BYTES], content[place + _MARK_BYTES :][:_MAC_BYTES]
            if len(packed) == _MARK_BYTES and hmac.compare_digest(hmac.digest(self._key, packed, "sha256"), mac):
                found[slot] = Mark.unpacked(packed)
        if not found:
            raise StoreError(
                f"{self.path}: is no witness of this participant in this study (another identity, study or role, or "
                f"a damaged file); {_REMEDY}."
            )
        newest = max(found, key=lambda slot: found[slot].records)
        self.mark, self._slot = found[newest], 1 - newest


def _derived(secret: bytes, length: int, salt: bytes | None, purpose: str) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, f"unspoken-1/{purpose}".encode()).derive(secret)


def _frame(records: list[bytes], key: bytes, mark: Mark) -> bytes:
    """Records as they stand together in the file after this mark: their length, a nonce, and what is sealed."""
    nonce = os.urandom(NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, msgspec.msgpack.encode(records), mark.packed())
    return b"".join([len(sealed).to_bytes(_LENGTH_BYTES, "big"), nonce, sealed])


def _put(path: Path, content: bytes, flags: int, disk: Disk) -> int:
    """Replace a file by one with this content, atomically, and open it."""
    new = path.with_name(path.name + ".new")
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | flags, 0o600)
    try:
        disk.write(file, content)
        disk.sync(file)
        disk.rename(new, path)
    except BaseException:
        os.close(file)
        with suppress(OSError):
            os.unlink(new)
        raise
    return file


def _locked(path: Path) -> int:
    """A lock beside the file, which ends with the process. (The file itself is replaced by snapshots.)"""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(lock, path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _lock(file: int, path: Path) -> None:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(f"{path}: is in use by another process; wait until it ends, or end it.") from None
