"""Plans: the sums that a method declares, the noise that they need, and the guarantee that follows, all before any data
is read."""

from unspoken.methods.planning.making import make_plan, with_doubts
from unspoken.methods.planning.plan import Plan
from unspoken.methods.planning.sums import DeclaredSum, OtherRelease, PlannedSum, RecordSampling
from unspoken.methods.planning.units import promised_for

__all__ = [
    "DeclaredSum",
    "OtherRelease",
    "Plan",
    "PlannedSum",
    "RecordSampling",
    "make_plan",
    "promised_for",
    "with_doubts",
]
