"""The weights of a PyTorch model."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.bounding import clip_rows, clipping_factors
from unspoken.learners.public_directions import PublicDirections
from unspoken.methods.releases.base import Release
from unspoken.methods.releases.described import description
from unspoken.study import Study
from unspoken.types import Floats

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel


DESCRIPTION = "unspoken"
"""The array of a model file that describes it, and is no weight"""


@dataclass(frozen=True)
class TorchWeights(Release):
    """A PyTorch model. Records are clipped before they are scored, as in training.

    In training a regression's label is scaled down together with its clipped record, so predictions are scaled up
    again.
    """

    suffix = "npz"
    model: TorchModel
    flat: Floats
    """The trained weights as one vector"""
    details: dict[str, Any]
    history: tuple[dict[str, float], ...] = ()
    """What was measured on public records in the course of the training: the rounds made so far, and the metrics"""
    link = "softmax"

    @property
    def state(self) -> dict[str, Any]:
        """All weights by name, frozen ones too."""
        return self.model.state(self.flat)

    def scores(self, study: Study, features: Floats) -> Floats:
        found = self.model.scores(self.flat, clip_rows(features, study.data))
        if study.task == "regression":
            return found / clipping_factors(features, study.data)[:, None]
        return found

    def failures(self, study: Study, features: Floats) -> tuple[int, str]:
        return self.model.failures(self.flat, clip_rows(features, study.data))

    def mapped_back(self, directions: PublicDirections) -> TorchWeights:
        """Of `nn.Linear`: its matrix comes first, then the bias."""
        features = len(directions.matrix)
        outputs = len(self.flat) // (features + 1)
        matrix, bias = np.split(self.flat, [outputs * features])
        undone = directions.undo(directions.told(matrix.reshape(outputs, features), bias))
        return replace(self, flat=np.concatenate([undone.ravel(), bias]))

    def estimator(self, study: Study) -> Any:
        """The `torch.nn.Module` itself, ready to predict from the study's bounded vectors: the constant appended and
        each row clipped, as in `data.bounding.clip_rows`."""
        return self.model.module(self.flat)

    def to_bytes(self, study: Study) -> bytes:
        """Plain arrays by name, which `module.load_state_dict` takes as tensors, and the description of the model as
        JSON text, under the name "unspoken"."""
        file = io.BytesIO()
        described = np.array(json.dumps(description(study, self.model.described), ensure_ascii=False))
        # As numpy.savez does, which takes no array of the name "file".
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in {**self.state, DESCRIPTION: described}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        return file.getvalue()

    def to_json(self) -> dict[str, Any]:
        """What was measured in the course of the training, if anything was."""
        return {"validation": list(self.history)} if self.history else {}
