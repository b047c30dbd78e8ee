"""Representative public records to vote on: the centres of as many clusters as there are queries.

The label of such a record also fits the records around it, and votes on it are seldom close. Only public records are
used, so it costs no privacy.
"""

from __future__ import annotations

import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from unspoken.types import Floats, Integers

CLUSTERED = 10_000
"""The largest number of records to cluster; more take too long, as do more than `_CLUSTERS` clusters."""
_CLUSTERS = 1_000
_COMPONENTS = 50
"""Records with more features are reduced to this number of principal components."""
_STEPS = 30


def typical_records(records: Floats, count: int) -> Integers:
    """Sorted indices of at most `count` representative records; empty if `count` exceeds half of all records.

    >>> typical_records(np.array([[0.0], [0.2], [9.0], [0.1], [9.1], [9.2]]), 2).tolist()
    [3, 4]
    """
    if 2 * count > len(records):
        return np.empty(0, dtype=np.int64)
    # With one thread the result is reproducible, at least on the same machine.
    with threadpool_limits(1):
        return _middles(records, min(count, _CLUSTERS))


def _middles(records: Floats, clusters: int) -> Integers:
    """Sorted indices of the records nearest to the cluster centres."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import pairwise_distances_argmin

    if records.shape[1] > _COMPONENTS < len(records):
        records = PCA(_COMPONENTS, svd_solver="randomized", random_state=0).fit_transform(records)
    with warnings.catch_warnings():
        # Equal records give fewer clusters, which is fine.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(clusters, n_init=1, max_iter=_STEPS, random_state=0).fit(records)
    return np.unique(pairwise_distances_argmin(found.cluster_centers_, records))
