"""The base of all errors that a person can correct, and the warnings."""

from __future__ import annotations

from typing import ClassVar


class UnspokenError(Exception):
    """A mistake in a study, in data or in use: one sentence that says what, where, and what to do."""

    exit_status: ClassVar[int] = 2
    """The program's: 2 for a mistake of the caller, 3 for a run that was given up, 4 for what was refused"""


class DataWarning(UserWarning):
    """For the holder of the records: they hardly fit the study, or the noise hides what is in them."""


class PrivacyWarning(UserWarning):
    """Something was taken from the data although the guarantee treats it as public."""


def missing_package(what: str, package: str, extra: str) -> UnspokenError:
    """An error that says how to install the package of an extra."""
    return UnspokenError(
        f"{what} needs {package}, which is not installed; in a clone, install it with pip install '.[{extra}]' (or, "
        f"once it is published, with pip install 'unspoken[{extra}]')."
    )


def first_line(error: BaseException) -> str:
    """What an error says, in one line; with its kind, where it says a word only.

    >>> first_line(ValueError("two words\\nand more")), first_line(KeyError("word"))
    ('two words', "KeyError 'word'")
    """
    said = str(error).split("\n", maxsplit=1)[0]
    return said if " " in said else f"{type(error).__name__} {said}".rstrip()


def printable(text: str, most: int = 600) -> str:
    """Text that others wrote, fit for a line of a terminal: it neither moves the cursor nor changes what is shown.

    >>> printable("all is well\\x1b[2J"), printable("too long", most=3)
    ('all is well�[2J', 'too…')
    """
    line = "".join(character if character.isprintable() else "�" for character in text[:most])
    return line if len(text) <= most else f"{line}…"
