"""Which protocol answers a request, and how large its messages may be: the same for all roles, from the plan alone."""

from __future__ import annotations

from unspoken.methods.base import Collect, Method, Request, Sum, Tokens, Vote, ZeroSum
from unspoken.methods.plan import Plan
from unspoken.roles.messages import largest_ask, largest_carried
from unspoken.summation.base import Protocol
from unspoken.summation.mixnet import onion_bytes

TOKENS = "tokens"
"""The name under which turns of shuffles are counted."""


def name_of(request: Request) -> str:
    """The name under which a request's turns are counted."""
    match request:
        case Sum(name) | Vote(name) | Collect(name) | ZeroSum(name):
            return name
        case _:
            return TOKENS


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
