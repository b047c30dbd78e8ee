"""Models that are saved as plain scikit-learn objects with skops: no code runs when one is loaded, and unspoken is not
needed.

For a table, preprocessing is rebuilt from the study's public bounds.
"""

from __future__ import annotations

import io
import json
import zipfile
from abc import abstractmethod
from pathlib import Path
from typing import Any

from unspoken.methods.releases.base import Release
from unspoken.methods.releases.preprocessing import preprocessing
from unspoken.study import Study

_SCHEMA = "schema.json"
"""The file in which skops describes the others"""


class ScikitModel(Release):
    """A model that has a scikit-learn form."""

    suffix = "skops"

    @abstractmethod
    def fitted(self, study: Study, order: list[int]) -> Any:
        """The scikit-learn form for features that come in this order: `order[i]` is the place of feature i in the
        study's own vectors."""

    def estimator(self, study: Study) -> Any:
        """A fitted scikit-learn estimator: for a table, a pipeline that takes data frames with the study's columns."""
        if not study.data.is_table:
            return self.fitted(study, list(range(study.data.raw_dimension)))
        from sklearn.pipeline import Pipeline

        bounding, order = preprocessing(study)
        return Pipeline([("bound", bounding), ("model", self.fitted(study, order))])

    def to_bytes(self, study: Study) -> bytes:
        import skops.io

        return _settled(skops.io.dumps(self.estimator(study)))


def _settled(archive: bytes) -> bytes:
    """The same archive without what differs from one dump to the next: times, and addresses in memory as names; and
    without blanks, which are most of it."""
    settled = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as found, zipfile.ZipFile(settled, "w") as made:
        names = {info.filename: f"{number}{Path(info.filename).suffix}" for number, info in enumerate(found.infolist())}
        names[_SCHEMA] = _SCHEMA
        schema = _renamed(json.loads(found.read(_SCHEMA)), names, {})
        for name, other in names.items():
            content = json.dumps(schema, separators=(",", ":")).encode() if name == _SCHEMA else found.read(name)
            made.writestr(zipfile.ZipInfo(other), content)
    return settled.getvalue()


def _renamed(node: Any, names: dict[str, str], numbers: dict[int, int]) -> Any:
    """A part of skops' description, with other names of files, and objects numbered as they are met."""
    if isinstance(node, list):
        return [_renamed(part, names, numbers) for part in node]
    if not isinstance(node, dict):
        return node
    made = {key: _renamed(part, names, numbers) for key, part in node.items()}
    if isinstance(number := node.get("__id__"), int):
        made["__id__"] = numbers.setdefault(number, len(numbers))
    if isinstance(file := node.get("file"), str):
        made["file"] = names.get(file, file)
    return made
