"""What unspoken raises when something is wrong that a person can put right."""

from __future__ import annotations


class UnspokenError(Exception):
    """A mistake in a study, in data or in use: one sentence that says what, where, and what to do."""


def missing_package(what: str, package: str, extra: str) -> UnspokenError:
    """The error for something that needs a package of one of our extras: it says how to install it."""
    return UnspokenError(
        f"{what} needs {package}, which is not installed; in a clone, install it with pip install '.[{extra}]' (or, "
        f"once it is published, with pip install 'unspoken[{extra}]')."
    )
