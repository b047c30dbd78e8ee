"""The k nearest of a party's records to each query, exactly: the shares of their labels are the party's ballot."""

from __future__ import annotations

import numpy as np

from tacit.types import Floats, Integers

_BLOCK_BYTES = 32 << 20
"""How much memory the distances of one block of queries may take."""


def neighbour_shares(queries: Floats, features: Floats, labels: Integers, classes: int, neighbours: int) -> Floats:
    """For each query, the share of each class among its `neighbours` nearest records: (Q, K), rows add up to 1.

    Distances are squared Euclidean ones without the query's own part, which changes no order. Of records that are
    equally far the earlier count.
    """
    if not 1 <= neighbours <= len(features):
        raise ValueError(f"Expected 1 <= neighbours <= {len(features)}, got neighbours={neighbours}.")
    lengths = np.einsum("ij,ij->i", features, features)
    indicators = np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)
    shares = np.empty((len(queries), classes))
    size = max(1, _BLOCK_BYTES // (8 * len(features)))
    for start in range(0, len(queries), size):
        part = queries[start : start + size]
        distances = lengths - 2.0 * (part @ features.T)
        if neighbours < len(features):
            nearest = np.argpartition(distances, neighbours - 1, axis=1)[:, :neighbours]
        else:
            nearest = np.broadcast_to(np.arange(len(features)), distances.shape)
        shares[start : start + size] = indicators[nearest].sum(axis=1) / neighbours
    return shares
