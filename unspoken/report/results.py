"""The files of a run: the model or the statistics, and the certificate."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspoken import writing
from unspoken.summation.evidence import to_json

if TYPE_CHECKING:
    from unspoken.methods.releases import Release
    from unspoken.study import Study
    from unspoken.summation.base import SignedStatement


@dataclass(frozen=True)
class ResultFile:
    """The content of the file with the model or the statistics, made once: the certificate has its SHA-256."""

    kind: str
    suffix: str
    content: bytes

    @classmethod
    def of(cls, release: Release, study: Study) -> ResultFile:
        return cls(release.kind, release.suffix, release.to_bytes(study))

    @property
    def name(self) -> str:
        """The end of the file's name."""
        return f"{self.kind}.{self.suffix}"

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def write(result: ResultFile | None, name: str, certificate: dict[str, Any], folder: Path) -> dict[str, str]:
    """Write the model (or the statistics) and the certificate under the study's name: both, or none.

    Files of earlier runs stay: the second run of a study called "heart" writes heart-2.model.skops, and so on.
    """
    # If a certificate cannot be written down, there should be no result without one.
    parts = {"certificate": ("certificate.json", _written(certificate))}
    if result is not None:
        parts = {result.kind: (result.name, result.content), **parts}
    return _place(parts, name, folder)


def write_again(file: Path, certificate: dict[str, Any], grows: str) -> None:
    """Replace a certificate's file by one whose list of this key is longer."""
    if len(json.loads(file.read_text(encoding="utf-8")).get(grows, ())) >= len(certificate[grows]):
        return
    with writing.staged(file.parent) as hidden:
        (hidden / file.name).write_bytes(_written(certificate))
        writing.keep({hidden / file.name: file}, replace=True)


def write_evidence(study: Study, blamed: Iterable[str], evidence: Iterable[SignedStatement], folder: Path) -> str:
    """Write what those signed whom a run blames, for `unspoken verify --evidence`. Earlier files stay."""
    facts = {"study": study.name, "study_sha256": study.digest(), "blamed": list(blamed)}
    content = _written({**facts, "evidence": to_json(evidence)})
    return _place({"evidence": ("evidence.json", content)}, study.name, folder)["evidence"]


def _written(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _place(parts: dict[str, tuple[str, bytes]], name: str, folder: Path) -> dict[str, str]:
    """Write all files or none, under the first name that is free; each part has the end of its file's name, and the
    content."""
    with writing.staged(folder, make=True, option="--output") as hidden:
        files = {part: hidden / end for part, (end, _) in parts.items()}
        for part, (_, content) in parts.items():
            files[part].write_bytes(content)
        for number in count(1):
            start = name if number == 1 else f"{name}-{number}"
            places = {file: folder / f"{start}.{file.name}" for file in files.values()}
            if writing.keep(places):
                break
    return {part: str(places[file]) for part, file in files.items()}


def find(result: ResultFile, name: str, certificate: dict[str, Any], folder: Path) -> dict[str, str] | None:
    """The files that `write` has made of this very run, if they are there."""
    content = json.loads(json.dumps(certificate))
    for number in count(1):
        start = name if number == 1 else f"{name}-{number}"
        file, signed = folder / f"{start}.{result.name}", folder / f"{start}.certificate.json"
        if not signed.exists():
            return None
        try:
            found = json.loads(signed.read_text(encoding="utf-8"))
            is_result = file.read_bytes() == result.content
        except (OSError, ValueError):
            continue
        if is_result and isinstance(found, dict) and all(found.get(key) == value for key, value in content.items()):
            return {result.kind: str(file), "certificate": str(signed)}
    return None
