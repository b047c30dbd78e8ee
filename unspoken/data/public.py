"""Public records: everyone may see them, and everyone must have the same ones, as parties vote on them.

A study names their file, and may say its SHA-256; parties with another file then find out before they vote.
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
    """For the plan: which file it is"""


def read_public(study: Study, name: str, sha256: str | None) -> PublicRecords:
    """Read public records from the file that the study names: from here, or from where the study is."""
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
            f'is "{sha256}", but {path} has the SHA-256 {found}: use the file that the study means, or correct this',
        )
    advice = "" if sha256 else "; as public_sha256 in the study's [method], it keeps others from using another file"
    return PublicRecords(features, f"the public records' file has the SHA-256 {found}{advice}")
