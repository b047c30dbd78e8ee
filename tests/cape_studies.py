"""Small studies by CAPE, sites for them, and the totals of their runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from factories import maker
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.cape import Cape
from unspoken.methods.functions import Custom, FunctionMethod
from unspoken.noise.stream import SecretStream
from unspoken.study import Study

KEY = bytes(range(32))


study = maker("cape", task="statistics", data={"features": 1}, parties={"count": 5, "max_records": 1})


def sites_with(agreed: Study, values: list[float]) -> ArrayFederation:
    """One record at each site."""
    records = Records(np.array(values)[:, None], np.zeros(len(values), dtype=np.int64))
    return ArrayFederation(agreed, records, np.arange(len(values)))


def repeated(agreed: Study, dimension: int, kind: type[FunctionMethod] = Cape) -> FunctionMethod:
    """f = the site's number, in each of many coordinates: with sensitivity 1 each is a trial of its own."""
    return kind(agreed, Custom(lambda rows: np.full(dimension, rows.sum()), dimension, 1.0, math.sqrt(dimension)))


def totals(method: FunctionMethod, federation: ArrayFederation, **options: Any) -> np.ndarray:
    outcome = local.run(method, method.plan(), federation, Conditions(secrets=SecretStream(KEY), **options))
    return np.array(outcome.release.statistics["total"])
