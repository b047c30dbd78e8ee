"""Whole studies in one place: from records and a split to a model, its metrics and its certificate.

`runs` runs them, on this machine or on a cluster; `arrays` and `computing` are the doors from Python.
"""

from unspoken.simulation.arrays import as_it_was_without, in_order, parties_of, records_of, simulate, sizes_of, warn
from unspoken.simulation.computing import Computation, FunctionalMechanism, compute, functional_mechanism
from unspoken.simulation.runs import CHOSEN_BLINDLY, RAY, Simulation, check_engine, simulate_folder, simulate_records
from unspoken.simulation.tuning import Tuned, tune

__all__ = [
    "CHOSEN_BLINDLY",
    "RAY",
    "Computation",
    "FunctionalMechanism",
    "Simulation",
    "Tuned",
    "as_it_was_without",
    "check_engine",
    "compute",
    "functional_mechanism",
    "in_order",
    "parties_of",
    "records_of",
    "simulate",
    "simulate_folder",
    "simulate_records",
    "sizes_of",
    "tune",
    "warn",
]
