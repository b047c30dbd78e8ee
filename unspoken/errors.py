"""The base of all errors that a person can correct."""

from __future__ import annotations


class UnspokenError(Exception):
    """A mistake in a study, in data or in use: one sentence that says what, where, and what to do."""


def missing_package(what: str, package: str, extra: str) -> UnspokenError:
    """An error that says how to install the package of an extra."""
    return UnspokenError(
        f"{what} needs {package}, which is not installed; in a clone, install it with pip install '.[{extra}]' (or, "
        f"once it is published, with pip install 'unspoken[{extra}]')."
    )
