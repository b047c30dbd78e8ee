"""What unspoken raises when something is wrong that a person can put right."""

from __future__ import annotations


class UnspokenError(Exception):
    """A mistake in a study, in data or in use: one sentence that says what, where, and what to do."""
