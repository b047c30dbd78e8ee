"""Labels for public records that were not asked about, and second thoughts about those that were.

Label spreading (Zhou et al. 2003): records are the nodes of a graph, joined to their nearest neighbours, and in each
step a record's scores become a mixture of its neighbours' and of what it was told. A wrong label among neighbours that
agree is outvoted. Only public records and what is known of them take part, so it costs no privacy.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tacit.types import Floats, Integers

MOST = 20_000
"""More records than this are not looked at: neighbours are found by comparing all with all."""
_NEIGHBOURS = 5
_MIXTURE = 0.9
"""How much of a record's score comes from its neighbours"""
_STEPS = 100


def spread_labels(records: Floats, labels: Integers, classes: int) -> Integers:
    """A label for every record, the first `len(labels)` of which were told theirs."""
    from sklearn.neighbors import kneighbors_graph

    if len(records) <= _NEIGHBOURS:
        raise ValueError(f"Expected more than {_NEIGHBOURS} records, got {len(records)}.")
    nearest = sparse.csr_array(kneighbors_graph(records, _NEIGHBOURS))
    graph = nearest.maximum(nearest.T)
    degrees = sparse.diags_array(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    step = _MIXTURE * (degrees @ graph @ degrees)
    told = np.zeros((len(records), classes))
    # A label speaks against the other classes as much as for its own.
    told[: len(labels)] = (labels[:, None] == np.arange(classes)) - 1.0 / classes
    scores = told
    for _ in range(_STEPS):
        scores = step @ scores + told
    return np.asarray(scores.argmax(axis=1))


def can_spread(records: int) -> bool:
    return records > _NEIGHBOURS
