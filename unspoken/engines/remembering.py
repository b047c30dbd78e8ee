"""A simulated run of a method, with a journal or without: answers that a journal has are recalled, others are computed
and recorded."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NamedTuple

from unspoken.data.federation import Federation
from unspoken.engines.answering import Answering, Crowds
from unspoken.engines.conditions import Conditions
from unspoken.engines.journal import Entry, Roots, fingerprint
from unspoken.engines.outcome import Outcome
from unspoken.methods.base import (
    Answer,
    Collect,
    Method,
    Pool,
    Request,
    Tokens,
    Total,
    ZeroSum,
    release_of,
)
from unspoken.methods.planning import Plan
from unspoken.noise.stream import SecretStream
from unspoken.roles.kept_answers import KeptAnswer
from unspoken.roles.totals import nothing


def run(
    method: Method, plan: Plan, federation: Federation, crowds: Crowds, conditions: Conditions, engine: str
) -> Outcome:
    """Run a method to its end, with parties and helpers as `crowds` makes them.

    `engine` says where it ran, in words for the certificate.
    """
    running = Answering(method, plan, federation, crowds, conditions)
    remembered = Remembered(running, conditions)
    began, started = datetime.now(UTC), time.perf_counter()
    conversation = method.coordinate(plan)
    try:
        request = next(conversation)
        while True:
            request = conversation.send(remembered.answer(request))
    except StopIteration as end:
        release = release_of(method, end)
    there, counted = dict(running.totals.participation), running.totals.counted
    seconds, failed = time.perf_counter() - started, dict(running.attempts.failed)
    moved, noise = (running.bytes, running.largest), running.totals.noise
    return Outcome(engine, release, there, began, seconds, *moved, counted, failed, noise)


class _Counts(NamedTuple):
    """The counts of a run so far."""

    bytes: int
    largest: int
    failed: dict[str, int]


class Remembered:
    """Answers a request, from the journal if it has the answer."""

    def __init__(self, run: Answering, conditions: Conditions) -> None:
        self._run, self._number = run, 0
        self._journal, self._secrets = conditions.journal, conditions.secrets or SecretStream()
        self._since: _Counts | None = None
        """The counts before the first half of what is under way; tokens have another name than the sum they are for"""

    def answer(self, request: Request) -> Answer:
        if self._journal is None or isinstance(request, Pool):
            return self._run.answer(request, self._secrets)
        number, asked = self._number, fingerprint(request)
        self._number += 1
        if entry := self._journal.entry(number, asked):
            return self._recall(request, entry, self._journal.roots(request.name))
        is_half = isinstance(request, Tokens) or self._run.is_half(request)
        if is_half and self._journal.is_over(number + 1):
            # The round that these tokens or messages were for is over: nothing depends on them any more.
            return nothing(self._run.parties)
        secrets = self._journal.begin(number, asked)
        before, self._since = self._since or self._counts(), None
        answer = self._run.answer(request, secrets)
        # The secrets of tokens are kept for the round that follows: a resumed run deals the same tokens again. And it
        # makes the same messages again, as long as their noise is not added up.
        if is_half:
            self._since = before
        elif isinstance(answer, Total):
            self._journal.finish(number, self._entry(request, answer, before), self._noise(request))
        return answer

    def _entry(self, request: Request, answer: Total, before: _Counts) -> Entry:
        kept, now, name = KeptAnswer.of(request, answer, self._run.totals), self._counts(), request.name
        failed = now.failed.get(name, 0) - before.failed.get(name, 0)
        return Entry(kept, now.bytes - before.bytes, now.largest - before.largest, failed)

    def _noise(self, request: Request) -> tuple[str, Roots] | None:
        """The name of the common noise that the request made or used, and the roots that are left of it."""
        if not isinstance(request, ZeroSum | Collect) or request.name not in self._run.prepared:
            return None
        return request.name, self._run.prepared[request.name]

    def _counts(self) -> _Counts:
        return _Counts(self._run.bytes, self._run.largest, dict(self._run.attempts.failed))

    def _recall(self, request: Request, entry: Entry, roots: Roots) -> Total:
        run = self._run
        run.bytes, run.largest = run.bytes + entry.moved, run.largest + entry.largest
        run.attempts.succeeded(request)
        run.attempts.failed[request.name] += entry.failed
        if isinstance(request, ZeroSum):
            run.prepared[request.name] = roots
        return entry.kept.recall(request, run.totals)
