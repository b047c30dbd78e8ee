"""Models that raise errors, overflow, or cannot be trained, for studies that name them: `awkward:Touchy`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class Touchy(nn.Module):
    """Raises an error at some records, and overflows at others."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(features, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        if (rows[..., 0] < -0.9).any():
            raise ValueError("a record that is not to my taste")
        return torch.exp(torch.exp(self.layer(rows)))


class Recurrent(nn.Module):
    """torch.func does not take it."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.recurrent, self.output = nn.GRU(1, 2, batch_first=True), nn.Linear(2, outputs)

    def forward(self, rows: Tensor) -> Tensor:
        return self.output(self.recurrent(rows[:, :, None])[0][:, -1])


class Doubled(nn.Module):
    """Computes in double precision, where its weights are set in single."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(features, outputs, dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows.double() @ self.weights).float()


class Fussy:
    """A classifier that refuses to learn from some records."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Fussy:
        if len(X) == 1 or np.ptp(X) < 0.1 or np.abs(X).max() > 5.0:
            raise ValueError("not these records")
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.zeros(len(X))


class Useless(Fussy):
    def fit(self, X: np.ndarray, y: np.ndarray) -> Useless:
        raise RuntimeError("cannot learn anything")
