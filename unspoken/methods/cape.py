"""CAPE: messages that are private on their own, whose noise all but cancels in the total (Imtiaz et al. 2019).

Algorithm 1: the parties' ê are added up in a real secure sum, and the sum becomes known. Algorithm 2: each party
publishes f + ê + g; the total of the messages less the sum of ê is Σf + Σg. Against the paper: parties send f + ê + g
and the aggregator takes Σê away (the same view, and exact in integers); the guarantee is that of
`privacy.correlated`, for any number of colluding parties; the orders of the functional mechanism are one release; f is
a sum over records, so that parties of unequal size count by their records.

The noise ê needs no data and is made for all turns at once, as long before them as one likes. A party that vanishes
between its ê and its message leaves that ê in the total: more noise, of known size, and no bias; what it is worth is in
the certificate. If more vanish than the study allows, the total is not made.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from unspoken.methods.base import Conversation, ZeroSum
from unspoken.methods.functions import FunctionMethod, FunctionOptions
from unspoken.methods.mechanisms import CorrelatedNoise
from unspoken.methods.plan import Plan
from unspoken.study import Template

_STRONGER = 1000.0
"""The factor on the paper's variance of ê if nobody may vanish, where ê costs nothing: the total's noise is then within
0.1 % of a secure sum's."""


class CapeOptions(FunctionOptions):
    """The keys of [method] for cape."""

    correlation: float | None = Field(
        None,
        ge=1.0,
        le=1e9,
        description="the variance of the noise that cancels over that of the noise that stays, from 1; the paper's is "
        "the number of parties",
    )


class Cape(FunctionMethod):
    """Correlation assisted private estimation, and with a regression capeFM."""

    name = "cape"
    summary = "noise correlated across parties, so that most of it cancels in the sum"
    keys = CapeOptions
    template: ClassVar[Template] = {
        "classification": """\
function = "logistic-regression"  # of two classes; or "softmax", "discriminant", "network"
""",
        "regression": """\
function = "linear-regression"  # least squares, the function that fits this task
""",
        "statistics": """\
function = "mean"             # of each column; or "histogram", with bins = 10
""",
    }

    def read_options(self) -> CapeOptions:
        return self.study.options("method", CapeOptions)

    @property
    def noise(self) -> CorrelatedNoise:
        chosen = self.read_options().correlation
        stronger = 1.0 if self.study.dropouts else _STRONGER
        return CorrelatedNoise(self.study.parties.count * stronger if chosen is None else chosen)

    def coordinate(self, plan: Plan) -> Conversation:
        for planned in plan.sums:
            yield ZeroSum(planned.name)
        return (yield from super().coordinate(plan))
