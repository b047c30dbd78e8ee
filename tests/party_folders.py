"""Folders with a Parquet file for each party, and what may happen to a file of them, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from factories import maker
from unspoken.study import Study

COLUMNS = {"age": {"min": 0, "max": 100}, "sex": {"categories": ["f", "m"]}}
DATA = {"columns": COLUMNS, "label": "died", "classes": ["no", "yes"]}
study = maker(data=DATA, method={"regularization": 0.1})


def agreed(parties: int = 6, **said: Any) -> Study:
    return study(parties={"count": parties, "records": 3, "max_records": 9}, summation="compute-nodes", **said)


def frame(party: int) -> pd.DataFrame:
    rng, count = np.random.default_rng(party), 3 + party % 4
    values = {"age": rng.uniform(-5, 120, count), "sex": rng.choice(["f", "m"], count)}
    return pd.DataFrame({**values, "died": rng.choice(["no", "yes"], count)})


def written(folder: Path, parties: int = 6) -> Path:
    for party in range(parties):
        frame(party).to_parquet(folder / f"{party:05}.parquet")
    return folder


def damage(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 56 + content[60:])


def not_utf8(file: Path) -> None:
    names = pa.array([b"f", b"f", b"\xff", b"m", b"m"], pa.binary())
    text = pa.StringArray.from_buffers(5, names.buffers()[1], names.buffers()[2])
    pq.write_table(pa.Table.from_pandas(frame(2)).set_column(1, "sex", text), file)


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a page that is none": (damage, r"00002\.parquet: is not a Parquet file \(.*\); write it again"),
    "bytes that are no text": (not_utf8, r"00002\.parquet, row 3, column 'sex': is b'\\xff', but text should be UTF-8"),
    "another type": (
        lambda file: frame(2).assign(age=["1", "x", "3", "4", "5"]).to_parquet(file),
        r"00002\.parquet, row 2, column 'age': is 'x', but should be a number .* repair",
    ),
    "gone": (Path.unlink, r"00002\.parquet: was there when the run began, and is gone; put it back"),
}
"""What is found when a file is read: what happens to it, and the sentence"""
