"""What may be told of a study that is under way: who is there, how far it is, and what was promised.

Anyone may look at the status, so nothing in it depends on records beyond what the guarantee covers. The time that a
party takes for an answer may depend on its records, because solvers need more steps for some. So the status says of a
single party only whether it is connected, and the numbers of bytes and survivors change only when a stage ends, which
all participants notice anyway.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from unspoken.engines.network.frames import MOST_SECONDS, News
from unspoken.methods.base import Cancel, Pool, Tokens, ZeroSum
from unspoken.roles.coordinator import Coordinator
from unspoken.summation.addresses import is_party, names_by_address
from unspoken.summation.base import Roster, address_of
from unspoken.summation.errors import spoken

_NAMED = 8
"""The most names of absent participants that are told to others"""

STAGES = {
    "waiting": "waiting for everyone to join",
    "setup": "agreeing on keys",
    "shuffle": "shuffling tokens",
    "vectors": "computing and sending",
    "gathering": "taking in what was sent",
    "agreement": "agreeing on who is in the total",
    "result": "opening the total",
    "done": "over",
    "released": "over, with a result",
    "aborted": "over, without a result",
}
"""Stages in plain words"""


@dataclass(frozen=True)
class ParticipantStatus:
    """A party or a helper, and whether it is connected."""

    name: str
    role: Literal["party", "helper"]
    is_there: bool


@dataclass(frozen=True)
class Status:
    """How a study is doing."""

    study: str
    digest: str
    promise: str
    coordinator: str
    participants: tuple[ParticipantStatus, ...]
    news: News
    request: str
    """What parties are asked for now, in plain words"""
    attempts: int
    """The number of times that a party may send its vector for one total"""
    reason: str
    """Why there is no result"""
    refused: int
    """Connections that were refused or closed before they had signed in"""


class Watch:
    """Follows a study from the coordinator's side."""

    def __init__(self, coordinator: Coordinator, roster: Roster, moved: Callable[[], int]) -> None:
        """`moved` says how many bytes of messages were moved so far."""
        self._coordinator, self._moved, self._names = coordinator, moved, names_of(coordinator, roster)
        self._stage, self._deadline, self.reason = "waiting", time.monotonic(), ""
        self._bytes, self._survivors, self._attempt = 0, len(roster.parties), b""
        self._gone: set[str] = set()
        """Parties that have dropped out of the attempt"""

    def waits(self, stage: str, deadline: float) -> None:
        """A stage is waited for until a time of the monotonic clock."""
        self._stage, self._deadline = self._stage if self.is_over else stage, deadline

    def closes(self) -> None:
        """The coordinator's stage is about to end."""
        coordinator = self._coordinator
        if coordinator.attempt != self._attempt:
            self._attempt, self._gone = coordinator.attempt, set()
        if coordinator.stage in ("setup", "vectors"):
            # A party that is missing in a later stage is still in the total, because its vector was taken.
            self._gone |= {address for address in coordinator.missing if is_party(address)}
        self._survivors = len(coordinator.expected()) - len(self._gone)
        self._bytes = self._moved()

    def ended(self, reason: str) -> None:
        """The study is over, with a result unless there is a reason."""
        self._stage, self.reason, self._bytes = "aborted" if reason else "released", reason, self._moved()
        self._deadline = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self._stage in ("released", "aborted")

    def news(self, present: Iterable[str]) -> News:
        """How far the study is, for people at all sides."""
        coordinator, there = self._coordinator, set(present)
        absent = [address for address in self._names if address not in there]
        totals, rounds = coordinator.totals, coordinator.plan.rounds
        # A copy: another thread may add to it.
        made = sum(map(len, list(totals.participation.values()))) + len(totals.common)
        return News(
            stage=self._stage,
            present=len(self._names) - len(absent),
            expected=len(self._names),
            seconds=min(max(0.0, self._deadline - time.monotonic()), MOST_SECONDS),
            absent=tuple(absent[:_NAMED]),
            round=min(made + 1, rounds),
            rounds=rounds,
            attempt=coordinator.attempts.number(coordinator.request),
            survivors=self._survivors,
            bytes=self._bytes,
        )

    def status(self, present: Iterable[str], refused: int) -> Status:
        """All that may be told."""
        there, plan = set(present), self._coordinator.plan
        participants = tuple(
            ParticipantStatus(name, "party" if is_party(address) else "helper", address in there)
            for address, name in self._names.items()
        )
        roster = plan.study.roster
        return Status(
            study=plan.study.name,
            digest=plan.study.digest(),
            promise=plan.guarantee.sentence(),
            coordinator=roster.name_of(roster.coordinator) if roster else "coordinator",
            participants=participants,
            news=self.news(there),
            request=self._request(),
            attempts=plan.attempts,
            reason=self.reason,
            refused=refused,
        )

    def _request(self) -> str:
        coordinator = self._coordinator
        request = coordinator.request
        match request:
            case Pool():
                return "nothing yet"
            case Tokens(turn):
                return f"a list of tokens, turn {turn + 1:,}"
            case ZeroSum(name):
                return f"common noise for “{name}”"
            case Cancel(name):
                return f"the sum of the noise in the messages for “{name}”"
        count = coordinator.plan.sum_named(request.name).count
        return f"“{request.name}”" if count == 1 else f"“{request.name}”, turn {request.turn + 1:,} of {count:,}"


def names_of(coordinator: Coordinator, roster: Roster) -> dict[str, str]:
    """Names from the roster by address; those who have none are called by their address."""
    plan, section = coordinator.plan, coordinator.plan.study.roster
    parties, helpers = [address_of(index) for index in range(len(roster.parties))], list(plan.helper_addresses)
    if section is None:
        return {address: address.replace(":", " ") for address in [*parties, *helpers]}
    return names_by_address(section, helpers)


def with_names(text: str, names: Mapping[str, str]) -> str:
    """A sentence with names from the roster for addresses, however they are written.

    >>> with_names("no answer came from party:1; to blame: party 12", {"party:1": "St Mary", "party:12": "Charité"})
    'no answer came from St Mary; to blame: Charité'
    """
    written = {**{spoken(address): name for address, name in names.items()}, **names}
    pattern = "|".join(map(re.escape, sorted(written, key=len, reverse=True)))
    return re.sub(rf"\b({pattern})\b", lambda found: written[found[0]], text) if written else text


def duration(seconds: float) -> str:
    """Time for people.

    >>> duration(7.2), duration(75), duration(7500)
    ('7 s', '1 min 15 s', '2 h 5 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
