"""Bounded vectors from records, by the study's public bounds and nothing else.

A table's numbers are clipped to their bounds and scaled to [−1, 1], and its categories become indicators; a matrix is
taken as it is. Then a constant is appended (if the study has an intercept; it is 1, unless the method has a rule for
it) and the whole vector, constant included, is clipped to the study's norm c. (DP-Helmet's code appends the constant
after clipping, so its vectors exceed c.)
A regression's labels are clipped and scaled like a table's numbers.
"""

from __future__ import annotations

import numpy as np

from unspoken.study import Column, DataSection, StudyError
from unspoken.types import Flags, Floats, Integers


def scale_column(values: Floats, column: Column) -> Floats:
    """Numbers clipped to the column's public bounds and scaled to [−1, 1].

    >>> scale_column(np.array([0.0, 55.0, 999.0]), Column(min=0, max=110)).tolist()
    [-1.0, 0.0, 1.0]
    """
    return _scale(values, column.low, column.high)


def scale_labels(values: Floats, data: DataSection) -> Floats:
    """A regression's labels clipped to their public bounds and scaled to [−1, 1].

    >>> scale_labels(np.array([0.0, 55.0, 999.0]), DataSection(features=1, label_bounds=(0, 110))).tolist()
    [-1.0, 0.0, 1.0]
    """
    return _scale(values, *_label_bounds(data))


def unscale_labels(scaled: Floats, data: DataSection) -> Floats:
    """Scaled labels in their own units. A prediction outside [−1, 1] is clipped to the bounds: no label is beyond.

    >>> unscale_labels(np.array([-1.0, 0.0, 1.0, 2.0]), DataSection(features=1, label_bounds=(0, 110))).tolist()
    [0.0, 55.0, 110.0, 110.0]
    """
    low, high = _label_bounds(data)
    values: Floats = low + (np.clip(scaled, -1.0, 1.0) + 1.0) / 2.0 * (high - low)
    return values


def _scale(values: Floats, low: float, high: float) -> Floats:
    # In this order rounding never leaves [−1, 1], and the bounds map exactly to −1 and 1.
    scaled: Floats = (np.clip(values, low, high) - low) / (high - low) * 2.0 - 1.0
    return scaled


def _label_bounds(data: DataSection) -> tuple[float, float]:
    if data.label_bounds is None:
        raise StudyError("[data] lacks label_bounds: the smallest and the largest possible label, as [0, 110].")
    return data.label_bounds


def indicate(codes: Integers | Floats, column: Column) -> Floats:
    """Category numbers as indicator columns."""
    return np.asarray(codes[:, None] == np.arange(column.width), dtype=np.float64)


def append_one(rows: Floats, constant: float = 1.0) -> Floats:
    """The rows, each with a 1 appended, or with another constant."""
    return np.concatenate([rows, np.full((len(rows), 1), constant)], axis=1)


def with_constant(features: Floats, data: DataSection) -> Floats:
    """Append the constant if the study has one."""
    return append_one(features, data.constant) if data.has_intercept else features


def clip_rows(features: Floats, data: DataSection) -> Floats:
    """Append the constant if the study has one, then clip every row to the study's norm."""
    features = with_constant(features, data)
    norms = _norms(features)
    if np.isinf(norms).any():
        # Squares overflow: scale such rows down to a moderate length of at least c.
        huge = np.isinf(norms)[:, None]
        peaks = np.abs(features).max(axis=1, keepdims=True)
        features = np.where(huge, features / np.where(huge, peaks, 1.0) * data.norm, features)
        norms = _norms(features)
    if not (norms > data.norm).any():
        return features
    clipped: Floats = features * (data.norm / np.maximum(norms, data.norm))[:, None]
    return clipped


def clipping_factors(features: Floats, data: DataSection) -> Floats:
    """The factors of `clip_rows`. A regression multiplies labels too, so that y = wᵀx still holds.

    >>> clipping_factors(np.array([[3.0, 4.0], [0.3, 0.4]]), DataSection(features=2)).tolist()
    [0.2, 1.0]
    """
    constant = data.constant if data.has_intercept else 0.0
    peaks = np.maximum(np.abs(features).max(axis=1), max(constant, 1e-300))
    with np.errstate(over="ignore"):
        norms = peaks * np.sqrt(_norms(features / peaks[:, None]) ** 2 + (constant / peaks) ** 2)
    factors: Floats = data.norm / np.maximum(norms, data.norm)
    return factors


def lengths_of(features: Floats, data: DataSection) -> Floats:
    """The norms of rows before they are clipped, with the constant if the study has one.

    >>> lengths_of(np.array([[3.0, 4.0], [0.0, 0.0]]), DataSection(features=2)).tolist()
    [5.0, 0.0]
    """
    whole = with_constant(features, data)
    peaks = np.maximum(np.abs(whole).max(axis=1), 1e-300)
    with np.errstate(over="ignore"):
        lengths: Floats = peaks * _norms(whole / peaks[:, None])
    return lengths


def too_long(lengths: Floats, norm: float) -> Flags:
    """The rows that clipping changes: longer than the norm by more than the rounding of 32-bit numbers.

    >>> too_long(np.array([1.0000001, 1.00001]), 1.0).tolist()
    [False, True]
    """
    flags: Flags = lengths > norm * (1.0 + 1e-6)
    return flags


def _norms(features: Floats) -> Floats:
    norms: Floats = np.sqrt(np.einsum("ij,ij->i", features, features))
    return norms
