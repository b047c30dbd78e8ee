"""The content of a ledger as plain data: pages, and the book that they make when they are read in order.

A page is JSON of one of the structs below. A reader refuses pages that it does not understand, because a skipped page
could be a missed spend.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from unspoken.privacy.events import Adjacency, Event
from unspoken.privacy.guarantee import Trust

_Positive = Annotated[float, msgspec.Meta(gt=0.0)]
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Group = Annotated[int, msgspec.Meta(ge=1)] | None
"""The number of records protected together; None: all of a party's"""


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study on a data set, with all that is counted once in it."""

    identifier: str
    """A name for this run, chosen by whoever keeps the ledger, so that nobody else can make two runs look like one"""
    study: str
    study_sha256: str
    method: str
    group: _Group
    adjacency: Adjacency
    delta: _Share
    """The study's own δ"""
    slack: _Share
    """The part of δ reserved for failures of the protocol and of the noise sampler, in all attempts together"""
    distance: _Share
    """The statistical distance of all noise that may be drawn from its stated distribution"""
    trust: Trust
    assumptions: tuple[str, ...] = ()
    once: tuple[Event, ...] = ()
    """The cost of what is released once, however many vectors leave; charged with the first vector"""
    seat: bool = False
    """Whether this is one party's part in a study. A data set may have one part only: two parts in one study would be
    in the same totals, and cost more than two separate studies"""


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that a data set may spend: ε at this δ, for this unit."""

    epsilon: _Positive
    delta: _Share
    group: _Group = 1


class _Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something that is written down."""

    dataset: str


class Named(_Page, frozen=True, tag="file"):
    """A file is a version of a data set."""

    sha256: str


class Begun(_Page, frozen=True, tag="run"):
    """A run on a data set, before its first charge."""

    run: Run


class Charged(_Page, frozen=True, tag="charge"):
    """One attempt, in which a vector was about to leave."""

    run: str
    attempt: str
    events: tuple[Event, ...]
    when: str


class Limited(_Page, frozen=True, tag="limit"):
    """A limit from now on; None: no limit any more."""

    limit: Limit | None
    when: str


Page = Named | Begun | Charged | Limited


def encoded(page: Page) -> bytes:
    """A page as JSON. A page that would not be read back unchanged is refused."""
    content = msgspec.json.encode(page, enc_hook=_plain)
    try:
        is_whole = decoded(content) == page
    except msgspec.ValidationError:
        is_whole = False
    if not is_whole:
        raise ValueError(f"Expected finite numbers that a ledger can write down, got {page!r}.")
    return content


def decoded(content: bytes) -> Page:
    page: Page = msgspec.json.decode(content, type=Page)
    return page


def _plain(value: Any) -> Any:
    """numpy's numbers, as Python's."""
    return value.item()


class Account:
    """All pages about one data set."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.charges: dict[tuple[str, str], Charged] = {}
        """By run and attempt, in the order in which they came"""
        self.limit: Limit | None = None
        self.pages: list[Page] = []

    def copy(self) -> Account:
        other = Account()
        other.runs, other.charges, other.limit = dict(self.runs), dict(self.charges), self.limit
        other.pages = list(self.pages)
        return other


class Book:
    """The pages that were read so far."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.files: dict[str, str] = {}
        """The data set of a file, by its SHA-256"""

    def account(self, dataset: str) -> Account:
        return self.accounts.get(dataset) or Account()

    def add(self, page: Page) -> None:
        """Read one more page. A `ValueError` if it does not fit those before it."""
        account = self.accounts.setdefault(page.dataset, Account())
        match page:
            case Named():
                self.files[page.sha256] = page.dataset
            case Begun():
                account.runs[page.run.identifier] = page.run
            case Charged():
                key = page.run, page.attempt
                if page.run not in account.runs or key in account.charges:
                    raise ValueError("a charge without its run, or one that is there twice")
                account.charges[key] = page
            case Limited():
                account.limit = page.limit
        account.pages.append(page)
