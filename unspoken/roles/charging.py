"""A party's ledger and its place in a study: what the ledger must allow, and what it says about the party's state."""

from __future__ import annotations

from collections.abc import Sequence

from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.privacy.events import Event
from unspoken.privacy.ledger import Charges, OverLimit, Run
from unspoken.roles.store import StoreError
from unspoken.summation.base import Roster
from unspoken.summation.keys import Identity


class LimitReached(Refused):
    """The ledger's limit does not allow this request, nor any later one: the party leaves the study."""


def run_name(plan: Plan, identity: Identity) -> str:
    """The name of a party's run of a study in its ledger.

    It depends on the identity and the study alone. So the ledger recognises a party whose state is gone, also under
    another data set's name.
    """
    return identity.name_for(f"run of {plan.study.digest()}")


def check_new(plan: Plan, identity: Identity, ledger: Charges) -> None:
    """`StoreError` if the ledger was charged for the study but the party has no state: it is not new, it has lost its
    state."""
    if ledger.knows(run_name(plan, identity)):
        raise StoreError(
            "the ledger has charges of this study, but the state of this party in it is gone: it has forgotten "
            "what it sent. Put the state back if it was moved; otherwise leave this study."
        )


def check_newest(charged: Sequence[str], announced: bytes) -> None:
    """`StoreError` if the ledger was charged for attempts after the last one that the state has announced.

    An attempt is in the state before it is charged. So such a charge shows that state and witness were both put back
    from an old copy.
    """
    if later := sum(bytes.fromhex(attempt) > announced for attempt in charged):
        vectors = "a vector" if later == 1 else f"{later} vectors"
        raise StoreError(
            f"the state of this party is old: the ledger has charges for {vectors} that it has forgotten. Put its "
            "newest copy back, or leave this study."
        )


def check_limit(plan: Plan, identity: Identity, ledger: Charges) -> None:
    """`LimitReached` if the ledger does not allow this study, which has not begun: the whole study would exceed the
    limit, or the data set already takes part in it as another party."""
    run = plan.ledger_run(run_name(plan, identity), seat=True)
    if not ledger.holds(run.identifier):
        check_costs(ledger, run, b"", plan.costs_of(place_of(identity, Roster.of(plan.study))))


def check_costs(ledger: Charges, run: Run, attempt: bytes, costs: Sequence[Event]) -> None:
    """`LimitReached` if the ledger does not allow these costs."""
    try:
        ledger.check(run, attempt.hex(), costs)
    except OverLimit as error:
        raise LimitReached(str(error)) from None


def place_of(identity: Identity, roster: Roster) -> int:
    """The party's index: the roster has the identities in their order."""
    listed = [bytes(known) for known in roster.parties]
    if identity.public not in listed:
        raise ValueError("Expected an identity that is in the roster.")
    return listed.index(identity.public)
