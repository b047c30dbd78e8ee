"""The method, the protocol and the times to wait that are used where a person names none.

Nowhere else does the package prefer one method or protocol to the others, and the command line waits as long as Python
does.
"""

from __future__ import annotations

PROTOCOL = "compute-nodes"
"""The summation protocol of a study that names none. The digests of such studies depend on it."""
SUMMATION_LINES = """\
protocol = "compute-nodes"    # or "secagg+", "secagg", "pairwise"; "ideal" adds in the clear: simulation only
nodes = 3                     # (of compute-nodes) the total is safe while one of them keeps its share to itself
"""
"""The lines that `unspoken new` writes under [summation], unless the method has lines of its own"""

METHOD = "moments"
"""The method of a study that names none, of `unspoken new`, `PrivateClassifier`, `PrivateRegressor` and
`unspoken.compute`. It needs no choices beyond the study's promise and public bounds."""

PARTY_METHOD = "helmet"
"""The method of a classification that names none and protects whole parties, for which `METHOD` has no bound"""

STAGE_SECONDS = 600.0
"""How long a coordinator waits for answers in a stage"""
JOIN_SECONDS = 86400.0
"""How long a coordinator waits for everyone to be there before the first request"""
GRACE_SECONDS = 60.0
"""How long a stage waits for someone whose connection is gone"""
PATIENCE = 600.0
"""How many seconds a participant goes on trying while the coordinator is not reached"""
