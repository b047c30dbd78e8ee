"""The protocols by the names that a study uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tacit.noise.stream import SecretStream
from tacit.study import Section, Study
from tacit.summation import compute_nodes, ideal, pairwise, secagg
from tacit.summation.base import Protocol, Session, Unsuitable

PROTOCOLS: dict[str, tuple[type[Section], Callable[[Session, Any, SecretStream], Protocol]]] = {
    "secagg+": (secagg.Options, secagg.SecAggPlus),
    "secagg": (secagg.Options, secagg.SecAgg),
    "pairwise": (pairwise.Options, pairwise.Pairwise),
    "compute-nodes": (compute_nodes.Options, compute_nodes.ComputeNodes),
    "ideal": (ideal.Options, ideal.Ideal),
}


def open_session(study: Study, session: Session, secrets: SecretStream) -> Protocol:
    """The study's protocol, ready for one sum."""
    name = study.summation.protocol
    if name not in PROTOCOLS:
        known = ", ".join(f'"{known}"' for known in PROTOCOLS)
        raise study.error("summation.protocol", f'is "{name}", but should be one of: {known}')
    options, protocol = PROTOCOLS[name]
    try:
        return protocol(session, study.options("summation", options), secrets)
    except Unsuitable as error:
        raise study.error(error.place, error.problem) from None
