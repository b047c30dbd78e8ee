"""CAPE: every message is private by itself, and most of the noise cancels in the total (Imtiaz et al. 2019).

Algorithm 1: each party draws common noise ê; a secure sum adds up the ê of all parties, and the sum becomes public.
Algorithm 2: each party publishes f + ê + g, with g its own noise; the total of the messages minus the sum of ê is Σf +
Σg. Against the paper: parties send f + ê + g and the aggregator takes Σê away (the same view, and exact in integers);
the guarantee is that of `privacy.correlated`, for any number of colluding parties; the orders of the functional
mechanism are one release; f is a sum over records, so that parties of unequal size count by their records.

Noise first: the ê need no data and are drawn for all turns at once, at any time before them. If a party vanishes after
its ê was summed and before its message, its ê stays in the total, as noise of known size without bias. If more vanish
than the study allows, no total is made.

Messages first: the default where parties may vanish. The messages come first, then the secure sum of the ê of all who
sent one. The message of a party that is not in this sum is left out of the total, so no ê stays in it, whenever a party
vanishes. This order is equally private (`privacy.correlated`), but takes a secure sum for each turn, after the records
were used.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from unspoken import defaults
from unspoken.methods.base import Cancel, Collect, Conversation, Total, ZeroSum
from unspoken.methods.functions import FunctionMethod, FunctionOptions
from unspoken.methods.planning import Plan
from unspoken.methods.planning.budget import epsilon_for
from unspoken.methods.planning.correlated_noise import CorrelatedNoise
from unspoken.methods.planning.mechanisms import NoiseShares, Participation
from unspoken.methods.planning.plan import agreed_protocol
from unspoken.methods.workloads import Query, Requests
from unspoken.noise.discrete_gaussian import LARGEST_SIGMA
from unspoken.privacy.gaussian import mu_for
from unspoken.study import LEAST_EPSILON, Template

_STRONGER = 1000.0
"""The factor on the paper's variance of ê if no ê can stay in the total. A larger ê then costs nothing, and the total's
noise is within 0.1 % of a secure sum's."""

_PUBLISHED = {"reshape": False, "repair": "none"}
"""The settings of capeFM in the paper"""
_ALIKE = 0.999
"""Two deviations whose ratio is nearer to 1 are told as one."""
_TRIES = 1000
_MOST_TOLD = 20
"""The number of parties whose promise is told in words; of more, the JSON has all"""


class CapeOptions(FunctionOptions):
    """The keys of [method] for cape."""

    correlation: float | None = Field(
        None,
        ge=1.0,
        le=1e9,
        description="the variance of the noise that cancels over that of the noise that stays, from 1 to 1e9; the "
        "paper's is the number of parties",
    )
    published: bool = Field(
        False,
        description="true or false (true: the paper's settings where none are given: correlation = the number of "
        'parties, order = "noise-first", reshape = false, repair = "none"; for comparisons)',
    )
    epsilons: list[float] | None = Field(
        None,
        description="each party's own epsilon, in the order of the parties, none above [privacy] epsilon",
    )
    order: Literal["noise-first", "messages-first"] | None = Field(
        None,
        description='"noise-first" (the sum of the common noise is made before the messages, for all turns at once) or '
        '"messages-first" (after the messages of each turn, by those who sent one; the default if parties may drop '
        "out)",
    )


class Cape(FunctionMethod):
    """Correlation assisted private estimation, and with a regression capeFM."""

    name = "cape"
    summary = "noise correlated across parties, so that most of it cancels in the sum"
    keys = CapeOptions
    template: ClassVar[Template] = {
        "classification": """\
function = "logistic-regression"  # or "softmax", "discriminant", "network"
""",
        "regression": """\
function = "linear-regression"  # least squares, the function that fits this task
""",
        "statistics": """\
function = "mean"             # of each column; or "histogram", with bins = 10
""",
    }

    _more_noise = 1.0
    """A factor on the variance for parties with stronger promises, which makes up for the part of δ that is spent
    elsewhere."""

    def read_options(self) -> CapeOptions:
        options = self.study.options("method", CapeOptions)
        if not options.published:
            return options
        paper = {"correlation": max(1.0, float(self.study.parties.count)), "order": "noise-first", **_PUBLISHED}
        return options.model_copy(update={key: paper[key] for key in paper.keys() - options.model_fields_set})

    @property
    def noise(self) -> CorrelatedNoise:
        options = self.read_options()
        default = "messages-first" if self.study.dropouts else "noise-first"
        messages_first = (options.order or default) == "messages-first"
        stronger = _STRONGER if messages_first or not self.study.dropouts else 1.0
        ratio = self.study.parties.count * stronger if options.correlation is None else options.correlation
        return CorrelatedNoise(ratio, messages_first=messages_first, stronger=self._stronger)

    def plan(self) -> Plan:
        plan = super().plan()
        self._check_drawn(plan)
        if self.epsilons is None:
            return replace(plan, notes=(*plan.notes, *_doubts(plan)))
        for _ in range(_TRIES):
            # Parties that want the same get the same.
            found = {own: _promise(plan, party) for party, own in enumerate(self.epsilons)}
            if all(kept["epsilon"] <= own * (1.0 + 1e-9) for own, kept in found.items()):
                promises = [{"party": party, **found[own]} for party, own in enumerate(self.epsilons)]
                told = ", ".join(f"{kept['epsilon']:.4g} for party {kept['party']}" for kept in promises[:_MOST_TOLD])
                more = "" if len(promises) <= _MOST_TOLD else ", …"
                own = f"each party has a promise of its own for its records: epsilon = {told}{more}; the total must "
                own += "hide the strictest"
                if any(noise.stronger != self._stronger for noise in _noises(plan)):
                    own += ", and has less noise if those that ask for less privacy add more noise than they need"
                return replace(
                    plan, notes=(*plan.notes, *_doubts(plan), own), facts={**plan.facts, "promises": promises}
                )
            self._more_noise *= 1.001
            plan = super().plan()
        raise RuntimeError("The noise does not keep every party's promise.")

    def _check_drawn(self, plan: Plan) -> None:
        """Refuse noise that is too large to be drawn."""
        noises = _noises(plan)
        if max(noise.widest for noise in noises) <= LARGEST_SIGMA:
            return
        ratio = noises[0].ratio
        usual, given = math.sqrt(max(noise.common for noise in noises)), self.epsilons
        if given is not None and usual <= LARGEST_SIGMA:
            problem = f"has {min(given):g}, for which noise is too large to be drawn; choose larger ones"
            raise self.study.error("method.epsilons", problem)
        most = 0.9 * ratio * (LARGEST_SIGMA / usual) ** 2
        problem = f"is {ratio:g}, which makes noise too large to be drawn; choose {most:.2g} or less"
        raise self.study.error("method.correlation", problem)

    @property
    def epsilons(self) -> list[float] | None:
        """Each party's own ε, if they have some."""
        given, privacy = self.read_options().epsilons, self.study.privacy
        if given is None:
            return None
        if privacy.epsilon is None:
            raise self.study.error("method.epsilons", "needs [privacy] epsilon, which holds for all parties")
        if len(given) != self.study.parties.count:
            problem = f"has {len(given)} numbers, but should have one for each of {self.study.parties.count} parties"
            raise self.study.error("method.epsilons", problem)
        if wrong := [own for own in given if not LEAST_EPSILON <= own <= privacy.epsilon]:
            problem = f"has {wrong[0]:g}, but should have numbers from {LEAST_EPSILON:g} up to [privacy] epsilon"
            raise self.study.error("method.epsilons", f"{problem}, {privacy.epsilon:g}")
        return given

    @property
    def _stronger(self) -> tuple[float, ...]:
        """The variance that each party's adversary is to have, over that of the study's ε: (μ(ε)/μ(own ε))²."""
        if (given := self.epsilons) is None:
            return ()
        study, delta = self.study, self.study.privacy.delta
        whole = mu_for(epsilon_for(study), delta)
        ratios = {own: (whole / mu_for(own, delta)) ** 2 for own in set(given)}
        return tuple(ratios[own] * self._more_noise if ratios[own] > 1.0 else 1.0 for own in given)

    def coordinate(self, plan: Plan) -> Conversation:
        if self.noise.prepares:
            for planned in plan.sums:
                yield ZeroSum(planned.name)
        return (yield from super().coordinate(plan))

    def ask(self, query: Query) -> Requests:
        messages = Collect(query.name, query.parameters, query.turn)
        total: Total = yield messages
        if self.noise.cancels:
            total = yield Cancel(query.name, query.turn, messages)
        return total


def _noises(plan: Plan) -> list[CorrelatedNoise]:
    return [planned.noise for planned in plan.sums if isinstance(planned.noise, CorrelatedNoise)]


def _promise(plan: Plan, party: int) -> dict[str, Any]:
    """A party's own promise: what its adversary faces if as few others are there as the plan allows."""
    promised = plan.guarantee_for(party)
    deviations = {planned.name: planned.noise_std_for(party) for planned in plan.sums}
    return {"epsilon": promised.epsilon, "delta": promised.delta, "noise_std": deviations}


def _doubts(plan: Plan) -> list[str]:
    """Notes on when another order or method serves better."""
    planned, parties = plan.sums[0], plan.trust.parties
    deviations = np.array([planned.noise_std_for(party) for party in range(parties)])
    if planned.noise.cancels:
        other = _summed(plan, float(deviations.max()))
        return [f"messages come first, then a secure sum of their noise, in each turn; {other}"]
    strictest = np.argsort(-deviations, kind="stable")
    for vanished in range(1, plan.trust.dropouts + 1):
        sent = np.ones(parties, dtype=np.bool_)
        sent[strictest[:vanished]] = False
        left, independent = planned.total_std_of(np.ones_like(sent), sent), float(np.linalg.norm(deviations[sent]))
        if left > _ALIKE * independent:
            gone = "1 party vanishes" if vanished == 1 else f"{vanished:,} parties vanish"
            gone = gone if deviations.min() == deviations.max() else f"{gone}, the strictest,"
            amount = f"more noise ({left:.4g}) than" if _ALIKE * left > independent else "as much noise as"
            return [
                f"if {gone} between the noise and the messages, the total has {amount} independent noise would have "
                f'({independent:.4g}): use order = "messages-first", or "{defaults.METHOD}"'
            ]
    return []


def _summed(plan: Plan, deviation: float) -> str:
    """How a secure sum of everything compares, which has one promise for all: the strictest, of this deviation."""
    planned, everyone = plan.sums[0], Participation(plan.trust.parties, plan.trust.parties)
    if deviation <= planned.noise_std:
        return f'"{defaults.METHOD}" has no more noise in the total, and no messages'
    opens = agreed_protocol(plan.study, plan.trust, plan.sums).opens_noise
    shares = NoiseShares().sized(plan.trust, (deviation * planned.encoding.scale) ** 2, opens)
    other = math.sqrt(shares.total(everyone)) / planned.encoding.scale
    told = f"{other:.4g}, where this has {planned.total_std(plan.trust.parties):.4g}"
    return f'"{defaults.METHOD}" needs no messages, but the strictest epsilon for all: noise of {told}'
