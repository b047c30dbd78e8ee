"""Labels for public records that were not asked about, and second thoughts about those that were.

Label spreading (Zhou et al. 2003): records are the nodes of a graph, joined to their nearest neighbours, and in each
step a record's scores become a mixture of its neighbours' and of what it was told: the winner, or noisy totals. A wrong
label among neighbours that agree is outvoted, and noise averages out. Only public records and what is known of them
take part, so it costs no privacy.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from unspoken.types import Floats, Integers

MOST = 20_000
"""More records than this are not looked at: neighbours are found by comparing all with all."""
_NEIGHBOURS = 5
_MIXTURE = 0.9
"""How much of a record's score comes from its neighbours"""
_STEPS = 100


def spread_labels(records: Floats, known: Floats) -> Integers:
    """A label for every record. Of the first `len(known)` it is known how much speaks for each class: (Q, K)."""
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
