"""Secret randomness for tests."""

from __future__ import annotations

import hashlib

from unspoken.noise.stream import SecretStream


def fixed(name: str) -> SecretStream:
    """Secret randomness that is the same in every run of the tests."""
    return SecretStream(hashlib.sha256(name.encode()).digest())
