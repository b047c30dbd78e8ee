"""Tests, and the programs that they start, use one thread each: as many of them run at once as there are cores."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import numpy, scipy.linalg, numba
from threadpoolctl import threadpool_info
numpy.ones((2, 2)) @ numpy.ones((2, 2))
print(*{pool["num_threads"] for pool in threadpool_info()}, numba.get_num_threads())
"""


def test_a_program_that_a_test_starts_has_one_thread_of_each_library() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=500, check=True)
    assert set(done.stdout.split()) == {"1"}


def test_a_test_has_one_thread_of_each_library() -> None:
    import numba
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    assert {pool["num_threads"] for pool in threadpool_info()} <= {1}
    assert numba.get_num_threads() == 1
    if torch := sys.modules.get("torch"):
        assert torch.get_num_threads() == 1
