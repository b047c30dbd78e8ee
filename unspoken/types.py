"""Names for the array types that appear in signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Residues: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Words of the width of a sum, 32 or 64 bits"""
Flags: TypeAlias = NDArray[np.bool_]
Labels: TypeAlias = Integers | Floats
"""Class numbers, or the numbers of a regression"""
