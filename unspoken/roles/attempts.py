"""Attempts at a request: how they are identified, how many there may be, and what must be asked again before a new one.

Each identifier is larger than all earlier ones. A party that remembers the last one can therefore recognise every used
one.

An attempt is *spent* once vectors may have left the parties. The plan fixes how many spent attempts each total may
have, and ε counts them all. An attempt that ended earlier is *free*. Free attempts are limited too (`FREE_ATTEMPTS`),
because every attempt draws the protocol's random choices again, and each draw may come out badly.

A new attempt at a secure sum needs nothing else: noise, batch and masks are derived from a secret root of that attempt,
so a second sum is an independent release, which the plan counts. Two kinds of totals need more:

- Messages in the open under prepared noise (CAPE). A message is f + ê + g, and the sum of all ê is known. If a party
  sent two messages f + ê + g and f' + ê + g' under the same ê, their difference (f − f') + (g − g') would not contain
  ê. The coordinator chooses the parameters of the second request, so f and f' may move in opposite directions, and only
  the variance b of g would hide the change, where the plan counts on about h·b for h honest parties
  (`privacy.correlated`). Hence a party sends one message under its ê of a turn and then forgets this ê; if it is asked
  again within the same attempt, it repeats the same bytes. Another attempt needs newly prepared noise. Given the data,
  its messages and its sum of ê are then independent of the first attempt's, so the two compose. If the sum of ê is made
  after the messages, a similar rule holds for the sum: two sums over different sets of parties would differ by a
  party's ê. Hence a party adds its ê to one sum only and then forgets it; another attempt at the sum needs new
  messages.
- Batches by tokens. A list serves one vector (see `methods.training.batches`), so another attempt needs another list.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from unspoken.methods.base import Cancel, Collect, PartyRequest, Request, Tokens, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.methods.planning.budget import FREE_ATTEMPTS
from unspoken.methods.planning.mechanisms import Participation
from unspoken.summation.base import ATTEMPT_BYTES, Aborted

EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)
"""No study began before: a clock that says so is wrong"""
AHEAD = timedelta(days=1)
"""How far ahead another machine's clock may be"""
NOTHING_REVEALED = "; nothing was revealed"
"""How a protocol's reason for an abort may end"""
_COUNT_BYTES = 8
_LARGEST = (1 << 8 * _COUNT_BYTES) - 1


def next_attempt(last: bytes = b"") -> bytes:
    """An identifier that is larger than the last one, and unpredictable.

    A coordinator that lost its state does not know the last one. Its clock then makes a larger identifier likely;
    parties refuse one that is not larger.
    """
    count = max(time.time_ns(), int.from_bytes(last[:_COUNT_BYTES], "big") + 1)
    return min(count, _LARGEST).to_bytes(_COUNT_BYTES, "big") + os.urandom(ATTEMPT_BYTES - _COUNT_BYTES)


def check_clock(attempt: bytes) -> None:
    """Refuse a first attempt that comes from the future: a certificate that begins there would not be signed, so
    nothing should be spent for it."""
    ahead = int.from_bytes(attempt[:_COUNT_BYTES], "big") / 1e9 - time.time()
    if ahead > AHEAD.total_seconds():
        days = f"{ahead / AHEAD.total_seconds():,.0f} days"
        raise Refused(
            f"the coordinator's clock is {days} ahead of this machine's, which says {datetime.now(UTC):%Y-%m-%d}; set "
            "the wrong one right, and begin again."
        )


def requests_before(plan: Plan, request: Request) -> list[Request]:
    """The requests that must be made again before `request`, if vectors have left in an earlier attempt at it."""
    if isinstance(request, PartyRequest):
        planned = plan.sum_named(request.name)
        if planned.draws_by_tokens:
            return [Tokens(request.turn)]
        if isinstance(request, Collect) and planned.noise.prepares:
            return [ZeroSum(request.name)]
    if isinstance(request, Cancel):
        if request.messages is None:
            raise ValueError(f'Expected the request for the messages of "{request.name}".')
        return [request.messages]
    return []


class AttemptCounts:
    """The coordinator's count of attempts. Every party counts for itself as well."""

    def __init__(self, plan: Plan, free: int = FREE_ATTEMPTS) -> None:
        self._plan, self._most_free = plan, free
        self._spent: Counter[tuple[str, int]] = Counter()
        self._free: Counter[tuple[str, int]] = Counter()
        self.failed: Counter[str] = Counter()
        """The number of spent attempts that gave no total, by the total's name"""

    def succeeded(self, request: Request) -> None:
        """Count an attempt that gave an answer."""
        self._spent[_key(request)] += 1

    def number(self, request: Request) -> int:
        """The number of the attempt at this request that is under way, from 1."""
        return self._spent[_key(request)] + self._free[_key(request)] + 1

    def again(self, request: Request, left: bool, ended: Aborted) -> list[Request]:
        """Count an attempt that ended without an answer. Returns the requests to make now; raises `ended` if no more is
        allowed.

        `left` says whether vectors may have left the parties in this attempt.
        """
        if not left:
            self._free[_key(request)] += 1
            if self._free[_key(request)] <= self._most_free_of(request):
                return [request]
            if not isinstance(request, Cancel):
                raise ended
            # The noise of these messages cannot be added up, so they are useless, but they have left: they count as
            # spent. Other parties may send new messages.
        else:
            self._spent[_key(request)] += 1
        if isinstance(request, PartyRequest | Cancel):
            self.failed[request.name] += 1
        asked = [*requests_before(self._plan, request), request]
        if any(self._spent[_key(other)] >= self._plan.attempts for other in asked):
            raise ended
        return asked

    def _most_free_of(self, request: Request) -> int:
        """The number of free attempts that a request may have by now. For `Cancel`, each list of messages gets an equal
        share of them: a sender may be gone for good, and then only new messages help."""
        if not isinstance(request, Cancel) or request.messages is None:
            return self._most_free
        return self._most_free * self._spent[_key(request.messages)] // self._plan.attempts


def given_up(
    plan: Plan, participation: Mapping[str, list[Participation]], attempts: AttemptCounts, ended: Aborted
) -> Aborted:
    """`ended`, with what the run has cost so far: a vector that has left may have been opened in secret."""
    opened, failed = sum(map(len, participation.values())), sum(attempts.failed.values())
    if plan.is_pooled or not plan.guarantee.is_promise:
        return ended
    cost = "Nothing that depends on records had left a party, so it cost no epsilon"
    if opened or failed:
        spent = plan.guarantee_after(dict(participation), attempts.failed).epsilon
        cost = f"{_left(opened, failed)}, so epsilon = {spent:.4g} of the planned {plan.guarantee.epsilon:.4g} is spent"
    # The protocol speaks of its own sum alone, and of what is revealed openly; the cost says more.
    reason = str(ended).replace(NOTHING_REVEALED, "")
    return Aborted(f"{reason.rstrip('.')}. {cost}.", ended.blamed, ended.evidence)


def _key(request: Request) -> tuple[str, int]:
    return request.counted_as, request.turn


def _left(opened: int, failed: int) -> str:
    """What has become of the vectors. The coordinator knows that parties were let to send them, not that they did.

    >>> _left(0, 2)
    'Vectors may have left 2 times and been opened in secret'
    >>> _left(4, 1)
    '4 totals had been opened before, and vectors may have left once more and been opened in secret'
    """
    times = "once" if failed == 1 else f"{failed} times"
    before = f"{opened} {'total' if opened == 1 else 'totals'} had been opened before"
    if not opened:
        return f"Vectors may have left {times} and been opened in secret"
    return f"{before}, and vectors may have left {times} more and been opened in secret" if failed else before
