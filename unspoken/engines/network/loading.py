"""Loads or compiles code ahead of time, so that nobody has to wait for it during a study."""

from __future__ import annotations

from importlib import import_module

from unspoken.methods.planning import Plan
from unspoken.methods.planning.plan import agreed_protocol
from unspoken.noise import discrete_gaussian
from unspoken.noise.stream import KEY_BYTES, SecretStream


def warm_up(plan: Plan, *, writes: bool = False) -> None:
    """Load the compiled code that a plan's sums use and, if `writes`, the libraries that write model files.

    Right after an installation this takes some seconds.
    """
    if plan.is_summed:
        agreed_protocol(plan.study, plan.trust, plan.sums).warm_up()
    # Nothing of this is used.
    discrete_gaussian.sample(1.0, 1, SecretStream(bytes(KEY_BYTES)))
    if writes:
        import_module("skops.io")
