"""CORAL: gives a party's records the mean and covariance of public records before its model is trained (Sun, Feng &
Saenko 2016).

A party's features often have another mean and other second moments than the public records that it votes on, because of
another scanner or another region. With means m, m₀ and covariances C, C₀ of the party's and of the public records, a
row becomes

    x ↦ m₀ + (C₀ + ρ₀I)^½ (C + ρI)^−½ (x − m),

ρ₀ and ρ a tenth of the mean variance of the public and of the party's records (if either do not vary at all, only the
mean is moved). Labels are not used. The public records stay as they are, so a model that is trained on the moved rows
applies to them directly.

Formal guarantee. The map is computed from all records of a party, so one record may move all rows, and change
completely what is learnt from them. The map stays at the party and is a function of its own records and of public ones.
So every sensitivity that holds for an arbitrary function of a party's records still holds: for ballots of models
(shares that add up to 1, or zeros, differ by √2 at most, however they were made), for ballots of neighbours where whole
parties are protected, and for clipped updates of whole parties. It does not hold for ballots of k nearest neighbours
where single records are protected: without the map one record replaces one of the k neighbours, with the map it may
replace all.
"""

from __future__ import annotations

import numpy as np

from unspoken.types import Floats

_RIDGE = 0.1
_TINY = 1e-12


def aligned(rows: Floats, public: Floats) -> Floats:
    """The rows with the mean and, nearly, the covariance of the public ones.

    >>> rng = np.random.default_rng(0)
    >>> public, rows = rng.normal(3.0, 2.0, size=(500, 2)), rng.normal(-1.0, 0.5, size=(500, 2))
    >>> moved = aligned(rows, public)
    >>> bool(np.allclose(moved.mean(axis=0), public.mean(axis=0)))
    True
    >>> bool(np.allclose(moved.std(axis=0), public.std(axis=0), rtol=0.1))
    True
    """
    centred, goal = rows - rows.mean(axis=0), public.mean(axis=0)
    own, target = _covariance(rows), _covariance(public)
    if min(_ridge(own), _ridge(target)) < _TINY:
        return np.asarray(goal + centred)
    return np.asarray(goal + centred @ _power(own, -0.5) @ _power(target, 0.5))


def _covariance(rows: Floats) -> Floats:
    centred = rows - rows.mean(axis=0)
    return np.asarray(centred.T @ centred / len(rows))


def _ridge(covariance: Floats) -> float:
    return _RIDGE * float(np.trace(covariance)) / len(covariance)


def _power(covariance: Floats, exponent: float) -> Floats:
    """(C + ρI)^e, by the eigenvalues, which rounding must not make negative."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * (np.maximum(values, 0.0) + _ridge(covariance)) ** exponent) @ vectors.T)
