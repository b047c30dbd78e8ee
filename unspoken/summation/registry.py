"""The protocols by name, our own and those of other packages (see `unspoken.plugins`)."""

from __future__ import annotations

from unspoken import plugins
from unspoken.study import Study
from unspoken.summation.base import Protocol, Roster, Session, Unsuitable

PROTOCOLS = plugins.Group[Protocol](plugins.PROTOCOLS, Protocol)  # type: ignore[type-abstract]


def protocol_of(study: Study) -> type[Protocol]:
    """The protocol that the study names."""
    kind = study.protocol_class
    if not issubclass(kind, Protocol):
        raise plugins.PluginError(
            f'"{study.summation.protocol}" is not a subclass of unspoken.summation.base.Protocol.'
        )
    return kind


def open_session(study: Study, session: Session, roster: Roster | None = None) -> Protocol:
    """The study's protocol for one sum; with a roster (`Roster.of(study)` or a simulated one) it can make endpoints."""
    protocol = protocol_of(study)
    try:
        return protocol(session, study.options("summation", protocol.options_type), roster)
    except Unsuitable as error:
        raise study.error(error.place, error.problem) from None
