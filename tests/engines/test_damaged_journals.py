"""A checkpoint that is damaged or of another version is told in one sentence, and nothing is made up."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import unspoken
from engines.test_journal import small
from unspoken.engines.journal import Entry, Journal
from unspoken.errors import UnspokenError
from unspoken.methods.base import Tokens, Total
from unspoken.methods.registry import method_for
from unspoken.roles.kept_answers import KeptAnswer
from unspoken.roles.totals import Totals
from unspoken.study import make_study


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE turns SET entry = x'80' WHERE number = 0",
        "UPDATE turns SET entry = 5 WHERE number = 0",
        "UPDATE noise SET kept = x'90'",
    ],
)
def test_a_record_in_a_checkpoint_that_is_damaged_is_told_as_that(damage: str, tmp_path: Path) -> None:
    """Its version is known by then: nobody is sent to look for another one."""
    path = tmp_path / "kept.checkpoint"
    features, labels, groups = np.eye(2)[[0, 1, 0]], np.array([0, 1, 0]), np.arange(3)
    study = small(method={"name": "cape", "function": "network", "steps": 2, "hidden": 2})
    unspoken.simulate(study, features, labels, groups, checkpoint=path)
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        assert base.execute(damage).rowcount == 1
    with pytest.raises(UnspokenError, match=r"kept\.checkpoint: cannot be read as a checkpoint \(.*\); put "):
        unspoken.simulate(study, features, labels, groups, checkpoint=path)


@pytest.mark.parametrize("change", ["UPDATE written SET version = '0.1.9'", "DELETE FROM written"])
def test_a_turn_under_way_is_not_repeated_by_another_version(change: str, tmp_path: Path) -> None:
    """It might make another total of the same secrets, which nobody was charged for."""
    path = tmp_path / "run.checkpoint"
    with contextlib.closing(Journal(path, "digest/drop 0, seed 0")) as begun:
        begun.begin(0, "sum")
        begun._base.execute(change)
    with pytest.raises(UnspokenError, match=r"run\.checkpoint: was written by .*; use that version, or begin anew"):
        Journal(path, "digest/drop 0, seed 0")


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM root",
        "UPDATE root SET secret = 'text'",
        "DELETE FROM identity",
        "UPDATE identity SET name = NULL",
        "UPDATE turns SET secret = x'00'",
    ],
)
def test_a_secret_or_a_name_that_is_lost_is_not_made_up_anew(change: str, tmp_path: Path) -> None:
    """The turns to come would have other noise, for a run that was charged once; or two runs would share a charge."""
    with contextlib.closing(Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")) as begun:
        begun.begin(0, "sum")
        begun._base.execute(change)
    told = r"run\.checkpoint: is damaged \(a secret or its name is gone\); put a whole copy of it back, or begin anew"

    def go_on(journal: Journal) -> None:
        assert journal.identity
        for number in range(2):
            journal.begin(number, "sum")

    again = Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")
    with contextlib.closing(again), pytest.raises(UnspokenError, match=told):
        go_on(again)


def test_a_damaged_checkpoint_is_told_in_one_sentence_wherever_the_damage_is(tmp_path: Path) -> None:
    path, page = tmp_path / "run.checkpoint", 4096
    whole = Journal(path, "digest/drop 0, seed 0")
    secret = whole.begin(0, "sum").key()
    whole.close()
    content = path.read_bytes()
    for start in range(0, len(content), page):
        path.write_bytes(content[:start] + b"\x55" * page + content[start + page :])
        with contextlib.suppress(UnspokenError), contextlib.closing(Journal(path, "digest/drop 0, seed 0")) as damaged:
            assert damaged.identity
            assert damaged.entry(0, "sum") is None
            assert damaged.roots("function") == {}
            assert damaged.begin(0, "sum").key() == secret


def test_a_full_disk_is_told_in_one_sentence_and_the_journal_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")
    journal.begin(0, "sum")
    # SQLite itself says that the disk is full.
    journal._base.execute(f"PRAGMA max_page_count={journal._base.execute('PRAGMA page_count').fetchone()[0]}")
    total = Total(np.zeros(100_000), np.empty(0, dtype=np.int64), 1, 0.0)
    plan = method_for(make_study(small())).agreed_plan
    entry = Entry(KeptAnswer.of(Tokens(), total, Totals(plan)), 0, 0, 0)
    with pytest.raises(
        UnspokenError, match=r"run\.checkpoint: cannot be written to \(database or disk is full\); make "
    ):
        journal.finish(0, entry)
    journal.close()
    again = Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")
    assert again.entry(0, "sum") is None
    again.close()


def test_a_checkpoint_that_cannot_be_begun_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(UnspokenError, match="cannot be used as a checkpoint"):
        Journal(tmp_path / "run.checkpoint", "digest/drop 0, seed 0")
    assert list(tmp_path.iterdir()) == []
