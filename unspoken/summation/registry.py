"""The protocols by the names that a study uses."""

from __future__ import annotations

from unspoken.study import Study
from unspoken.summation.base import Protocol, Roster, Session, Unsuitable
from unspoken.summation.compute_nodes import ComputeNodes
from unspoken.summation.ideal import Ideal
from unspoken.summation.pairwise import Pairwise
from unspoken.summation.secagg import SecAgg, SecAggPlus
from unspoken.summation.tally import Tally

PROTOCOLS: dict[str, type[Protocol]] = {
    "secagg+": SecAggPlus,
    "secagg": SecAgg,
    "pairwise": Pairwise,
    "compute-nodes": ComputeNodes,
    "ideal": Ideal,
    "tally": Tally,
}


def protocol_of(study: Study) -> type[Protocol]:
    """The protocol that the study names."""
    name = study.summation.protocol
    if name not in PROTOCOLS:
        known = ", ".join(f'"{known}"' for known in PROTOCOLS)
        raise study.error("summation.protocol", f'is "{name}", but should be one of: {known}')
    return PROTOCOLS[name]


def open_session(study: Study, session: Session, roster: Roster | None = None) -> Protocol:
    """The study's protocol for one sum; with a roster (`Roster.of(study)`, or a simulated one) it makes endpoints."""
    protocol = protocol_of(study)
    try:
        return protocol(session, study.options("summation", protocol.options_type), roster)
    except Unsuitable as error:
        raise study.error(error.place, error.problem) from None
