"""Whatever a coordinator sends, a party either refuses before it looks at a record, or answers within its bound.

An error, a warning or a number beyond floating point for one record and not for its neighbour would be a bit about it,
without noise. Warnings are errors in these tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspoken
from factories import make
from unspoken.data.block import Block
from unspoken.data.federation import ArrayFederation, Federation
from unspoken.data.files import Records
from unspoken.engines import local
from unspoken.methods.base import (
    Collect,
    Method,
    PartyContext,
    PartyRequest,
    Sum,
    Tokens,
    Total,
    Vote,
    ZeroSum,
)
from unspoken.methods.functions import Custom
from unspoken.methods.parameters import Parameters, Refused
from unspoken.methods.planning import Plan
from unspoken.methods.registry import METHODS, method_for
from unspoken.methods.releases import Statistics
from unspoken.methods.training.batches import PoissonBatches
from unspoken.noise.stream import SecretStream

FEATURES, CLASSES, MOST = 3, 3, 6


SETTINGS: dict[str, dict[str, Any]] = {
    "helmet": {},
    "helmet-extreme": {"norm": 1e6, "regularization": 1e-6},
    "helmet-svm": {"norm": 1e3, "regularization": 1e-6, "learner": "svm", "smoothing": 1e-3, "weights": "equal"},
    "helmet-sgd": {"norm": 1e6, "regularization": 1e-6, "learner": "logistic", "solver": "sgd", "epochs": 2},
    "moments": {"function": "softmax", "steps": 2},
    "moments-extreme": {"function": "softmax", "steps": 2, "norm": 1e6},
    "moments-discriminant": {"function": "discriminant", "intercept": True},
    "moments-regression": {"task": "regression"},
    "cape": {},
    "cape-network": {"function": "network", "steps": 2, "norm": 1e6},
    "cape-plain": {"reshape": False},
    "cross-silo": {"rounds": 2},
    "cross-silo-mlp": {"rounds": 2, "model": "mlp", "hidden": [4, 4, 4]},
    "cross-silo-squares": {"rounds": 2, "task": "regression", "model": "mlp", "hidden": [4]},
    "cross-silo-projected": {"rounds": 2, "model": "mlp", "hidden": [4], "projection": 8},
    "cross-silo-gaussian": {"rounds": 2, "model": "mlp", "hidden": [4], "projection": 8, "projection_kind": "gaussian"},
    "cross-silo-touchy": {"rounds": 2, "model": "awkward:Touchy"},
    "cross-silo-touchy-projected": {"rounds": 2, "model": "awkward:Touchy", "projection": 4},
    "cross-silo-recurrent": {"rounds": 2, "model": "awkward:Recurrent"},
    "cross-silo-recurrent-projected": {"rounds": 2, "model": "awkward:Recurrent", "projection": 5},
    "local-training": {"model": "linear", "rounds": 2},
    "fedsgd": {"rounds": 2, "local_steps": 2, "model": "mlp"},
    "fedsgd-touchy": {"rounds": 2, "local_steps": 2, "model": "awkward:Touchy"},
    "fedavg": {"rounds": 2, "rate": 1.0, "model": "mlp", "unit": "party"},
    "fedavg-touchy": {"rounds": 2, "rate": 1.0, "model": "awkward:Touchy", "unit": "party"},
    "multiparty": {"unit": "party"},
    "fedavg-adapted": {"rounds": 2, "rate": 1.0, "model": "mlp", "unit": "party", "adaptation": "coral"},
    "multiparty-fussy": {"unit": "party", "model": "awkward:Fussy"},
    "multiparty-average": {"labels": "average", "norm": 1e6, "regularization": 1e-6},
    "voting": {"queries": 4, "local_regularization": 1e-6},
    "voting-neighbours": {"queries": 4, "ballots": "neighbours", "unit": "party"},
    "voting-adapted": {"queries": 4, "adaptation": "coral"},
    "voting-adapted-neighbours": {"queries": 4, "adaptation": "coral", "ballots": "neighbours", "unit": "party"},
    "voting-estimator": {"queries": 4, "model": "sklearn.linear_model:LogisticRegression"},
    "voting-fussy": {"queries": 4, "model": "awkward:Fussy"},
    "voting-touchy": {"queries": 4, "model": "awkward:Touchy", "epochs": 1},
    "conv": {"task": "statistics", "function": "mean"},
    "independent-models": {"norm": 1e3, "regularization": 1e-6},
    "local": {"task": "statistics", "function": "histogram"},
}
POOLED = {"central", "dp-fm", "objective-perturbation", "none"}
"""Nothing is asked of parties but their records, or nothing is promised."""


def study(name: str, folder: Path, **more: Any) -> unspoken.Study:
    keys = SETTINGS[name] | more
    task, unit = keys.pop("task", "classification"), keys.pop("unit", "record")
    method = next(known for known in sorted(METHODS, key=len, reverse=True) if name.startswith(known))
    data = {"features": FEATURES} | {key: keys.pop(key) for key in ("norm", "intercept") if key in keys}
    data |= {"classification": {"classes": CLASSES}, "regression": {"label_bounds": [-1, 1]}, "statistics": {}}[task]
    if method in ("voting", "multiparty") or "adaptation" in keys:
        np.savez(folder / "public.npz", X=np.random.default_rng(5).normal(size=(20, FEATURES)))
        (data if method == "fedavg" else keys)["public"] = str(folder / "public.npz")
    parties = {"count": 3, "records": 1, "max_records": MOST}
    # The noise for an epsilon takes seconds to find if batches are sampled.
    promise = {"noise_multiplier": 4.0} if "rounds" in keys else {"epsilon": 2.0}
    return make(method, task=task, data=data, parties=parties, delta=1e-4, unit=unit, method=keys, **promise)


METHOD_OF: dict[str, tuple[Method, Plan]] = {}


def planned(name: str, folder: Path) -> tuple[Method, Plan]:
    """Planned once: it takes longer than all else here."""
    if name not in METHOD_OF:
        method = method_for(study(name, folder))
        METHOD_OF[name] = method, method.plan()
        if name.startswith("voting"):
            assert isinstance(method.parameters(Sum("ballots")), Parameters)  # reads its public records
    return METHOD_OF[name]


def requests(method: Method, plan: Plan) -> list[PartyRequest]:
    """What the method asks parties for, with noiseless nothing as the answer to everything."""
    conversation, asked = method.coordinate(plan), []
    request = next(conversation)
    try:
        while True:
            if isinstance(request, Sum | Vote | Collect):
                asked.append(request)
                sums = plan.sum_named(request.name)
                exact = np.full(len(sums.exact), 18)
                noisy = np.zeros(sums.dimension)
                if isinstance(request, Vote):
                    noisy, exact = np.empty(0), np.zeros(4, dtype=np.int64)
                answer = Total(noisy, exact, 3, 1.0)
            else:
                assert isinstance(request, ZeroSum | Tokens)
                answer = Total(np.empty(0), np.empty(0, dtype=np.int64), 3, 0.0)
            request = conversation.send(answer)
    except StopIteration:
        return asked


HARD: dict[str, np.ndarray] = {
    "zeros": np.zeros((4, FEATURES)),
    "one record": np.array([[0.3, -0.4, 0.5]]),
    "one tiny record": np.full((1, FEATURES), 1e-320),
    "duplicates": np.tile([[0.5, 0.5, -0.5]], (MOST, 1)),
    "huge": np.array([[1e308, -1e308, 1e308], [1e200, 1.0, 0.0], [-1e154, 1e154, 0.0]]),
    "mixed": np.array([[1e6, 1e-6, 0.0], [-1e6, 1e-12, 1.0], [1e-9, 1e-9, 1e-9], [-1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),
    "opposite": np.array([[-1e6, 0.0, 0.0], [1e6, 0.0, 0.0], [-1e6, 1e-3, 0.0], [1e6, 1e-3, 0.0]]),
    "constant": np.array([[1.0, 2.0, -3.0]] * 4),
}


def block_of(agreed: unspoken.Study, rows: np.ndarray, labels: str) -> Block:
    """One party's records, bounded as always."""
    count = len(rows)
    known: np.ndarray = np.zeros(count, dtype=np.int64) if labels == "one class" else np.arange(count) % CLASSES
    if agreed.study.task == "regression":
        known = np.where(np.arange(count) % 2, 1e100, -1e100) if labels == "all" else np.zeros(count)
    alone = agreed.with_parties(2)
    groups = np.repeat([0, 1], count)
    records = Records(np.concatenate([rows, rows]), np.concatenate([known, known]))
    blocks = [block for _, block in ArrayFederation(alone, records, groups).blocks(1)]
    return blocks[0]


def adversarial(allowed: Parameters, seed: int) -> Iterator[np.ndarray | None]:
    """Numbers at the edges of what is allowed, and inside."""
    if not allowed.ranges:
        yield None
        return
    rng = np.random.default_rng(seed)
    low = np.concatenate([np.full(part.size, part.low) for part in allowed.ranges])
    high = np.concatenate([np.full(part.size, part.high) for part in allowed.ranges])
    signs, one = rng.integers(0, 2, allowed.size, dtype=bool), rng.integers(allowed.size)
    yield from (
        low,
        high,
        allowed.nearest(np.zeros(allowed.size)),
        np.where(signs, low, high),
        np.where(np.arange(allowed.size) == one, high, allowed.nearest(np.zeros(allowed.size))),
        allowed.nearest(rng.normal(size=allowed.size) * 10.0 ** rng.uniform(-12, 12, allowed.size)),
        allowed.nearest(np.full(allowed.size, 1e-300)),
    )


def test_every_method_that_asks_parties_for_something_is_looked_at() -> None:
    looked_at = {name for name in METHODS if any(setting.startswith(name) for setting in SETTINGS)}
    assert looked_at | POOLED >= METHODS.keys()


@pytest.mark.parametrize("labels", ["all", "one class"])
@pytest.mark.parametrize("name", SETTINGS)
def test_with_allowed_parameters_a_party_answers_within_its_bound_whatever_its_records_are(
    name: str, labels: str, tmp_path: Path
) -> None:
    method, plan = planned(name, tmp_path)
    for number, request in enumerate(requests(method, plan)):
        sums = plan.sum_named(request.name)
        for numbers in adversarial(method.parameters(request), number):
            asked = replace(request, parameters=numbers)
            method.check(asked, request.turn)
            for rows in HARD.values():
                block = block_of(method.study, rows, labels)
                contribution = method.contribute(asked, block, [PartyContext(SecretStream(bytes(32)))])
                assert np.isfinite(contribution.noisy).all()
                if not name.startswith("fedsgd"):  # whose updates carry noise
                    most = sums.encoding.bound * (1 + 1e-9)
                    assert np.linalg.norm(contribution.noisy, axis=1).max() <= most
                words = sums.encoding.centered(sums.encoding.encode(contribution.noisy))
                limit = sums.encoding.bound * sums.encoding.scale
                assert np.abs(words).max() <= limit * (1 + 1e-9) + 1


@pytest.mark.parametrize("name", [name for name in SETTINGS if name.startswith(("moments", "cape"))])
def test_with_allowed_parameters_no_record_moves_the_sum_by_more_than_the_sensitivity(
    name: str, tmp_path: Path
) -> None:
    method, plan = planned(name, tmp_path)
    for number, request in enumerate(requests(method, plan)):
        for numbers in adversarial(method.parameters(request), number):
            asked = replace(request, parameters=numbers)
            for rows in HARD.values():
                other = rows.copy()
                other[0] = -rows[-1] if rows[-1].any() else 1.0
                one, two = (
                    method.contribute(
                        asked, block_of(method.study, each, "all"), [PartyContext(SecretStream(bytes(32)))]
                    )
                    for each in (rows, other)
                )
                assert np.linalg.norm(one.noisy - two.noisy) <= plan.sum_named(request.name).sensitivity


def wrong(allowed: Parameters) -> Iterator[np.ndarray | None]:
    if not allowed.ranges:
        yield np.zeros(0)
        yield np.zeros(3)
        return
    good = allowed.nearest(np.zeros(allowed.size))
    yield None
    yield good[:-1]
    yield np.append(good, 0.0)
    yield good[None]
    yield good.astype(np.float32)
    yield good.astype(object)
    for part, start in zip(allowed.ranges, np.cumsum([0, *(part.size for part in allowed.ranges)]), strict=False):
        beyond = [math.nan, math.inf, -math.inf, np.nextafter(part.high, math.inf), np.nextafter(part.low, -math.inf)]
        for number in [*beyond, 1.7e308, -1e200]:
            for place in (start, start + part.size - 1):
                bad = good.copy()
                bad[place] = number
                yield bad


class Untouchable(Federation):
    """Parties whose records must not be looked at."""

    parties = 3

    def layout(self, most: int = 256) -> Any:
        yield np.arange(self.parties)

    def block(self, parties: Any) -> Any:
        raise AssertionError("a record was looked at")


class Liar(Method):
    """Another's method, but its coordinator asks for something else."""

    def __init__(self, honest: Method, requests: list[PartyRequest]) -> None:
        self.study, self._honest, self._requests = honest.study, honest, requests

    def plan(self) -> Plan:
        return self._honest.plan()

    def parameters(self, request: PartyRequest) -> Parameters:
        return self._honest.parameters(request)

    def contribute(self, request: PartyRequest, block: Block, contexts: Any = ()) -> Any:
        return self._honest.contribute(request, block, contexts)

    def coordinate(self, plan: Plan) -> Any:
        yield from self._requests
        return Statistics({}, {})


@pytest.mark.parametrize("name", SETTINGS)
def test_other_parameters_are_refused_before_a_record_is_looked_at(name: str, tmp_path: Path) -> None:
    method, plan = planned(name, tmp_path)
    for request in requests(method, plan):
        for numbers in wrong(method.parameters(request)):
            lie = replace(request, parameters=numbers)
            with pytest.raises(Refused, match=f'^the request for "{request.name}" ') as refusal:
                method.check(lie, request.turn)
            assert str(refusal.value).endswith(".")
            assert "\n" not in str(refusal.value)
            if request.turn == 0:
                with pytest.raises(Refused) as again:
                    local.run(Liar(method, [lie]), plan, Untouchable())
                assert str(again.value) == str(refusal.value)


def test_a_turn_out_of_turn_is_refused_before_a_record_is_looked_at(tmp_path: Path) -> None:
    method, plan = planned("cross-silo", tmp_path)
    first = requests(method, plan)[0]
    with pytest.raises(Refused, match=r'^the request for "gradient" says that it is turn 1, but it is 0\.$'):
        local.run(Liar(method, [replace(first, turn=1)]), plan, Untouchable())


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("cross-silo", {"learning_rate": 1e30, "rounds": 3}),
        ("cross-silo", {"learning_rate": 1e30, "optimizer": "adam", "rounds": 3}),
        ("local-training", {"learning_rate": 1e30, "rounds": 3}),
        ("fedavg", {"learning_rate": 1e30, "rounds": 3, "rate": 0.9}),
        ("fedsgd", {"local_rate": 1e30, "rounds": 3}),
        ("cape-network", {"learning_rate": 1e30, "steps": 3}),
        ("moments", {"score_noise": 1e30}),
        ("moments-regression", {}),
        ("cape", {}),
        ("voting", {}),
    ],
)
def test_a_run_whose_model_runs_away_is_never_refused(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    agreed = study(name, tmp_path, **keys)
    rng = np.random.default_rng(0)
    regression = agreed.study.task == "regression"
    labels = rng.uniform(-1, 1, 18) if regression else rng.integers(0, CLASSES, 18)
    simulation = unspoken.simulate(agreed, rng.normal(size=(18, FEATURES)), labels, np.arange(18) % 3)
    assert simulation.outcome.survivors == 3


def test_a_classifier_that_refuses_a_party_s_records_abstains(tmp_path: Path) -> None:
    method, plan = planned("voting-fussy", tmp_path)
    (request,) = requests(method, plan)
    good, bad = (block_of(method.study, HARD[kind], "all") for kind in ("constant", "huge"))
    assert method.contribute(request, good).noisy.sum() == 4
    assert not method.contribute(request, bad).noisy.any()


def test_what_fails_for_all_records_is_told_before_there_are_any(tmp_path: Path) -> None:
    with pytest.raises(unspoken.study.StudyError, match=r'model is "awkward:Useless", which cannot be trained on 3'):
        method_for(study("voting", tmp_path, model="awkward:Useless"))
    with pytest.raises(unspoken.study.StudyError, match=r'model is "awkward:Doubled", which keeps .* as float64'):
        method_for(study("cross-silo", tmp_path, model="awkward:Doubled"))


def test_an_example_that_a_module_cannot_take_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """By each way to a sum of gradients."""
    for name in ("cross-silo-touchy", "cross-silo-touchy-projected"):
        method: Any = method_for(planned(name, tmp_path)[0].study)
        request = requests(method, method.plan())[0]
        method.workload.batches = PoissonBatches(method.study, method.workload.options.model_copy(update={"rate": 1.0}))
        rows = np.array([[0.1, 0.2, 0.3], [-1.0, 0.0, 0.0], [0.3, 0.2, 0.1]])
        whole, others = (
            method.contribute(
                request, block_of(method.study, each, "one class"), [PartyContext(SecretStream(bytes(32)))]
            )
            for each in (rows, rows[[0, 2]])
        )
        assert np.abs(others.noisy).max() > 0.01
        np.testing.assert_allclose(whole.noisy, others.noisy, atol=1e-6)


@pytest.mark.parametrize(
    "fails",
    [
        lambda rows: np.zeros(2) / 0 if len(rows) == 5 else [1.0, 1.0],
        lambda rows: [math.nan, 1.0] if len(rows) == 5 else [1.0, 1.0],
        lambda rows: [1e308, 1e308] if len(rows) == 5 else [1.0, 1.0],
        lambda rows: [1.0, 2.0, 3.0] if len(rows) == 5 else [1.0, 1.0],
        lambda rows: {}["missing"] if len(rows) == 5 else [1.0, 1.0],
    ],
)
def test_a_function_that_fails_at_a_party_is_not_seen_from_outside(fails: Callable[[Any], Any]) -> None:
    result = unspoken.compute(
        fails,
        np.zeros((9, 2)),
        [0, 0, 0, 0, 1, 1, 1, 1, 1],
        dimension=2,
        sensitivity=1.0,
        bound=5.0,
        epsilon=5.0,
        delta=1e-6,
    )
    assert np.isfinite(result.total).all()
    assert np.isfinite(Custom(fails, 2, 1.0, 1.0).of(np.zeros((5, 2)), None, None)).all()
