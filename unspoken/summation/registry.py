"""The protocols by the names that a study uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field

from unspoken.noise.stream import SecretStream
from unspoken.study import Section, Study
from unspoken.summation import compute_nodes, ideal, pairwise, secagg
from unspoken.summation.ballots import MOST, Poll
from unspoken.summation.base import Protocol, Session, Unsuitable
from unspoken.summation.tally import DEADLINE, Tally

PROTOCOLS: dict[str, tuple[type[Section], Callable[[Session, Any, SecretStream], Protocol]]] = {
    "secagg+": (secagg.Options, secagg.SecAggPlus),
    "secagg": (secagg.Options, secagg.SecAgg),
    "pairwise": (pairwise.Options, pairwise.Pairwise),
    "compute-nodes": (compute_nodes.Options, compute_nodes.ComputeNodes),
    "ideal": (ideal.Options, ideal.Ideal),
}


class TallyOptions(Section):
    """The keys of [summation] for a secure vote."""

    talliers: Literal[3, 5, 7] = Field(
        3, description="3, 5 or 7: how many talliers; fewer than half of them may be curious"
    )
    deadline: float = Field(
        DEADLINE, gt=0.0, le=3600.0, description="a number of seconds above 0 and up to 3600 for a tallier to answer in"
    )


def _tally(study: Study, session: Session, secrets: SecretStream) -> Protocol:
    """A secure vote in place of a sum: as many queries as fit the session's numbers."""
    options = study.options("summation", TallyOptions)
    if "vote" not in study.described.asks:
        raise study.error("summation.protocol", f'is "tally", which is for votes, but "{study.method.name}" has none')
    classes = len(study.data.class_names)
    queries = max(1, session.length // classes)
    poll = Poll(
        session.study,
        session.name,
        session.parties,
        session.least_survivors,
        queries,
        classes,
        MOST - 1,
        talliers=options.talliers,
    )
    return Tally(poll, secrets, options.deadline)


def open_session(study: Study, session: Session, secrets: SecretStream) -> Protocol:
    """The study's protocol, ready for one sum."""
    name = study.summation.protocol
    if name == "tally":
        return _tally(study, session, secrets)
    if name not in PROTOCOLS:
        known = ", ".join(f'"{known}"' for known in (*PROTOCOLS, "tally"))
        raise study.error("summation.protocol", f'is "{name}", but should be one of: {known}')
    options, protocol = PROTOCOLS[name]
    try:
        return protocol(session, study.options("summation", options), secrets)
    except Unsuitable as error:
        raise study.error(error.place, error.problem) from None
