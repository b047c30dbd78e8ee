"""Engines, which run a method: they move bytes between parties, helpers and coordinator, and know nothing else."""
