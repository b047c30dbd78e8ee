"""Public records, which everyone may see. All parties need the same ones, as they vote on them.

A study names their file, and may state its SHA-256, so that parties with another file notice before they vote.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from unspoken.data.files import read_features
from unspoken.study import Study
from unspoken.types import Floats

Sha256 = Annotated[
    str | None,
    Field(pattern="^[0-9a-f]{64}$", description="the SHA-256 of the public records' file: 64 digits from 0 to f"),
]


@dataclass(frozen=True, eq=False)
class PublicRecords:
    features: Floats
    note: str
    """A note for the plan that identifies the file"""


def read_public(study: Study, name: str, sha256: str | None) -> PublicRecords:
    """Read the public records' file; its path is relative to the working directory or to the study."""
    path, beside = Path(name), Path(study.source).parent / name
    if not path.is_file() and beside.is_file():
        path = beside
    if not path.exists():
        raise study.error(
            "method.public",
            f'is "{name}", but there is no such file here or beside the study; put it there, or name it',
        )
    features = read_features(path, study)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 not in (None, found):
        raise study.error(
            "method.public_sha256",
            f'is "{sha256}", but {path} has the SHA-256 {found}; use the file that the study means, or correct this',
        )
    advice = "" if sha256 else "; as public_sha256 in the study's [method], it makes sure that all use this file"
    return PublicRecords(features, f"the public records' file has the SHA-256 {found}{advice}")
