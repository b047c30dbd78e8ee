"""Which protocol answers a request, and how large its messages may be: the same for all roles, from the plan alone."""

from __future__ import annotations

from unspoken.methods.base import Collect, Method, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.methods.plan import Plan, PlannedSum
from unspoken.roles.messages import largest_ask, largest_carried
from unspoken.summation.base import Protocol
from unspoken.summation.mixnet import onion_bytes

TOKENS = "tokens"
"""The name under which turns of shuffles are counted."""


def name_of(request: Request) -> str:
    """The name of what is asked for, as messages have it."""
    match request:
        case Sum(name) | Vote(name) | Collect(name) | ZeroSum(name):
            return name
        case _:
            return TOKENS


def counted_as(request: Request) -> str:
    """The name under which a party counts the turns of such requests."""
    return f"{request.name}/common-noise" if isinstance(request, ZeroSum) else name_of(request)


def planned_sum(plan: Plan, name: str) -> PlannedSum:
    """The plan's sum of this name; `Refused` if there is none."""
    for planned in plan.sums:
        if planned.name == name:
            return planned
    raise Refused(f'the request is for "{name}", which is not in the plan.')


def check_planned(plan: Plan, request: Request, turn: int) -> None:
    """Refuse what the plan does not have: by name, by the way in which numbers come together, and by the turn.

    What the plan adds up in secret carries a share of the noise only: it must never be collected in the open.
    """
    name, count = name_of(request), 1
    match request:
        case Tokens():
            count = max((planned.count for planned in plan.sums if draws_by_tokens(planned)), default=0)
            fits = count > 0
        case ZeroSum():
            fits = planned_sum(plan, name).noise.prepares
        case Sum() | Vote():
            count, fits = planned_sum(plan, name).count, planned_sum(plan, name).noise.summed
        case Collect():
            planned = planned_sum(plan, name)
            count, fits = planned.count, not (planned.noise.summed or planned.noise.pooled)
        case _:
            fits = False
    if not fits:
        raise Refused(f'the request for "{name}" is for a {_word(request)}, which is not how the plan has it.')
    if not 0 <= turn < count:
        raise Refused(f'"{name}" is asked for more often than planned, which is {count} times.')


def draws_by_tokens(planned: PlannedSum) -> bool:
    """Does a shuffled list of tokens decide which records are in this sum?"""
    return planned.sampling is not None and planned.sampling.by_tokens


def _word(request: Request) -> str:
    words = {Sum: "secure sum", Vote: "vote", Collect: "message in the open", ZeroSum: "sum of noise"}
    return words.get(type(request), "list of tokens")


def protocol_for(plan: Plan, request: Request, turn: int, attempt: bytes) -> Protocol:
    """The protocol that answers a request by adding up vectors."""
    match request:
        case Sum(name) | Vote(name):
            return plan.protocol(plan.planned(name), turn, attempt)
        case ZeroSum(name):
            return plan.preparation(plan.planned(name), attempt)
        case Collect(name):
            return plan.collection(plan.planned(name), turn, request.only, attempt)
        case _:
            raise ValueError(f"Expected a request for vectors, got {type(request).__name__}.")


def largest_request(method: Method, plan: Plan) -> int:
    """The most bytes that any request of the plan has."""
    sizes = [
        method.parameters(asked).size + method.indices(asked).size
        for planned in plan.sums
        for asked in [Sum(planned.name, None, turn) for turn in {0, min(1, planned.count - 1), planned.count - 1}]
    ]
    return largest_ask(max(sizes, default=0))


def largest_message(plan: Plan, request: Request, turn: int) -> int:
    """The most bytes that a message of the protocol that answers the request has."""
    if isinstance(request, Tokens):
        parties = plan.study.parties
        return largest_ask(0) + parties.count * parties.max_records * onion_bytes(parties.count)
    return largest_carried(protocol_for(plan, request, turn, bytes(16)).session)
