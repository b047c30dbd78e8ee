"""A study and records that methods are compared on."""

from __future__ import annotations

import numpy as np

from factories import maker
from unspoken.comparison import (
    Comparison,
)
from unspoken.data.files import Records

study = maker(
    data={"features": 4, "classes": 2},
    parties={"count": 5, "records": 60, "max_records": 60},
    summation="ideal",
    delta=1e-5,
)


def records() -> Records:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4))
    return Records(features, (features[:, 0] > 0.0).astype(np.int64))


def small(**changes: object) -> Comparison:
    known = records()
    asked: dict[str, object] = {"epsilons": (1.0, 2.0), "repeats": 2, **changes}
    return Comparison(study(method="moments"), known, known, ("moments", "none"), **asked)  # type: ignore[arg-type]
