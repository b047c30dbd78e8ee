"""Label spreading (Zhou et al. 2003): labels for public records without a vote, and corrections for those with one.

Records are the nodes of a graph and are joined to their nearest neighbours. In each step a record's scores become a
mixture of its neighbours' scores and of its own vote (the winner, or noisy totals). A wrong label is outvoted by
neighbours that agree, and noise averages out. Only public records and released votes are used, so this costs no
privacy.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from unspoken.types import Floats, Integers

MOST = 20_000
"""The largest number of records used: finding neighbours compares all pairs."""
_NEIGHBOURS = 5
_MIXTURE = 0.9
"""The weight of the neighbours in a record's score"""
_STEPS = 100


def spread_labels(records: Floats, known: Floats) -> Integers:
    """A label for every record; `known` (Q, K) has the votes for each class of the first Q records."""
    from sklearn.neighbors import kneighbors_graph

    if len(records) <= _NEIGHBOURS:
        raise ValueError(f"Expected more than {_NEIGHBOURS} records, got {len(records)}.")
    nearest = sparse.csr_array(kneighbors_graph(records, _NEIGHBOURS))
    graph = nearest.maximum(nearest.T)
    degrees = sparse.diags_array(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    step = _MIXTURE * (degrees @ graph @ degrees)
    told = np.zeros((len(records), known.shape[1]))
    told[: len(known)] = known
    scores = told
    for _ in range(_STEPS):
        scores = step @ scores + told
    return np.asarray(scores.argmax(axis=1))


def can_spread(records: int) -> bool:
    return records > _NEIGHBOURS
