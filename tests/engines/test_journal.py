"""An interrupted run resumes: no finished turn is asked for again, and a repeated turn sends the same as before."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import msgspec
import numpy as np
import pytest

import unspoken
from unspoken.engines.attempt import Attempt
from unspoken.engines.journal import Entry, Journal, fingerprint
from unspoken.errors import UnspokenError
from unspoken.methods.base import Collect, Sum, Tokens, Total
from unspoken.methods.registry import method_for
from unspoken.roles.kept_answers import KeptAnswer
from unspoken.roles.totals import Totals
from unspoken.study import make_study

OPTIONS: dict[str, dict[str, object]] = {
    "cape": {"function": "network", "steps": 5, "hidden": 2},
    "messages-first": {"name": "cape", "order": "messages-first", "function": "network", "steps": 3, "hidden": 2},
    "moments": {"function": "softmax", "steps": 5},
    "cross-silo": {"model": "linear", "rounds": 6, "rate": 0.5},
}


def die() -> NoReturn:
    """End without a word."""
    os._exit(9)


def watched_run(
    method: str, checkpoint: Path, crash: int = 0, cut: Callable[[], NoReturn] = die
) -> tuple[list[str], float]:
    """What each turn's total was, and the epsilon; the run is cut off when it has made total number `crash`."""
    study = {
        "study": {"name": "cut", "task": "classification"},
        "data": {"features": 3, "classes": 2},
        "parties": {"count": 4, "records": 10, "max_records": 10},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "method": {"name": method, **OPTIONS[method]},
    }
    turns: list[str] = []
    run = Attempt.run

    def watched(attempt: Any, *arguments: Any, **keywords: Any) -> Any:
        coordinator = run(attempt, *arguments, **keywords)
        turns.append(coordinator.total().tobytes().hex()[:64])
        if len(turns) == crash:
            print(*turns, flush=True)
            cut()
        return coordinator

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    with mock.patch.object(Attempt, "run", watched):
        result = unspoken.simulate(study, features, labels, np.arange(40) % 4, checkpoint=checkpoint)
    return turns, result.certificate["happened"]["epsilon"]


def killed_run(method: str, checkpoint: Path) -> list[str]:
    """The totals of a process that ended, without a word, when it had made the third."""
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {Path(__file__).stem} as tests; "
    command = [sys.executable, "-c", f"{program} tests.watched_run({method!r}, tests.Path({str(checkpoint)!r}), 3)"]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert killed.returncode == 9, killed.stderr
    return killed.stdout.split()


class Cut(BaseException):
    """Ends a run as nothing else does."""


def frozen_run(method: str, checkpoint: Path, printed: pytest.CaptureFixture[str]) -> list[str]:
    """The same without a process, which takes seconds: the files as they are at that moment, while it holds them."""
    checkpoint.parent.joinpath("held").mkdir()

    def cut() -> NoReturn:
        for file in checkpoint.parent.glob("held/*"):
            shutil.copy(file, checkpoint.parent / file.name)
        raise Cut

    with pytest.raises(Cut):
        watched_run(method, checkpoint.parent / "held" / checkpoint.name, 3, cut)
    return printed.readouterr().out.split()


@pytest.mark.parametrize("method", OPTIONS)
def test_a_run_that_was_killed_goes_on_and_repeats_only_the_turn_that_was_cut(
    method: str, tmp_path: Path, runs: Callable[[int, int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed when a turn's total was made but not yet kept: the next process makes the same total again."""
    path = tmp_path / "run.checkpoint"
    really = method == "moments" or runs(0, 1)
    first = killed_run(method, path) if really else frozen_run(method, path, capsys)
    assert len(first) == 3
    second, epsilon = watched_run(method, path)
    assert second[0] == first[2]
    assert len(set(first + second)) == 6
    assert epsilon <= 2.0
    # All turns are over: whoever runs it again only reads.
    assert watched_run(method, path) == ([], epsilon)


@pytest.mark.parametrize(("method", "crash"), [("moments", 0), ("cape", 2), ("messages-first", 4), ("cross-silo", 2)])
def test_copies_of_a_checkpoint_go_on_to_the_same_release(method: str, crash: int, tmp_path: Path) -> None:
    """Of a run that was cut before its first turn had begun, or in the second: no copy draws other noise."""
    (tmp_path / "held").mkdir()
    held = tmp_path / "held" / "run.checkpoint"

    def cut(*_: object, **__: object) -> NoReturn:
        for copy in "ab":
            shutil.copy(held, tmp_path / copy)
        raise Cut

    before = mock.patch.object(Journal, "begin", cut) if crash == 0 else contextlib.nullcontext()
    with pytest.raises(Cut), before:
        watched_run(method, held, crash, cut)
    one, other = (watched_run(method, tmp_path / copy)[0] for copy in "ab")
    assert len(one) > 2
    assert one == other


def test_no_two_requests_turns_or_journals_share_a_secret_and_roots_are_erased(tmp_path: Path) -> None:
    def drawn(name: str, *requests: str) -> list[bytes]:
        journal = Journal(tmp_path / name, "digest/drop 0, seed 0")
        root = journal._base.execute("SELECT secret FROM root").fetchone()[0]
        keys = [journal.begin(number, request).key() for number, request in enumerate(requests)]
        journal.close()
        assert (root in (tmp_path / name).read_bytes()) == (not requests)
        return keys

    drawn("a")
    shutil.copy(tmp_path / "a", tmp_path / "its copy")
    found = [*drawn("a", "one", "one"), *drawn("its copy", "another"), *drawn("b", "one")]
    assert len(set(found)) == 4


def small(**changes: object) -> dict[str, object]:
    return {
        "study": {"name": "kept", "task": "classification"},
        "data": {"features": 2, "classes": 2},
        "parties": {"count": 3},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
        "method": {"name": "moments", "function": "softmax", "steps": 2},
        **changes,
    }


def test_secrets_of_finished_turns_are_gone_and_the_file_is_the_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "kept.checkpoint"
    features, labels, groups = np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3)
    unspoken.simulate(small(), features, labels, groups, checkpoint=path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with sqlite3.connect(path) as base:
        rows = base.execute("SELECT secret, entry FROM turns").fetchall()
    assert len(rows) == 3
    assert all(secret is None and entry is not None for secret, entry in rows)


def test_the_root_of_common_noise_is_gone_as_soon_as_its_turn_is(tmp_path: Path) -> None:
    """CAPE's noise is prepared for all turns. A cut after each turn: the file has the roots of those to come alone."""
    path, roots, left = tmp_path / "kept.checkpoint", list[bytes](), list[int]()

    def watched(journal: Journal, *given: Any) -> None:
        finish(journal, *given)
        if (to_come := journal.roots("function")) or roots:
            roots.extend(root for root in to_come.values() if root not in roots)
            content = path.read_bytes()
            left.append(sum(root in content for root in roots))

    finish = Journal.finish
    features, labels, groups = np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3)
    method = {"name": "cape", "function": "network", "steps": 3, "hidden": 2}
    with mock.patch.object(Journal, "finish", watched):
        unspoken.simulate(small(method=method), features, labels, groups, checkpoint=path)
    assert left == [3, 2, 1, 0]


@pytest.mark.parametrize("order", ["noise-first", "messages-first"])
def test_a_run_from_its_checkpoint_knows_what_was_sent_before_it_was_cut(order: str, tmp_path: Path) -> None:
    """Bytes, and attempts that failed when vectors had left: the certificate's epsilon counts them."""
    path = tmp_path / "kept.checkpoint"
    privacy = {"epsilon": 2.0, "delta": 1e-5, "attempts": 2}
    method = {"name": "cape", "function": "network", "steps": 2, "hidden": 2, "order": order}
    study = small(privacy=privacy, method=method)
    records: Any = (np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3))
    first = unspoken.simulate(study, *records, checkpoint=path)
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        number, kept = base.execute("SELECT number, entry FROM turns ORDER BY number DESC").fetchone()
        entry = msgspec.structs.replace(msgspec.msgpack.decode(kept, type=Entry), failed=1)
        base.execute("UPDATE turns SET entry = ? WHERE number = ?", (msgspec.msgpack.encode(entry), number))
    again = unspoken.simulate(study, *records, checkpoint=path)
    assert (again.outcome.bytes, again.outcome.party_bytes) == (first.outcome.bytes, first.outcome.party_bytes)
    assert (first.outcome.failed, again.outcome.failed) == ({}, {"function": 1})
    assert again.certificate["happened"]["epsilon"] > first.certificate["happened"]["epsilon"]


def test_an_attempt_that_failed_in_one_turn_is_not_counted_again_in_the_next(tmp_path: Path) -> None:
    """Cut after its first turn, which took two attempts, a run keeps two more turns of the same name."""
    path = tmp_path / "kept.checkpoint"
    study = small(privacy={"epsilon": 2.0, "delta": 1e-5, "attempts": 2})
    records: Any = (np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3))
    unspoken.simulate(study, *records, checkpoint=path)
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        (kept,) = base.execute("SELECT entry FROM turns WHERE number = 0").fetchone()
        entry = msgspec.structs.replace(msgspec.msgpack.decode(kept, type=Entry), failed=1)
        base.execute("UPDATE turns SET entry = ? WHERE number = 0", (msgspec.msgpack.encode(entry),))
        base.execute("DELETE FROM turns WHERE number > 0")
    for _ in range(2):
        assert unspoken.simulate(study, *records, checkpoint=path).outcome.failed == {"function": 1}


def test_a_run_from_its_checkpoint_knows_what_its_lists_of_tokens_took(tmp_path: Path) -> None:
    path, method = tmp_path / "kept.checkpoint", {"name": "cross-silo", "model": "linear", "rounds": 2, "rate": 0.5}
    study = small(
        method={**method, "sampling": "without-replacement"}, parties={"count": 3, "records": 4, "max_records": 4}
    )
    records: Any = (np.eye(2)[np.arange(12) % 2], np.arange(12) % 2, np.arange(12) % 3)
    first, again = (unspoken.simulate(study, *records, checkpoint=path).outcome for _ in range(2))
    assert (again.bytes, again.party_bytes) == (first.bytes, first.party_bytes)


def test_a_checkpoint_serves_its_own_run_only(tmp_path: Path) -> None:
    path = tmp_path / "kept.checkpoint"
    features, labels, groups = np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3)
    unspoken.simulate(small(), features, labels, groups, checkpoint=path)
    with pytest.raises(UnspokenError, match="another study or other data"):
        unspoken.simulate(small(), features[[1, 0, 1]], labels, groups, checkpoint=path)
    with pytest.raises(UnspokenError, match="another study or other data"):
        unspoken.simulate(small(privacy={"epsilon": 1.0, "delta": 1e-5}), features, labels, groups, checkpoint=path)
    path.write_bytes(b"no database")
    with pytest.raises(UnspokenError, match="cannot be used as a checkpoint"):
        unspoken.simulate(small(), features, labels, groups, checkpoint=path)
    assert path.read_bytes() == b"no database"
    with pytest.raises(UnspokenError, match=r"cp: cannot be used as a checkpoint \(No such file or directory\);"):
        unspoken.simulate(small(), features, labels, groups, checkpoint=tmp_path / "none" / "cp")


def test_a_checkpoint_is_refused_when_the_public_records_are_others(tmp_path: Path) -> None:
    """A study need not say which they are. Two votes on different records under the same noise, charged once, would
    differ by the votes themselves."""
    rng, file = np.random.default_rng(0), tmp_path / "public.npz"
    features, labels = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
    vote = small(
        parties={"count": 20},
        privacy={"epsilon": 20.0, "delta": 1e-5, "unit": "party"},
        method={"name": "voting", "public": str(file), "queries": 10},
        summation={"protocol": "ideal"},
    )

    def cut(*_: object) -> NoReturn:
        raise Cut

    np.savez(file, X=rng.normal(size=(10, 2)))
    with pytest.raises(Cut), mock.patch.object(Journal, "finish", cut):
        unspoken.simulate(vote, features, labels, np.arange(40) % 20, checkpoint=tmp_path / "run.checkpoint")
    np.savez(file, X=rng.normal(size=(10, 2)))
    with pytest.raises(UnspokenError, match="another study or other data"):
        unspoken.simulate(vote, features, labels, np.arange(40) % 20, checkpoint=tmp_path / "run.checkpoint")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_a_checkpoint_that_is_refused_is_not_kept_open(tmp_path: Path) -> None:
    path = tmp_path / "kept.checkpoint"
    Journal(path, "one/drop 0, seed 0").close()
    with pytest.raises(UnspokenError, match="another study or other data") as raised:
        Journal(path, "other/drop 0, seed 0")
    assert raised.value.__traceback__ is not None
    assert not [file for file in Path("/proc/self/fd").iterdir() if file.exists() and file.samefile(path)]


def test_a_turn_that_asks_for_something_else_gets_no_secret(tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")) as journal:
        journal.begin(0, "sum")
        with pytest.raises(UnspokenError, match=r"does not fit this run \(turn 0 asked for something else\); choose"):
            journal.begin(0, "another sum")


def test_requests_that_differ_in_anything_have_different_fingerprints() -> None:
    requests = [
        Sum("a"),
        Sum("b"),
        Sum("a", turn=1),
        Sum("a", np.zeros(2)),
        Sum("a", np.ones(2)),
        Sum("a", indices=np.arange(2)),
        Collect("a"),
        Collect("a", only=0),
        Collect("a", only=1),
    ]
    assert len(set(map(fingerprint, requests))) == len(requests)


def test_secrets_of_tokens_go_with_the_round_that_they_were_for(tmp_path: Path) -> None:
    """Tokens have no record of their own: the end of the next turn erases their secret as well."""
    plan = method_for(make_study(small())).agreed_plan
    total = Total(np.zeros(1), np.empty(0, dtype=np.int64), 1, 0.0)
    with contextlib.closing(Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")) as journal:
        journal.begin(0, "tokens")
        journal.begin(1, "sum")
        secrets = [row[0] for row in journal._base.execute("SELECT secret FROM turns")]
        journal.finish(1, Entry(KeptAnswer.of(Tokens(), total, Totals(plan)), 0, 0, 0))
        assert journal._base.execute("SELECT secret FROM turns").fetchall() == [(None,), (None,)]
    # Nor are they left in a part of the file that is free now.
    content = (tmp_path / "run.checkpoint").read_bytes()
    assert [secret in content for secret in secrets] == [False, False]


def test_two_runs_at_once_draw_the_same_secrets_or_one_of_them_waits(tmp_path: Path) -> None:
    """Otherwise there would be two releases, and one charge."""
    one, other = (Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0") for _ in range(2))
    assert one.begin(0, "sum").key() == other.begin(0, "sum").key()
    plan = method_for(make_study(small())).agreed_plan
    entry = Entry(
        KeptAnswer.of(Tokens(), Total(np.zeros(1), np.empty(0, dtype=np.int64), 1, 0.0), Totals(plan)), 0, 0, 0
    )
    assert other.entry(0, "sum") is None
    one.finish(0, entry)
    with pytest.raises(
        UnspokenError, match=r"run\.checkpoint: was gone on with by another run at the same time; wait "
    ):
        other.begin(0, "sum")
    assert one.entry(0, "sum") is not None
    # Between its look at the turn and its draw, nobody else draws.
    one._base.execute("PRAGMA busy_timeout=0")
    row = other._row

    def meanwhile(number: int, request: str) -> Any:
        with pytest.raises(UnspokenError, match="locked"):
            one.begin(number, request)
        return row(number, request)

    with mock.patch.object(other, "_row", meanwhile):
        drawn = other.begin(1, "sum").key()
    assert one.begin(1, "sum").key() == drawn
    one.close()
    other.close()
