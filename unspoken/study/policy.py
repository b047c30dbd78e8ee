"""A site's policy: a TOML file that says which studies its parties take part in without a person being asked.

Coordinators, parties and helpers are known by their keys, as whoever writes a study chooses the names in its roster.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Literal

from pydantic import Field

from unspoken.study.explaining import StudyError, checked
from unspoken.study.section import Section
from unspoken.study.sections import GroupUnit, PublicKey

_NAMES = 'a list of names, such as ["moments", "helmet"]'


class PolicyStudies(Section):
    """The studies that are allowed."""

    methods: list[str] | None = Field(None, description=_NAMES)
    protocols: list[str] | None = Field(None, description='a list of names, such as ["secagg+"]')
    coordinator: Literal["lying", "curious"] = Field(
        "lying", description='"lying" or "curious" (curious: the promise need not hold against a coordinator that lies)'
    )
    enclaves: bool = Field(False, description="true or false (true: the promise may rest on enclaves)")


class PolicyData(Section):
    """The data that they may use."""

    columns: list[str] | None = Field(
        None, description='a list of columns, such as ["age", "died"]: a study uses no others, the label included'
    )
    features: int | None = Field(None, ge=1, description="a whole number, 1 or more: the most features of a matrix")


class PolicyLimits(Section):
    """The cost that they may have."""

    epsilon: float | None = Field(None, gt=0.0, description="a number above 0, such as 1.0: the most of one study")
    delta: float | None = Field(None, gt=0.0, lt=1.0, description="a number between 0 and 1: the most of one study")
    total_epsilon: float | None = Field(
        None, gt=0.0, description="a number above 0: the most that all studies on a data set may cost together"
    )
    total_delta: float = Field(1e-6, gt=0.0, lt=1.0, description="a number between 0 and 1, such as 1e-6")
    parties: int | None = Field(None, ge=2, description="a whole number, 2 or more: the fewest parties")
    colluding: int = Field(0, ge=0, description="a whole number: the fewest parties that may collude")
    unit: Literal["record", "party"] | GroupUnit | None = Field(
        None, description='"record", "party" or { group = 5 }: the least that is protected'
    )
    adjacency: Literal["replace", "add-remove"] = Field(
        "replace",
        description='"replace" or "add-remove" (add-remove: it may hide less, that a unit was left out, not replaced)',
    )

    @property
    def group(self) -> int | None:
        """The number of records that are protected at least; None: all of a party's."""
        if isinstance(self.unit, GroupUnit):
            return self.unit.group
        return None if self.unit == "party" else 1


class Policy(Section):
    """A whole policy. What it says nothing about is refused, unless `refuse_uncovered` is false."""

    refuse_uncovered: bool = Field(
        True, description="true or false (false: whatever the policy says nothing about is allowed)"
    )
    coordinators: dict[str, PublicKey] | None = Field(
        None, description='keys by names, as on their cards: "St Mary" = 64 hexadecimal digits (0-9, a-f)'
    )
    parties: dict[str, PublicKey] | None = Field(
        None, description='keys by names, as on their cards: "Hospital 1" = 64 hexadecimal digits (0-9, a-f)'
    )
    helpers: dict[str, PublicKey] | None = Field(
        None, description='keys by names, as on their cards: "Node 1" = 64 hexadecimal digits (0-9, a-f)'
    )
    studies: PolicyStudies = PolicyStudies()
    data: PolicyData = PolicyData()
    limits: PolicyLimits = PolicyLimits()
    source: str = Field("the policy", exclude=True)
    sha256: str = Field("", exclude=True)


def read_policy(path: Path) -> Policy:
    """Read and check a policy; one sentence if something is wrong with it."""
    try:
        content = path.read_bytes()
        found = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise StudyError(f"{path}: cannot be read ({error.strerror}); name a policy's file by --policy.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StudyError(f"{path}: is not valid TOML ({error}); correct it at that place or just before.") from None
    for name in found.keys() & {"source", "sha256"}:
        raise StudyError(f"{path}: [{name}] is an unknown section; remove it.")
    digest = hashlib.sha256(content).hexdigest()
    return checked(Policy, {**found, "source": str(path), "sha256": digest}, str(path))
