"""The ledger: a party's own durable account of what its data has spent, for each data set.

Every attempt in which a vector leaves is charged before the vector leaves. The charge is the attempt's own event, as
the plan has it. What a study costs once (its slack in δ, the model of a trusted trainer) is charged with its first
attempt, and so is all of a run that may end early. So a study that made all its planned attempts has cost what its
certificate promises, and several studies cost what their events compose to (`privacy.ledger_totals`). A charge that is
repeated after a crash counts once.

Before a vector leaves, nobody knows how many parties will vanish and take their noise with them. So a charge assumes
the fewest parties that the plan allows, and a run in which nobody vanished has cost a little less than the ledger says.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from unspoken.errors import UnspokenError
from unspoken.privacy.events import Event, Spend
from unspoken.privacy.guarantee import Guarantee, unit_in_words
from unspoken.privacy.ledger_file import LedgerError, LedgerFile, Transaction
from unspoken.privacy.ledger_pages import Account, Begun, Book, Charged, Limit, Limited, Named, Run
from unspoken.privacy.ledger_totals import LedgerTotal, total_of

__all__ = ["Charges", "Ledger", "LedgerError", "Limit", "OverLimit", "Run", "datasets", "recognised", "total_of"]


class OverLimit(UnspokenError):
    """A charge that the ledger does not allow. Nothing was charged."""

    exit_status = 4


class Charges(Protocol):
    """The interface of a ledger to a party."""

    def check(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        """`OverLimit` if these events, on top of all charges so far, would exceed the limit.

        An attempt that was charged already was allowed.
        """

    def charge(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        """Charge an attempt; `OverLimit` if its events would exceed the limit. When this returns, it is on disk.

        The same attempt of the same run is charged once, however often it is said.
        """

    def holds(self, identifier: str) -> bool:
        """Whether the run of this name was charged to this data set."""

    def knows(self, identifier: str) -> bool:
        """Whether the run of this name was charged to any data set of the same ledger."""

    def attempts(self, identifier: str) -> list[str]:
        """The attempts of the run of this name that were charged to this data set."""

    def check_writable(self) -> None:
        """An error if nothing can be charged: before others begin to rely on this party."""


class Ledger:
    """The account of one data set. All who use it, in this process and in others, share it.

    >>> from unspoken.privacy.events import Gaussian
    >>> from unspoken.privacy.guarantee import Trust
    >>> run = Run(identifier="1", study="heart", study_sha256="", method="moments", group=1, adjacency="replace",
    ...           delta=1e-5, slack=0.0, distance=0.0, trust=Trust(10, 2, 1))
    >>> ledger = Ledger()
    >>> ledger.charge(run, "first", [Gaussian(0.6)])
    >>> ledger.charge(run, "second", [Gaussian(0.8)])
    >>> ledger.charge(run, "second", [Gaussian(0.8)])
    >>> round(ledger.guarantee(1e-5).epsilon, 4)
    4.3772
    """

    def __init__(self, path: str | Path | None = None, dataset: str = "records") -> None:
        """The ledger is in a file, which is created if it does not exist. Without a path it is in memory, for this
        process only."""
        if not isinstance(dataset, str) or not dataset.strip():
            raise LedgerError(f"dataset is {dataset!r}, but should be the name of a data set.")
        self._file = LedgerFile(None if path is None else Path(path).absolute())
        self.dataset = dataset
        self._cap: Limit | None = None
        self._new: str | None = None
        """The SHA-256 of a file that becomes a version of the data set with the next page"""
        self._name = os.urandom(16)
        if path is None:
            _IN_MEMORY[self._name] = self

    def check(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        """`OverLimit` if these events, on top of all charges so far, would exceed the limit, or if the data set already
        takes part in the study as another party.

        An attempt that was charged already is allowed.
        """
        account = self.account()
        if (run.identifier, attempt) not in account.charges:
            self._check(account, run, events)

    def charge(self, run: Run, attempt: str, events: Sequence[Event]) -> None:
        """Charge an attempt; `OverLimit` if its events would exceed the limit. When this returns, it is on disk.

        The same attempt of the same run is charged once, however often it is said.
        """
        with self._file.transaction() as now:
            account = now.book.account(self.dataset)
            if account.runs.get(run.identifier, run) != run:
                raise LedgerError(f'"{run.study}" was begun under another plan: begin the study anew.')
            if _is_charged(account, run, attempt, events):
                return
            self._check(account, run, events)
            self._name_file(now)
            if run.identifier not in account.runs:
                now.add(Begun(self.dataset, run))
            now.add(Charged(self.dataset, run.identifier, attempt, tuple(events), _now()))

    def holds(self, identifier: str) -> bool:
        """Whether the run of this name was charged to this data set."""
        return identifier in self.account().runs

    def knows(self, identifier: str) -> bool:
        """Whether the run of this name was charged to any data set of the same ledger."""
        return self._file.read(lambda book: any(identifier in account.runs for account in book.accounts.values()))

    def attempts(self, identifier: str) -> list[str]:
        """The attempts of the run of this name that were charged to this data set."""
        return [attempt for run, attempt in self.account().charges if run == identifier]

    def check_writable(self) -> None:
        """An error if nothing can be charged, as the disk is full or read-only: before others begin to rely on this
        party. Nothing is written to the ledger, nor is it begun."""
        self._file.check_writable()

    def spent(self) -> Spend:
        """Everything that was charged, as events."""
        return self.total().spend

    def guarantee(self, delta: float) -> Guarantee:
        """The total of all that was charged."""
        if not 0.0 < delta < 1.0:
            raise LedgerError(f"delta is {delta!r}, but should be a number between 0 and 1, such as 1e-6.")
        return self.total().guarantee(delta)

    def total(self) -> LedgerTotal:
        return total_of(self.account())

    def account(self) -> Account:
        """The runs, charges and the limit of the data set, as they are now."""
        return self._file.read(lambda book: book.account(self.dataset).copy())

    def limit(self) -> Limit | None:
        return self.account().limit

    def set_limit(self, epsilon: float | None, delta: float = 1e-6, unit: str | dict[str, int] = "record") -> None:
        """Allow the data set to spend so much in all, at this δ and for this unit; None: no limit any more."""
        limit = None if epsilon is None else _checked_limit(epsilon, delta, unit)
        with self._file.transaction() as now:
            self._name_file(now)
            now.add(Limited(self.dataset, limit, _now()))

    def cap(self, limit: Limit) -> None:
        """Add a limit, such as a policy's, that all further charges through this object or a copy must keep, too."""
        self._cap = limit

    def _name_file(self, now: Transaction) -> None:
        """Record that a new file is a version of the data set. This is done with the first charge or limit for the
        file."""
        if self._new is None:
            return
        if (known := now.book.files.get(self._new)) is None:
            now.add(Named(self.dataset, self._new))
        elif known != self.dataset:
            raise LedgerError(f'the file of "{self.dataset}" was named "{known}" meanwhile; begin again.')

    def _check(self, account: Account, run: Run, events: Sequence[Event]) -> None:
        if run.seat and any(_is_other_seat(other, run) for other in account.runs.values()):
            raise OverLimit(
                f'"{self.dataset}" takes part in "{run.study}" already, as another party: its records would count '
                "twice in the same totals. Join with other records, or not at all."
            )
        total = None
        for whose, limit in (("ledger", account.limit), ("policy", self._cap)):
            if limit is None:
                continue
            total = total or total_of(account, (run, events))
            if (found := total.excess(limit)) is not None:
                nothing = f"leave no promise for {unit_in_words(limit.group)}"
                raise OverLimit(
                    f'the {whose}\'s limit for "{self.dataset}" is epsilon = {limit.epsilon:g} at delta = '
                    f'{limit.delta:g}, and "{run.study}" would '
                    f"{f'bring it to {_more_than(limit.epsilon, found)}' if math.isfinite(found) else nothing}; "
                    "agree on a smaller epsilon, or raise the limit."
                )

    # A clone of an estimator, or a copy in another process, uses the same ledger.

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file.path is None:
            return _from_memory, (self._name, self.dataset)
        return Ledger, (str(self._file.path), self.dataset), {"_new": self._new, "_cap": self._cap}

    def __repr__(self) -> str:
        where = "" if self._file.path is None else f"{str(self._file.path)!r}, "
        return f"Ledger({where}dataset={self.dataset!r})"


def _is_other_seat(other: Run, run: Run) -> bool:
    return other.seat and other.study_sha256 == run.study_sha256 and other.identifier != run.identifier


def _more_than(limit: float, found: float) -> str:
    """A number above the limit, with enough digits to tell it from the limit.

    >>> _more_than(3.0, 4.0), _more_than(3.0, 3.0002)
    ('4', '3.0002')
    """
    return next(text for digits in range(4, 18) if float(text := f"{found:.{digits}g}") > limit or digits == 17)


def _is_charged(account: Account, run: Run, attempt: str, events: Sequence[Event]) -> bool:
    """Whether the attempt was charged for exactly these events. An attempt that was charged for other events is
    refused."""
    known = account.charges.get((run.identifier, attempt))
    if known is not None and known.events != tuple(events):
        raise LedgerError(
            f'an attempt of "{run.study}" was charged for one sum and asked for another: leave the study, and tell '
            "its coordinator."
        )
    return known is not None


_IN_MEMORY: weakref.WeakValueDictionary[bytes, Ledger] = weakref.WeakValueDictionary()


def _from_memory(name: bytes, dataset: str) -> Ledger:
    """The ledger in memory of this name. In another process, a ledger that refuses everything."""
    if (found := _IN_MEMORY.get(name)) is None:
        found = Ledger(dataset=dataset)
        found._file.leave()
    return found


def datasets(path: Path) -> list[str]:
    """The data sets of a ledger."""
    return LedgerFile(path).read(lambda book: list(book.accounts))


def recognised(path: Path, sha256: str, name: str | None, file: str, otherwise: str | None = None) -> Ledger:
    """The account of the data set that a file is a version of.

    A file that is new to the ledger must be given the name of a data set once: a new name, or that of the data set of
    which it is another version. Without `name`, the name `otherwise` is taken if the ledger has that data set or none
    at all. If the ledger has only others, the file may be a version of one of them, which only its holder knows, so
    this is an error. `file` is the file's name for messages. The name is recorded with the first charge or limit, so a
    holder who is asked and declines has recorded nothing.
    """
    # Nobody else has this copy of the book.
    book = LedgerFile(path).read(lambda book: book)
    found = Ledger(path, _dataset_of(book, path, sha256, name, file, otherwise))
    found._new = None if sha256 in book.files else sha256
    return found


def _dataset_of(book: Book, path: Path, sha256: str, name: str | None, file: str, otherwise: str | None) -> str:
    known = book.files.get(sha256)
    if known is None and name is None and (not book.accounts or otherwise in book.accounts):
        name = otherwise
    if known is None and name is None:
        have = ", ".join(f'"{dataset}"' for dataset in book.accounts) or "none yet"
        raise LedgerError(
            f"{file}: new to the ledger {path}; name the data set once with --dataset, the same for all its versions "
            f"(it has: {have})."
        )
    if known is not None and name not in (None, known):
        raise LedgerError(f'{file}: known to the ledger {path} as "{known}", not as "{name}"; leave that out.')
    return known or name or ""


def group_of(unit: str | dict[str, int]) -> int | None:
    """The number of records in a unit, as a study writes it; None: all of a party's."""
    match unit:
        case "party":
            return None
        case "record":
            return 1
        case {"group": int(group)} if group >= 1:
            return group
    raise LedgerError(f'unit is {unit!r}, but should be "record", "party" or {{"group": 5}}.')


def _checked_limit(epsilon: float, delta: float, unit: str | dict[str, int]) -> Limit:
    if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
        raise LedgerError(
            f"the limit is epsilon = {epsilon!r} at delta = {delta!r}, but should be a number above 0 at one between 0 "
            "and 1, such as 3 at 1e-6."
        )
    return Limit(float(epsilon), float(delta), group_of(unit))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
