"""Plans: the sums that a method declares, their noise, and what follows from them before anyone looks at data."""

from unspoken.methods.planning.making import make_plan
from unspoken.methods.planning.plan import Plan
from unspoken.methods.planning.sums import DeclaredSum, OtherRelease, PlannedSum, RecordSampling

__all__ = ["DeclaredSum", "OtherRelease", "Plan", "PlannedSum", "RecordSampling", "make_plan"]
