"""What takes long the first time, done before anybody waits for it: loading compiled code, or compiling it."""

from __future__ import annotations

from importlib import import_module

from unspoken.methods.planning import Plan
from unspoken.methods.planning.plan import agreed_protocol
from unspoken.noise import discrete_gaussian
from unspoken.noise.stream import KEY_BYTES, SecretStream


def warm_up(plan: Plan, *, writes: bool = False) -> None:
    """Have the compiled code ready that a plan's sums use; and what `writes` models, which is much.

    Right after an installation it takes some seconds.
    """
    if plan.is_summed:
        agreed_protocol(plan.study, plan.trust, plan.sums).load()
    # Nothing of this is used.
    discrete_gaussian.sample(1.0, 1, SecretStream(bytes(KEY_BYTES)))
    if writes:
        import_module("skops.io")
