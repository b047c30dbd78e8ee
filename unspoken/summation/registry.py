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


def _check_keys(study: Study, protocol: type[Protocol]) -> None:
    """Refuse keys of [summation] that belong to another protocol. (The section itself refuses keys that no protocol
    has.)"""
    for key in study.summation.model_extra or {}:
        if key in protocol.options_type.model_fields:
            continue
        if owners := [name for name, other in PROTOCOLS.usable() if key in other.options_type.model_fields]:
            whose, chosen = " and ".join(f'"{name}"' for name in owners), study.summation.protocol
            raise study.error(
                f"summation.{key}", f'is a key of {whose} only, but the protocol is "{chosen}"; remove it'
            )


def open_session(study: Study, session: Session, roster: Roster | None = None) -> Protocol:
    """The study's protocol for one sum; with a roster (`Roster.of(study)` or a simulated one) it can make endpoints."""
    protocol = protocol_of(study)
    _check_keys(study, protocol)
    try:
        return protocol(session, study.options("summation", protocol.options_type), roster)
    except Unsuitable as error:
        raise study.error(error.place, error.problem) from None
