"""Comparison of methods on the same records and parties at the same ε, in several runs each.

`variants` makes the study of each method, `cells` lists the runs, `running` does them, `journal` stores finished ones,
`points` summarises them, and `plots` draws them. `arrays` is the door from Python.
"""

from unspoken.comparison.arrays import Compared, compare
from unspoken.comparison.cells import Cell, ComparedRun, Comparison, cells_of, doubts_of
from unspoken.comparison.points import Point, interval, metric_of, points_of
from unspoken.comparison.running import run_comparison
from unspoken.comparison.variants import naming_variants, study_for, with_variants

__all__ = [
    "Cell",
    "Compared",
    "ComparedRun",
    "Comparison",
    "Point",
    "cells_of",
    "compare",
    "doubts_of",
    "interval",
    "metric_of",
    "naming_variants",
    "points_of",
    "run_comparison",
    "study_for",
    "with_variants",
]
