"""The protocols by the names that a study uses."""

from __future__ import annotations

from tacit.noise.stream import SecretStream
from tacit.study import Study
from tacit.summation import compute_nodes, ideal
from tacit.summation.base import Protocol, Session


def open_session(study: Study, session: Session, secrets: SecretStream) -> Protocol:
    """The study's protocol, ready for one sum."""
    match study.summation.protocol:
        case "compute-nodes":
            options = study.options("summation", compute_nodes.Options)
            return compute_nodes.ComputeNodes(session, options, secrets)
        case "ideal":
            return ideal.Ideal(session, study.options("summation", ideal.Options), secrets)
        case other:
            raise study.error(
                "summation.protocol", f'is "{other}", but should be "compute-nodes" or "ideal" (simulation only)'
            )
