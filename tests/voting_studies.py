"""A small study by voting, with public records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from factories import make
from unspoken.study import Study


def study(folder: Path, privacy: dict[str, Any] | None = None, **keys: Any) -> Study:
    public = folder / "public.npz"
    if not public.exists():
        np.savez(public, X=np.random.default_rng(0).normal(size=(20, 2)))
    return make(
        data={"features": 2, "classes": 3, "norm": 5.0},
        parties={"count": 8, "records": 6, "max_records": 6},
        privacy=privacy or {},
        method={"name": "voting", "public": str(public), "queries": 20, **keys},
        summation="ideal",
    )
