"""The side of a party or a helper in a study across machines."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unspoken.data.block import Block
from unspoken.data.federation import party_block
from unspoken.data.files import Records, read_records
from unspoken.defaults import PATIENCE
from unspoken.engines.network.cards import find_identity
from unspoken.engines.network.client import Client, CoordinatorAddress
from unspoken.engines.network.frames import Ending
from unspoken.engines.network.loading import warm_up
from unspoken.engines.network.participant import Finished, Told
from unspoken.engines.signing import is_signature, sign, valid, without
from unspoken.errors import printable
from unspoken.methods.base import Method
from unspoken.methods.parameters import Refused
from unspoken.methods.planning import Plan
from unspoken.methods.registry import checked_plan, method_for
from unspoken.privacy.ledger import Charges
from unspoken.report.countersigning import check_certificate, differs, largest_ending, received
from unspoken.report.endings import Joined
from unspoken.report.promise_text import Seat
from unspoken.roles.charging import check_limit, check_new, run_name
from unspoken.roles.file_store import FileStore
from unspoken.roles.helper import Helper
from unspoken.roles.party import Party
from unspoken.roles.role import Role
from unspoken.sites.states import check_apart, check_helpers, explaining_full_disks, has_state, store_of
from unspoken.study import Study
from unspoken.summation.base import COORDINATOR, Roster, address_of
from unspoken.summation.keys import Identity


def join(
    study: Study,
    data: Path | Records,
    where: CoordinatorAddress,
    *,
    key: Path | None = None,
    told: Told | None = None,
    patience: float = PATIENCE,
    ledger: Charges | None = None,
) -> Joined:
    """Take part in a study with one's own records. The ledger is charged before what is made of them leaves."""
    return prepare(study, data, key=key, ledger=ledger).join(where, told=told, patience=patience)


def prepare(
    study: Study, data: Path | Records, *, key: Path | None = None, ledger: Charges | None = None
) -> ReadyParty:
    """Check everything that may prevent taking part, before anyone is asked. Nothing is stored or sent."""
    roster = Roster.of(study)
    file, identity = find_identity(study, {bytes(known).hex() for known in roster.parties}, key)
    method = method_for(study)
    plan = checked_plan(method)
    check_apart(plan)
    records = read_records(data, study) if isinstance(data, Path) else data
    block = party_block(study, records, method.directions)
    ready = ReadyParty(method, plan, block, identity, roster, file)
    return ready if ledger is None else ready.charged_to(ledger)


@dataclass(frozen=True)
class ReadyParty:
    """A party that can take part in a study."""

    method: Method
    plan: Plan
    records: Block
    identity: Identity
    roster: Roster
    key: Path
    """The file of its secret"""
    ledger: Charges | None = None

    def charged_to(self, ledger: Charges) -> ReadyParty:
        """The same party with a ledger that can be written. The ledger must allow the whole study, if it has not begun;
        if it has, the party's state must be there."""
        ledger.check_writable()
        if has_state(self.plan.study, self.address, self.key):
            with replace(self, ledger=ledger).participant():
                pass
        else:
            check_new(self.plan, self.identity, ledger)
        check_limit(self.plan, self.identity, ledger)
        return replace(self, ledger=ledger)

    @property
    def seat(self) -> Seat:
        """Its place in the study, for whoever is asked."""
        section, count = self.plan.study.roster, int(self.records.counts[0])
        name = section.name_of(self.identity.public.hex()) if section else ""
        return Seat(name, self.index, count, run_name(self.plan, self.identity))

    def join(self, where: CoordinatorAddress, *, told: Told | None = None, patience: float = PATIENCE) -> Joined:
        """Take part."""
        told = told or Told()
        warm_up(self.plan)
        with self.participant() as party:
            if self._has_signed():
                told.line("this party has signed the certificate before; it asks for the result again, if it is there")
            return _take_part(party, where, told, patience)

    @contextmanager
    def participant(self) -> Iterator[Participant]:
        """The party in the state of its store."""
        with closing(self._store(self.address)) as store, explaining_full_disks():
            given = (self.method, self.records, self.identity, self.roster)
            party = Party(*given, plan=self.plan, store=store, ledger=self.ledger)
            if self._has_signed():
                party.leave()
            yield Participant(party, self.plan, self.identity, self.roster, lambda ending: self._agrees(ending, party))

    @property
    def index(self) -> int:
        return [bytes(known) for known in self.roster.parties].index(self.identity.public)

    @property
    def address(self) -> str:
        return address_of(self.index)

    def _agrees(self, ending: Ending, party: Party) -> bytes:
        """The signature of the certificate, or `Refused`. No vector leaves from now on, so that it has them all."""
        party.leave()
        return self._signature(ending, party.sent)

    def _signature(self, ending: Ending, sent: Mapping[str, int]) -> bytes:
        """The signature of the certificate, or `Refused`.

        A study has one result. Which one is signed is on disk before it is signed, so that no other is signed after a
        restart. This record has a store of its own, because the party may be computing when the result comes.
        """
        _check_ending(self.plan, self.roster, ending, sent)
        received(self.plan.study, ending.certificate, ending.name, ending.file)
        name = hashlib.sha256(ending.certificate).digest()
        with closing(self._store(self._signing)) as store, explaining_full_disks():
            if not (signed := store.read()):
                store.replace(name)
            elif signed != [name]:
                raise Refused("another certificate of this study was signed before; compare the two with the others.")
        return sign(self.identity, ending.certificate)

    @property
    def _signing(self) -> str:
        """The name of the store that has the certificate that was signed"""
        return f"{self.address}:certificate"

    def _has_signed(self) -> bool:
        """Whether a certificate of this study was signed, maybe by an earlier process."""
        if not has_state(self.plan.study, self._signing, self.key):
            return False
        with closing(self._store(self._signing)) as store:
            return bool(store.read())

    def _store(self, name: str) -> FileStore:
        return store_of(self.plan.study, name, self.identity, self.key)


def assist(
    study: Study,
    where: CoordinatorAddress,
    *,
    key: Path | None = None,
    told: Told | None = None,
    patience: float = PATIENCE,
) -> Joined:
    """Be a compute node or a tallier of a study."""
    with helper_of(study, key) as helper:
        return _take_part(helper, where, told or Told(), patience)


@contextmanager
def helper_of(study: Study, key: Path | None) -> Iterator[Participant]:
    """A helper of the study, in the state of its store."""
    roster = Roster.of(study)
    file, identity = find_identity(study, {bytes(known).hex() for known in roster.helpers}, key)
    plan = method_for(study).agreed_plan
    check_helpers(study, plan, roster)
    index = [bytes(known) for known in roster.helpers].index(identity.public)

    def agrees(ending: Ending) -> bytes:
        _check_ending(plan, roster, ending, {})
        return b""

    with closing(store_of(study, plan.helper_addresses[index], identity, file)) as store, explaining_full_disks():
        yield Participant(Helper(plan, index, identity, roster, store=store), plan, identity, roster, agrees)


@dataclass(frozen=True)
class Participant:
    """A party or a helper, as it is before anything carries its messages."""

    role: Role[Any]
    plan: Plan
    identity: Identity
    roster: Roster
    agrees: Callable[[Ending], bytes]
    """Signs the certificate, or raises `Refused` with the reason not to. Helpers check it, and sign nothing"""

    def differs(self, plan: bytes) -> str | None:
        """How a coordinator's plan differs from one's own, in words."""
        return differs(self.plan, plan)

    @property
    def largest_ending(self) -> int:
        """The most bytes of a result."""
        return largest_ending(self.plan)

    def joined(self, finished: Finished, sent: int) -> Joined:
        """The finished study, after so many bytes of messages."""
        party = self.role if isinstance(self.role, Party) else None
        joined = joined_of(finished, self.plan, self.roster, sent, party)
        return replace(joined, blamed=dict(self.role.blamed), evidence=self.role.evidence)


def _take_part(who: Participant, where: CoordinatorAddress, told: Told, patience: float) -> Joined:
    told = replace(told, agrees=who.agrees, differs=who.differs)
    told.planned(who.plan)
    client = Client(who.role, who.plan.study.digest(), who.identity, who.roster, where, told=told, patience=patience)
    client.largest = who.largest_ending
    finished = asyncio.run(client.run())
    return who.joined(finished, client.sent)


def _check_ending(plan: Plan, roster: Roster, ending: Ending, sent: Mapping[str, int]) -> None:
    """Refuse a certificate that does not fit one's own plan, or that the coordinator has not signed."""
    check_certificate(plan, ending.certificate, sent)
    if not is_signature(roster.coordinator, ending.certificate, ending.signature):
        raise Refused("the coordinator has not signed the certificate; ask it for the signed file.")


def joined_of(finished: Finished, plan: Plan, roster: Roster, sent: int, party: Party | None) -> Joined:
    ending, run = finished.ending, party.run if party else ""
    if not ending.certificate:
        return Joined(plan, None, printable(ending.reason), sent, run=run)
    if finished.disagrees:
        return Joined(plan, None, "", sent, disagrees=finished.disagrees, run=run)
    # Its own signature and the coordinator's stand in its file, whatever the coordinator sends at last.
    came = finished.signatures or {}
    given = {**came, COORDINATOR: ending.signature}
    given |= {party.address: finished.signature} if party else {}
    missing = "the other parties' signatures" if finished.signatures is None else ""
    signatures = valid(roster, ending.certificate, given)
    file = received(plan.study, ending.certificate, ending.name, ending.file) if party else None
    misfits = without(came, signatures)
    return Joined(
        plan, json.loads(ending.certificate), "", sent, file, signatures, missing=missing, misfits=misfits, run=run
    )
