"""What a release states of its noise is the noise of the total that it was made of, measured there: contributions are
all zero, so that nothing else is in the total.

A total has 80 numbers or more, which show their deviation to 8 % or better. Five standard errors are allowed, and the
secrets are fixed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from factories import make
from small_studies import Recording
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.base import Contribution
from unspoken.methods.functions import Custom, Function, FunctionMethod, RecordPolynomials, Turns
from unspoken.methods.functions.method import _FUNCTIONS
from unspoken.methods.moments import Moments
from unspoken.methods.registry import method_for
from unspoken.noise.stream import SecretStream

FEATURES, PARTIES, RECORDS = 80, 4, 10
ALL = PARTIES * RECORDS
FUNCTIONS = [(task, name) for task, named in _FUNCTIONS.items() for name in named]
CHOSEN = [("classification", "auto"), ("regression", "auto")]
STATED_FOR = {"mean": 1.0 / ALL}
"""What the stated noise is multiplied by, where it is not that of the total's numbers: a mean's"""
OFF_THE_DIAGONAL = math.sqrt(0.5)
"""An entry of a symmetric matrix that stands there twice is packed as √2 of it"""


@pytest.fixture(autouse=True)
def _nothing_but_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(self: Function, query: Any, block: Any, contexts: Any = ()) -> Contribution:
        sizes = {first.name: first.dimension for first in self.preliminary}
        return Contribution(np.zeros((len(block), sizes.get(query.name, self.dimension))), block.counts[:, None])

    monkeypatch.setattr(Function, "contribute", zeros)


def released(method: FunctionMethod) -> tuple[Any, float, float]:
    """The release, the deviation that the numbers of the last total show, and its room for chance, relative to it."""
    recording = Recording(method)
    records = Records(np.zeros((ALL, FEATURES)), np.zeros(ALL, dtype=np.int64))
    federation = ArrayFederation(method.study, records, np.arange(ALL) % PARTIES)
    conditions = Conditions(secrets=SecretStream(bytes(32)))
    release = local.run(method, method.plan(), federation, conditions).release
    total = np.frombuffer(recording.answers[-1][0])
    return release, float(np.sqrt(np.mean(total**2))), 5.0 / math.sqrt(2.0 * len(total))


def study(task: str, **keys: Any) -> Any:
    parties = {"count": PARTIES, "records": RECORDS, "max_records": RECORDS}
    target = {"classification": {"classes": 3}, "regression": {"label_bounds": [-1, 1]}, "statistics": {}}[task]
    data = {"features": FEATURES, "intercept": task == "classification", **target}
    return make("moments", task=task, data=data, parties=parties, epsilon=2.0, dropouts=1, colluding=1, method=keys)


@pytest.mark.parametrize(("task", "name"), FUNCTIONS + CHOSEN)
def test_every_function_states_the_noise_that_its_release_has(task: str, name: str) -> None:
    method = method_for(study(task, function=name))
    assert isinstance(method, FunctionMethod)
    release, seen, room = released(method)
    if task == "statistics":
        (stated,) = {column["noise_std"] for column in release.statistics.values()}
    else:
        (kind,) = (key for key in release.details if key.startswith("noise_std_per_"))
        stated = release.details[kind]
        seen *= OFF_THE_DIAGONAL if kind == "noise_std_per_moment" else 1.0
    assert stated == pytest.approx(seen * STATED_FOR.get(name, 1.0), rel=room)


@pytest.mark.parametrize("turns", [None, Turns(3, np.zeros(1), lambda total, numbers: numbers, -1.0, 1.0)])
def test_a_function_of_one_s_own_states_the_noise_of_its_last_total(turns: Turns | None) -> None:
    own = Custom(lambda rows, *numbers: np.zeros(FEATURES), FEATURES, 1.0, 10.0, turns)
    release, seen, room = released(Moments(study("statistics"), own))
    assert release.details["noise_std"] == pytest.approx(seen, rel=room)


def test_polynomials_of_records_state_the_noise_of_their_total() -> None:
    own = RecordPolynomials(lambda row: {1: np.zeros(FEATURES)}, FEATURES, {1: 3.0})
    release, seen, room = released(Moments(study("statistics"), own))
    assert release.details["noise_std"] == pytest.approx(seen, rel=room)
    entries = np.array(release.statistics["order 1"])
    assert np.sqrt(np.mean(entries**2)) == pytest.approx(own.scale(1) * seen / ALL)
