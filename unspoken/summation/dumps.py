"""Arrays in dumped states, for MessagePack."""

from __future__ import annotations

from typing import Any

import numpy as np


def array_to_bytes(value: Any) -> Any:
    """An array as its type and its bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    raise TypeError(f"Expected an array, got {type(value)}.")


def array_from_bytes(kind: Any, value: Any) -> Any:
    """The inverse: an array of its own, which can be changed."""
    dtype, data = value
    return np.frombuffer(data, dtype=np.dtype(dtype)).copy()
