"""Which records to ask about first: those in the middle of as many clusters as there are questions.

What is learnt of such a record holds for others around it, and votes on it are seldom close. Only public records take
part, so it costs no privacy.
"""

from __future__ import annotations

import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from unspoken.types import Floats, Integers

CLUSTERED = 10_000
"""Of more records than this clusters take too long, or of more than `_CLUSTERS`."""
_CLUSTERS = 1_000
_COMPONENTS = 50
"""Of records with more features than this, only so many principal components are looked at."""
_STEPS = 30


def typical_records(records: Floats, count: int) -> Integers:
    """The places of `count` typical records, or of fewer, in ascending order; of none if half of all are wanted.

    >>> typical_records(np.array([[0.0], [0.2], [9.0], [0.1], [9.1], [9.2]]), 2).tolist()
    [3, 4]
    """
    if 2 * count > len(records):
        return np.empty(0, dtype=np.int64)
    # With one thread the same records give the same places, on the same machine at least.
    with threadpool_limits(1):
        return _middles(records, min(count, _CLUSTERS))


def _middles(records: Floats, clusters: int) -> Integers:
    """The places of the records that are nearest to the middles of clusters, in ascending order."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import pairwise_distances_argmin

    if records.shape[1] > _COMPONENTS < len(records):
        records = PCA(_COMPONENTS, svd_solver="randomized", random_state=0).fit_transform(records)
    with warnings.catch_warnings():
        # Of records that are equal there are fewer clusters, which is as well.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(clusters, n_init=1, max_iter=_STEPS, random_state=0).fit(records)
    return np.unique(pairwise_distances_argmin(found.cluster_centers_, records))
