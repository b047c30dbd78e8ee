"""The weights of a PyTorch model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unspoken.data.bounding import clip_rows, clipping_factors
from unspoken.methods.releases.base import Release
from unspoken.study import Study
from unspoken.types import Floats

if TYPE_CHECKING:
    from unspoken.learners.torch_models import TorchModel


@dataclass(frozen=True)
class TorchWeights(Release):
    """A PyTorch model. Records are clipped as in training before they are scored; a regression's label was shortened
    with its record, so what is predicted for the clipped one is made longer again."""

    suffix = "npz"
    model: TorchModel
    flat: Floats
    """The trained weights as one vector"""
    details: dict[str, Any]
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

    def estimator(self, study: Study) -> Any:
        """The `torch.nn.Module` itself, ready to predict from the study's bounded vectors: the constant appended and
        each row clipped, as in `data.bounding.clip_rows`."""
        return self.model.module(self.flat)

    def save(self, study: Study, path: Path) -> None:
        """Plain arrays by name: `module.load_state_dict` takes them as tensors."""
        with path.open("wb") as file:
            np.savez(file, **self.state)
