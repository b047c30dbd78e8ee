"""Guarantees: what a plan promises, and the noise that a wanted promise needs. Nothing here sees data."""
