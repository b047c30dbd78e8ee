"""Evidence about a study's sums, for whoever has the study and its roster, and took no part in the sum."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from unspoken.methods.planning import Plan, PlannedSum
from unspoken.summation import evidence as of_a_sum
from unspoken.summation.base import ATTEMPT_BYTES, Protocol, Rejected, Roster, SignedStatement


def convicted(plan: Plan, roster: Roster, evidence: Iterable[SignedStatement]) -> dict[str, str]:
    """The addresses that these statements prove at fault, and the fault. `Rejected` if one is forged, or of another
    study.

    The plan is the reader's own, made from the study: nothing but signatures is taken from who shows the statements.
    """
    sums: dict[str, tuple[Protocol, list[SignedStatement]]] = {}
    for each in evidence:
        protocol = _protocol_of(plan, each.statement).with_roster(roster)
        sums.setdefault(protocol.session.label(), (protocol, []))[1].append(each)
    found: dict[str, list[str]] = defaultdict(list)
    for protocol, statements in sums.values():
        for who, what in of_a_sum.convicted(protocol, statements).items():
            found[who].append(what)
    return {who: "; ".join(dict.fromkeys(all_of_it)) for who, all_of_it in found.items()}


def _protocol_of(plan: Plan, statement: bytes) -> Protocol:
    """The protocol of the attempt at a sum that a statement is about, by the label in it."""
    label = re.compile(rf"/unspoken-1/{plan.study.digest()}/(.+?)/([0-9a-f]{{{2 * ATTEMPT_BYTES}}})/".encode())
    if found := label.search(statement):
        name, attempt = found[1].decode(errors="replace"), bytes.fromhex(found[2].decode())
        for planned in plan.sums:
            for protocol in _protocols(plan, planned, name, attempt):
                if f"/{protocol.session.label()}/".encode() in statement:
                    return protocol
    raise Rejected("a statement is not about a sum of this study")


def _protocols(plan: Plan, planned: PlannedSum, name: str, attempt: bytes) -> Iterator[Protocol]:
    """The protocols of the sums that such a name may be of. What follows the name may look like a turn."""
    if not (found := re.match(rf"(?:vote/)?{re.escape(planned.name)}/(\d+)?", name)):
        return
    turn = int(found[1] or 0)
    for candidate in {0, turn} & set(range(planned.count if planned.noise.summed else 0)):
        yield plan.protocol(planned, candidate, attempt)
    if planned.noise.prepares:
        yield plan.preparation(planned, attempt)
