"""Attempts at a request: their identifiers, how often there may be one, and what comes before another.

An identifier is larger than all before it, so that whoever remembers the last one remembers all.

An attempt in which vectors may have left is spent: the plan counts so many for each total. One that ended before is
free. There are few of these, since every one throws the protocol's dice again (`FREE_ATTEMPTS`).

What another attempt needs. Every vector is drawn anew: noise, batch and masks come from a root of the attempt alone. So
a second secure sum is a release of its own, which the plan counts. Two kinds of totals need more than that:

- Messages in the open under prepared noise (CAPE). A message is f + ê + g, and the sum of all ê is known. Two messages
  of a party under the same ê differ by (f − f') + (g − g'), without ê. The coordinator chooses what is asked for with
  the second, so that f and f' may move in opposite directions: then the variance that hides a change is that of g, b,
  where the plan has about h·b for h honest parties (`privacy.correlated`). Hence a party sends one message under its ê
  of a turn, and forgets this ê; asked again under the same attempt it repeats the same bytes. Another attempt needs
  noise that was prepared anew: then all of the view, messages and sum of ê, is independent of the first given the data,
  and the two compose.
  If the sum of ê is made after the messages, the same holds for that sum: two of them over different parties differ
  by a party's ê. Hence a party puts its ê into one sum, and forgets it; another attempt at the sum needs messages anew.
- Batches by tokens. A list serves one vector (see `methods.training.batches`), so another attempt needs another list.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping

from unspoken.methods.base import Cancel, Collect, PartyRequest, Request, Tokens, ZeroSum
from unspoken.methods.planning import Plan
from unspoken.methods.planning.mechanisms import Participation
from unspoken.methods.planning.plan import FREE_ATTEMPTS
from unspoken.roles.attempts import draws_by_tokens
from unspoken.summation.base import ATTEMPT_BYTES, Aborted

_COUNT_BYTES = 8
_LARGEST = (1 << 8 * _COUNT_BYTES) - 1


def next_attempt(last: bytes = b"") -> bytes:
    """An identifier that is larger than the last one, and that nobody could know before.

    A coordinator that lost its state has no last one: the clock then makes it likely that the identifier is larger than
    those before, and if it is not, parties refuse it.
    """
    count = max(time.time_ns(), int.from_bytes(last[:_COUNT_BYTES], "big") + 1)
    return min(count, _LARGEST).to_bytes(_COUNT_BYTES, "big") + os.urandom(ATTEMPT_BYTES - _COUNT_BYTES)


def before(plan: Plan, request: Request) -> list[Request]:
    """Requests to make again before a request whose vectors have left."""
    if isinstance(request, PartyRequest):
        planned = plan.planned(request.name)
        if draws_by_tokens(planned):
            return [Tokens(request.turn)]
        if isinstance(request, Collect) and planned.noise.prepares:
            return [ZeroSum(request.name)]
    if isinstance(request, Cancel):
        if request.messages is None:
            raise ValueError(f'Expected the request for the messages of "{request.name}".')
        return [request.messages]
    return []


class Tries:
    """Counts attempts from the coordinator's side, as every party does for itself."""

    def __init__(self, plan: Plan, free: int = FREE_ATTEMPTS) -> None:
        self._plan, self._most_free = plan, free
        self._spent: Counter[tuple[str, int]] = Counter()
        self._free: Counter[tuple[str, int]] = Counter()
        self.failed: Counter[str] = Counter()
        """The number of attempts at each total, by its name, that came to nothing after vectors may have left"""

    def succeeded(self, request: Request) -> None:
        """Count an attempt that gave an answer."""
        self._spent[_key(request)] += 1

    def number(self, request: Request) -> int:
        """The number of the attempt at this request that is under way, from 1."""
        return self._spent[_key(request)] + self._free[_key(request)] + 1

    def again(self, request: Request, left: bool, ended: Aborted) -> list[Request]:
        """Count an attempt that ended, and say what to ask for now; raises what ended it if nothing may be.

        `left`: vectors may have left.
        """
        if not left:
            self._free[_key(request)] += 1
            if self._free[_key(request)] <= self._most_free_of(request):
                return [request]
            if not isinstance(request, Cancel):
                raise ended
            # Nothing comes of messages whose noise is never added up, but they have left. Others may send new ones.
        else:
            self._spent[_key(request)] += 1
        if isinstance(request, PartyRequest | Cancel):
            self.failed[request.name] += 1
        asked = [*before(self._plan, request), request]
        if any(self._spent[_key(other)] >= self._plan.attempts for other in asked):
            raise ended
        return asked

    def _most_free_of(self, request: Request) -> int:
        """The number of free attempts at a request so far. The noise of each list of messages gets the same part of
        them: who sent one may be gone for good, and then only other messages help."""
        if not isinstance(request, Cancel) or request.messages is None:
            return self._most_free
        return self._most_free * self._spent[_key(request.messages)] // self._plan.attempts


def given_up(plan: Plan, participation: Mapping[str, list[Participation]], tries: Tries, ended: Aborted) -> Aborted:
    """The end of a run, with its cost: a vector that has left may have been opened in secret."""
    made = sum(map(len, participation.values())) + sum(tries.failed.values())
    if plan.is_pooled or not plan.guarantee.is_promise:
        return ended
    cost = "Nothing that depends on records had left a party, so it cost no epsilon"
    if made:
        spent = plan.released(dict(participation), tries.failed).epsilon
        times = "once" if made == 1 else f"{made} times"
        cost = (
            f"Vectors had left {times} and may have been opened in secret, so epsilon = {spent:.4g} of the planned "
            f"{plan.guarantee.epsilon:.4g} is spent"
        )
    return Aborted(f"{str(ended).rstrip('.')}. {cost}", ended.blamed, ended.evidence)


def _key(request: Request) -> tuple[str, int]:
    return request.counted_as, request.turn
