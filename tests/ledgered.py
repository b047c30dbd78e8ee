"""Runs in which every party has a ledger, and what such a run should cost."""

from __future__ import annotations

from collections.abc import Callable

from small_studies import KEY, federation_of
from unspoken.engines.actors import Actors
from unspoken.methods.planning import Plan
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream
from unspoken.privacy.ledger import Ledger
from unspoken.roles.party import Party
from unspoken.study import Study


class Ledgered(Actors):
    """All participants of a study, with a ledger for each party."""

    def __init__(self, study: Study, ledger: Callable[[], Ledger] = Ledger) -> None:
        self.ledgers: dict[int, Ledger] = {}
        self._new = ledger
        method = method_for(study)
        super().__init__(method, method.plan(), federation_of(study), SecretStream(KEY))

    def party(self, index: int) -> Party:
        ledger = self.ledgers.setdefault(index, self._new())
        facts = (self._method, self._records[index], self._keys.identity(index), self._keys.roster)
        store = self.stores[f"party:{index}"]
        return Party(*facts, plan=self._plan, store=store, ledger=ledger, root_of=self._attempts.root_of)


def expected(plan: Plan) -> float:
    return plan.guarantee.epsilon


def spent(ledger: Ledger, plan: Plan) -> float:
    return ledger.guarantee(plan.study.privacy.delta).epsilon
