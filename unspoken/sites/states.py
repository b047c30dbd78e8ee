"""Where a participant of a study across machines keeps its state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unspoken.engines.network.cards import CardError, home
from unspoken.methods.planning import Plan
from unspoken.roles.file_store import FileStore
from unspoken.roles.store import not_kept
from unspoken.study import Study
from unspoken.summation.base import Roster
from unspoken.summation.keys import Identity


def check_helpers(study: Study, plan: Plan, roster: Roster) -> None:
    """Refuse a roster that has not as many helpers as the plan needs."""
    if len(roster.helpers) != len(plan.helper_addresses):
        raise study.error(
            "roster.helpers",
            f'has {len(roster.helpers)} keys, but "{study.summation.protocol}" needs {len(plan.helper_addresses)}',
        )


def check_apart(plan: Plan) -> None:
    """Refuse what cannot be run by parties on machines of their own: records would leave, with noise or without."""
    plan.check_masked()
    if plan.is_pooled:
        raise plan.study.error(
            "method.name",
            f'is "{plan.method}", for which somebody must have all records: it is a baseline for simulations; choose a '
            'method that parties run together, such as "moments"',
        )


@contextmanager
def explaining_full_disks() -> Iterator[None]:
    """Say in one sentence if the disk takes no more."""
    try:
        yield
    except OSError as error:
        raise not_kept(error) from None


def has_state(study: Study, address: str, key: Path) -> bool:
    """Whether there is a state of this participant, or a part of one."""
    return any(file.exists() for file in _files(study, address, key))


def _files(study: Study, address: str, key: Path) -> tuple[Path, Path]:
    """The participant's journal, and its witness beside the key."""
    name = f"{study.digest()[:16]}-{address.replace(':', '-')}"
    return home() / "states" / f"{name}.journal", key.parent / "witnesses" / f"{name}.witness"


def store_of(study: Study, address: str, identity: Identity, key: Path) -> FileStore:
    """The participant's state."""
    state, witness = _files(study, address, key)
    try:
        for folder in (state.parent, witness.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CardError(f"{error.filename}: cannot be made ({error.strerror}); set UNSPOKEN_HOME.") from None
    return FileStore(state, witness, identity, study.digest(), address)
