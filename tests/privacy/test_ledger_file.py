"""The ledger's file: durable, shared by processes, and refused if it is damaged or something else."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unspoken.privacy.events import Gaussian, Spend, SubsampledGaussian
from unspoken.privacy.gaussian import epsilon_of
from unspoken.privacy.guarantee import Trust
from unspoken.privacy.ledger import Ledger, LedgerError, Run
from unspoken.privacy.ledger_file import LedgerFile

DELTA = 1e-6
SAMPLED = SubsampledGaussian(1.5, 0.1, "poisson", 3)


def run_of(identifier: str = "run") -> Run:
    return Run(
        identifier=identifier,
        study="heart",
        study_sha256="5f",
        method="moments",
        group=1,
        adjacency="replace",
        delta=DELTA,
        slack=0.0,
        distance=0.0,
        trust=Trust(10, 2, 1),
    )


def changed(path: Path, command: str, *values: Any) -> None:
    base = sqlite3.connect(path)
    with base:
        base.execute(command, values)
    base.close()


def added(path: Path, content: dict[str, Any]) -> None:
    """A page after the others, well chained."""
    base = sqlite3.connect(path)
    number, chain = base.execute("SELECT number, chain FROM pages ORDER BY number DESC").fetchone()
    base.close()
    text = json.dumps(content)
    digest = hashlib.sha256(chain + text.encode()).digest()
    changed(path, "INSERT INTO pages VALUES (?, ?, ?)", number + 1, text, digest)


def charge(**said: Any) -> dict[str, Any]:
    """A page as JSON."""
    return {"kind": "charge", "dataset": "records", "run": "run", "attempt": "b", "when": "", "events": []} | said


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("date,amount\n" * 999), "is not a ledger"),
    "another database": (lambda path: (path.unlink(), changed(path, "CREATE TABLE t (x)")), "is not a ledger"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be used as a ledger"),
    "another format": (lambda path: changed(path, "PRAGMA user_version = 2"), "ledger of format 2"),
    "a page lost": (lambda path: changed(path, "DELETE FROM pages WHERE number = 1"), "is damaged"),
    "bytes overwritten": (lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(4096)), "is damaged"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:5000]), "is damaged"),
    "an unknown page": (lambda path: added(path, {"kind": "refund", "dataset": "records"}), "does not know"),
    "an unknown event": (lambda path: added(path, charge(events=[{"kind": "laplace"}])), "does not know"),
    "a number that is none": (lambda path: added(path, charge(events=[{"kind": "gaussian", "mu": -1}])), "does not"),
    "an unknown field": (lambda path: added(path, charge(times=2)), "does not know"),
    "a charge without its run": (lambda path: added(path, charge(run="other")), "does not know"),
    "a charge that is there twice": (lambda path: added(path, charge(attempt="a")), "does not know"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_or_foreign_file_is_refused_in_one_sentence_and_never_charged(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    known = Ledger(path)
    known.charge(run_of(), "a", [Gaussian(0.5)])
    harm, sentence = DAMAGE[damage]
    harm(path)
    for ledger in (Ledger(path), known):
        with pytest.raises(LedgerError, match=sentence) as raised:
            ledger.charge(run_of(), "c", [Gaussian(0.5)])
        assert str(raised.value).startswith(f"{path}: ")
        assert ". " not in str(raised.value)
        with pytest.raises(LedgerError, match=sentence):
            ledger.account()


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path).charge(run_of(), "a", [Gaussian(0.5)])
    changed(path, "UPDATE pages SET content = replace(content, '0.5', '0.1')")
    with pytest.raises(LedgerError, match=r"damaged \(page 2\)"):
        Ledger(path).account()


def put_back(path: Path, old: bytes) -> None:
    path.write_bytes(old)


def begun_anew(path: Path, old: bytes) -> None:
    path.unlink()
    Ledger(path).set_limit(3.0)


def grown_again(path: Path, old: bytes) -> None:
    """It has as many pages as before, and others."""
    path.write_bytes(old)
    Ledger(path).charge(run_of("3"), "a", [Gaussian(0.01)])


def gone(path: Path, old: bytes) -> None:
    path.unlink()


@pytest.mark.parametrize("has_looked", [False, True])
@pytest.mark.parametrize("happens", [put_back, begun_anew, grown_again, gone])
def test_a_process_refuses_a_file_without_the_pages_that_it_has_seen(
    happens: Callable[[Path, bytes], None], has_looked: bool, tmp_path: Path
) -> None:
    path = tmp_path / "ledger"
    ledger, other = Ledger(path), Ledger(path)
    ledger.charge(run_of("1"), "a", [Gaussian(0.5)])
    before = path.read_bytes()
    ledger.charge(run_of("2"), "a", [Gaussian(0.5)])
    newest = path.read_bytes()
    if has_looked:
        other.account()
    happens(path, before)
    left = path.read_bytes() if path.exists() else None
    for seen in (ledger, other) if has_looked else (ledger,):
        with pytest.raises(LedgerError, match=r"an older copy was put back, or it was begun anew.*\(page 4 is not"):
            seen.charge(run_of("4"), "a", [Gaussian(0.5)])
        with pytest.raises(LedgerError, match="start this program again"):
            seen.account()
    assert (path.read_bytes() if path.exists() else None) == left
    # With the newest copy it goes on; a process that begins then takes what is there.
    path.write_bytes(newest)
    ledger.charge(run_of("4"), "a", [Gaussian(0.5)])
    assert ledger.spent() == Ledger(path).spent() == Spend((Gaussian(0.5, 3),), 1)


def test_a_full_disk_refuses_the_charge_and_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.charge(run_of(), "first", [Gaussian(0.5)])
    connected = LedgerFile._connected

    @contextmanager
    def small(self: LedgerFile) -> Iterator[sqlite3.Connection]:
        with connected(self) as base:
            base.execute("PRAGMA max_page_count = 2")
            yield base

    monkeypatch.setattr(LedgerFile, "_connected", small)
    with pytest.raises(LedgerError, match=r"full\), so nothing was charged"):
        ledger.charge(run_of(), "second", [Gaussian(float(number)) for number in range(1000)])
    monkeypatch.undo()
    assert [attempt for _, attempt in ledger.account().charges] == ["first"]
    ledger.charge(run_of(), "second", [Gaussian(0.5)])
    assert [attempt for _, attempt in Ledger(path).account().charges] == ["first", "second"]


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[4])
from test_ledger_file import run_of
from unspoken.privacy.events import Gaussian
from unspoken.privacy.ledger import Ledger, OverLimit
ledger = Ledger(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
taken = 0
for number in range(int(sys.argv[3])):
    try:
        ledger.charge(run_of(sys.argv[2]), str(number), [Gaussian(0.1)])
        taken += 1
    except OverLimit:
        break
print(taken)
"""


def test_two_processes_share_a_limit(tmp_path: Path) -> None:
    """Each wants all of it: together they get it, and not a charge more; none is lost and none is there twice."""
    path, most = tmp_path / "ledger", 40
    Ledger(path).set_limit(epsilon_of(0.1 * math.sqrt(most), DELTA), DELTA)
    program = [sys.executable, "-c", PROGRAM, str(path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*program, name, str(most), str(Path(__file__).parent)], **pipes) for name in "ab"]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    taken = [int(process.communicate(timeout=300)[0]) for process in running]
    assert sum(taken) == most
    assert len(Ledger(path).account().charges) == most
    assert Ledger(path).spent() == Spend((Gaussian(0.1, most),), 1)


def test_only_json_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path).charge(run_of(), "a", [SAMPLED])
    base = sqlite3.connect(path)
    pages = [json.loads(content) for (content,) in base.execute("SELECT content FROM pages ORDER BY number")]
    assert base.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    base.close()
    assert [page["kind"] for page in pages] == ["run", "charge"]
    assert pages[1]["events"] == [msgspec.to_builtins(SAMPLED)]


def test_every_charge_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own setting for 'on disk when the transaction ends': 3 is EXTRA."""
    seen = []
    append = LedgerFile._append

    def watched(self: LedgerFile, base: sqlite3.Connection, pages: Any) -> None:
        seen.append(base.execute("PRAGMA synchronous").fetchone()[0])
        append(self, base, pages)

    monkeypatch.setattr(LedgerFile, "_append", watched)
    Ledger(tmp_path / "ledger").charge(run_of(), "a", [Gaussian(0.5)])
    assert seen == [3]
