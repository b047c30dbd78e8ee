"""Files of records, tables and arrays, and the one sentence that is said of a wrong one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import maker
from unspoken.data.files import DataError, Records, read_records
from unspoken.study import Study

study = maker(parties=2)


MATRIX = study(data={"features": 3, "classes": 2})


def complaint(path: Path, agreed: Study) -> str:
    """The one sentence about a data file, without its folder."""
    with pytest.raises(DataError) as caught:
        read_records(path, agreed)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    assert message.endswith((".", "?"))
    return message.removeprefix(f"{path.parent}/")


def assert_same(records: Records, features: list[list[float]], labels: list[Any], kind: Any = np.int64) -> None:
    np.testing.assert_array_equal(records.features, features)
    np.testing.assert_array_equal(records.labels, labels)
    assert (records.features.dtype, records.labels.dtype) == (np.float64, kind)
    assert len(records) == len(labels)
