"""Which protocol answers a request, and how large its messages can be. All roles derive both from the plan alone."""

from __future__ import annotations

from collections.abc import Iterator

from unspoken.methods.base import Cancel, Collect, Method, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan, PlannedSum
from unspoken.roles.messages import largest_ask, largest_carried
from unspoken.summation.base import NO_ATTEMPT, Protocol


def _sum_asked_for(plan: Plan, name: str) -> PlannedSum:
    """The plan's sum of this name; `Refused` if there is none."""
    for planned in plan.sums:
        if planned.name == name:
            return planned
    raise Refused(f'the request is for "{name}", which is not in the plan.')


def check_planned(plan: Plan, request: Request, turn: int) -> None:
    """Refuse a request that the plan does not have: by its name, by its kind (secure sum, vote, open messages), or by
    its turn.

    A vector for a secure sum carries only a share of the noise, so it must never be collected in the open.
    """
    name, count = request.name, 1
    match request:
        case Tokens():
            count = max((planned.count for planned in plan.sums if planned.draws_by_tokens), default=0)
            fits = count > 0
        case ZeroSum():
            fits = _sum_asked_for(plan, name).noise.prepares
        case Cancel():
            count, fits = _sum_asked_for(plan, name).count, _sum_asked_for(plan, name).noise.cancels
        case Sum() | Vote():
            count, fits = _sum_asked_for(plan, name).count, _sum_asked_for(plan, name).noise.summed
        case Collect():
            planned = _sum_asked_for(plan, name)
            count, fits = planned.count, not (planned.noise.summed or planned.noise.pooled)
        case _:
            fits = False
    if not fits:
        raise Refused(f'the request for "{name}" is for a {request.described}, which is not how the plan has it.')
    if not 0 <= turn < count:
        each = f", in {plan.attempts} attempts each" if plan.attempts > 1 else ""
        often = "once" if count == 1 else f"{count} times"
        raise Refused(f'"{name}" is asked for more often than planned, which is {often}{each}.')


def protocol_for(plan: Plan, request: Request, turn: int, attempt: bytes) -> Protocol:
    """The protocol that answers a request by adding up vectors."""
    match request:
        case Sum(name) | Vote(name):
            return plan.protocol(plan.sum_named(name), turn, attempt)
        case ZeroSum(name):
            return plan.preparation(plan.sum_named(name), attempt)
        case Cancel(name):
            return plan.cancellation(plan.sum_named(name), turn, attempt)
        case Collect(name):
            return plan.collection(plan.sum_named(name), turn, request.only, attempt)
        case _:
            raise ValueError(f"Expected a request for vectors, got {type(request).__name__}.")


def largest_request(method: Method, plan: Plan) -> int:
    """The largest size of a request of the plan, to a party or a helper."""
    found = [largest_ask(Tokens().name)]
    for planned in plan.sums:
        for turn in {0, min(1, planned.count - 1), planned.count - 1}:
            asked = Sum(planned.name, None, turn)
            found.append(largest_ask(planned.name, method.parameters(asked).size, method.indices(asked).size))
    return max(found)


def largest_assist(plan: Plan) -> int:
    """The largest size of a message that tells a helper of an attempt."""
    return max((largest_ask(planned.name) for planned in plan.sums), default=0)


def largest_message(plan: Plan, request: Request, turn: int) -> int:
    """The largest size of a message of the protocol that answers the request."""
    if isinstance(request, Tokens):
        return largest_carried(plan.shuffle(turn, NO_ATTEMPT).session.largest_message)
    return largest_carried(protocol_for(plan, request, turn, NO_ATTEMPT).largest_message)


def largest_of_study(plan: Plan) -> int:
    """The largest size of any message of a protocol in the whole study.

    Connections allow this size at all times, because a message of an attempt that is over may still arrive.
    """
    return max((largest_message(plan, request, turn) for request, turn in _asked(plan)), default=0)


def _asked(plan: Plan) -> Iterator[tuple[Request, int]]:
    """The plan's requests to parties, each for its first and its last turn."""
    for planned in plan.sums:
        for turn in {0, planned.count - 1}:
            if planned.draws_by_tokens:
                yield Tokens(turn), turn
            if planned.noise.prepares:
                yield ZeroSum(planned.name), 0
            if planned.noise.cancels:
                yield Cancel(planned.name, turn), turn
            if planned.noise.summed:
                yield Sum(planned.name, None, turn), turn
            elif not planned.noise.pooled:
                yield Collect(planned.name, None, turn), turn
