"""Checks evidence of misbehaviour in a study's sums, for anyone who has the study and its roster."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from unspoken.methods.planning import Plan, PlannedSum
from unspoken.summation import evidence as of_a_sum
from unspoken.summation.base import ATTEMPT_BYTES, Protocol, Rejected, Roster, SignedStatement
from unspoken.summation.record_shuffle import RecordShuffle


def convicted(plan: Plan, roster: Roster, evidence: Iterable[SignedStatement]) -> dict[str, str]:
    """Whom these signed statements prove at fault, and of what. `Rejected` if one is forged, or belongs to another
    study.

    `plan` is the reader's own, made from the study. From whoever shows the statements, only their signatures count.
    """
    sums: dict[str, tuple[Protocol | RecordShuffle, list[SignedStatement]]] = {}
    for each in evidence:
        protocol = _protocol_of(plan, each.statement).with_roster(roster)
        sums.setdefault(protocol.session.label(), (protocol, []))[1].append(each)
    found: dict[str, list[str]] = defaultdict(list)
    for protocol, statements in sums.values():
        for who, what in of_a_sum.convicted(protocol, statements).items():
            found[who].append(what)
    return {who: "; ".join(dict.fromkeys(all_of_it)) for who, all_of_it in found.items()}


def _protocol_of(plan: Plan, statement: bytes) -> Protocol | RecordShuffle:
    """The protocol of the attempt at a sum or a list of tokens that a statement is about, by the label in it."""
    label = re.compile(rf"/unspoken-1/{plan.study.digest()}/(.+?)/([0-9a-f]{{{2 * ATTEMPT_BYTES}}})/".encode())
    if found := label.search(statement):
        name, attempt = found[1].decode(errors="replace"), bytes.fromhex(found[2].decode())
        for planned in plan.sums:
            for protocol in _protocols(plan, planned, name, attempt):
                if f"/{protocol.session.label()}/".encode() in statement:
                    return protocol
    tokens = re.compile(rf"/{plan.study.digest()}/tokens/(\d{{1,9}})/([0-9a-f]{{{2 * ATTEMPT_BYTES}}})/".encode())
    if (found := tokens.search(statement)) and any(planned.draws_by_tokens for planned in plan.sums):
        shuffle = plan.shuffle(int(found[1]), bytes.fromhex(found[2].decode()))
        if f"/{shuffle.session.label()}/".encode() in statement:
            return shuffle
    raise Rejected("a statement is not about a sum of this study")


def _protocols(plan: Plan, planned: PlannedSum, name: str, attempt: bytes) -> Iterator[Protocol]:
    """The protocols of all sums that a label's name may mean, since the end of a name may look like a turn."""
    if not (found := re.match(rf"(?:vote/)?{re.escape(planned.name)}/(?:noise/)?(\d{{1,9}}\b)?", name)):
        return
    turns = {0, int(found[1] or 0)} & set(range(planned.count))
    if planned.noise.summed:
        yield from (plan.protocol(planned, turn, attempt) for turn in turns)
    if planned.noise.prepares:
        yield plan.preparation(planned, attempt)
    if planned.noise.cancels:
        yield from (plan.cancellation(planned, turn, attempt) for turn in turns)
