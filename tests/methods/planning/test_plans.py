"""A plan never states more than its noise keeps, whoever declared its sums and whatever became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories import make
from small_studies import PARTIES, RECORDS, federation_of
from unspoken.data.block import Block
from unspoken.engines import local
from unspoken.methods.base import Contribution, Conversation, Method, PartyContext, PartyRequest, Sum
from unspoken.methods.planning import DeclaredSum, Plan, RecordSampling, make_plan
from unspoken.methods.planning.mechanisms import NoiseShares, NoiseSource
from unspoken.methods.registry import method_for
from unspoken.methods.releases import Statistics
from unspoken.noise.stream import SecretStream
from unspoken.privacy.guarantee import Trust
from unspoken.study import StudyError

PLAIN = DeclaredSum("plain", dimension=1, bound=1.0, sensitivity=2.0)
OTHER = replace(PLAIN, name="other")
LARGE = 1e16
"""Here two doubles are 2 apart"""


class Foreign(Method):
    """What somebody else might write: it declares sums, and asks for the first of them."""

    name = "foreign"

    def __init__(self, *declared: DeclaredSum) -> None:
        super().__init__(make(task="statistics", parties={"count": PARTIES, "records": RECORDS}, method="moments"))
        self._declared = declared

    def plan(self) -> Plan:
        return make_plan(self.study, self.name, self._declared)

    def contribute(self, request: PartyRequest, block: Block, contexts: Sequence[PartyContext] = ()) -> Contribution:
        return Contribution(np.ones((len(block), 1)))

    def coordinate(self, plan: Plan) -> Conversation:
        total = yield Sum(self._declared[0].name)
        return Statistics({"total": {"value": float(total.noisy[0]), "noise_std": total.noise_std}}, {})


def test_a_plan_counts_what_rounding_in_the_parties_sums_adds_to_their_distance() -> None:
    one, other = ([LARGE, *[1.0] * (RECORDS - 2), last] for last in (1.0, 2.0))
    assert (moved := abs(sum(one) - sum(other))) == 2.0, "records that are 1 apart"
    (planned,) = Foreign(replace(PLAIN, bound=LARGE + 2.0 * RECORDS, sensitivity=1.0)).plan().sums
    assert planned.sensitivity >= moved


@pytest.mark.parametrize(
    "declared",
    [
        [],
        [PLAIN, PLAIN],
        [PLAIN, replace(OTHER, sampling=RecordSampling(0.001, slack=1e-3))],
        [replace(OTHER, sampling=RecordSampling(0.001)), PLAIN],
        *([replace(PLAIN, **{what: 0})] for what in ("dimension", "count", "bound", "sensitivity", "share")),
        [replace(PLAIN, sensitivity=float("nan"))],
        [replace(PLAIN, bound=float("inf"))],
        [replace(PLAIN, count=3), replace(OTHER, count=-2)],
    ],
)
def test_sums_that_cannot_have_the_stated_noise_are_refused(declared: list[DeclaredSum]) -> None:
    with pytest.raises(ValueError, match="Expected "):
        Foreign(*declared).plan()


def test_what_was_declared_and_not_asked_for_costs_nothing() -> None:
    method = Foreign(PLAIN, OTHER)
    plan = method.plan()
    outcome = local.run(method, plan, federation_of(method.study))
    alone = Foreign(replace(PLAIN)).plan().guarantee.epsilon
    assert plan.guarantee.epsilon == pytest.approx(alone)
    assert 0.5 * alone < plan.guarantee_after(outcome.participation).epsilon < 0.8 * alone


def _smaller_epsilon(plan: Plan) -> Plan:
    return replace(plan, guarantee=replace(plan.guarantee, epsilon=plan.guarantee.epsilon / 2.0))


def _smaller_noise(plan: Plan) -> Plan:
    def weakened(planned: Any) -> Any:
        variance = (planned.noise_std * planned.encoding.scale) ** 2
        return replace(planned, noise=planned.noise.sized(plan.trust, variance / 4.0, False))

    return replace(plan, sums=tuple(map(weakened, plan.sums)))


@pytest.mark.parametrize("method", ["helmet", "cape", "conv", "central"])
@pytest.mark.parametrize("change", [_smaller_epsilon, _smaller_noise])
def test_nobody_states_less_than_the_noise_keeps(method: str, change: Callable[[Plan], Plan]) -> None:
    plan = method_for(make(method, parties=8, dropouts=1)).plan()
    with pytest.raises(RuntimeError, match="The noise "):
        change(plan)


def test_a_share_is_whole_even_if_the_protocol_gave_no_seeds() -> None:
    mechanism = NoiseShares().sized(Trust(20, 2, 9), 1e6, opens_noise=True)
    schedule = mechanism.schedule
    assert schedule.base < 0.7 * schedule.whole
    for seeds in ((), [bytes(32)], [bytes([number] * 32) for number in range(len(schedule.components))]):
        drawn = mechanism.added(20_000, NoiseSource(SecretStream(bytes([255] * 32)), seeds)).view(np.int64)
        assert np.var(drawn) == pytest.approx(schedule.whole, rel=0.06)


def test_an_epsilon_and_a_noise_pay_for_no_more_queries_than_is_proven(tmp_path: Any) -> None:
    """Drawing whole numbers is accounted for up to epsilon = 30."""
    np.savez(tmp_path / "public.npz", X=np.zeros((500, 4)))
    keys = {"public": str(tmp_path / "public.npz"), "asking": "first"}
    study = make("voting", unit="party", epsilon=1000.0, noise_multiplier=2.0, method=keys)
    guarantee = method_for(study).plan().guarantee
    assert 25.0 < guarantee.epsilon <= 30.0
    with pytest.raises(StudyError, match=r"epsilon is 1000, too little .* noise_multiplier = 0.1; raise the noise"):
        method_for(make("voting", unit="party", epsilon=1000.0, noise_multiplier=0.1, method=keys)).plan()


@pytest.mark.parametrize("method", ["helmet", "moments", "cape", "central", "dp-fm", "multiparty"])
def test_a_promise_for_records_that_come_and_go_is_refused_by_who_replaces_them(method: str) -> None:
    keys = {"labels": "average"} if method == "multiparty" else {}
    with pytest.raises(StudyError, match=f'adjacency is "add-remove", but "{method}" promises for replaced records'):
        method_for(make(method, adjacency="add-remove", method=keys)).plan()


@pytest.mark.parametrize("promise", [{"epsilon": 1.0}, {"noise_multiplier": 2.0}])
def test_a_delta_too_small_for_numerical_accounting_is_refused(promise: dict[str, float]) -> None:
    with pytest.raises(StudyError, match=r"\[privacy\] delta is 1e-12, too small for 10,000 rounds .* choose 4e-11"):
        method_for(make("cross-silo", delta=1e-12, method={"rounds": 10_000}, **promise)).plan()


def test_the_smallest_delta_that_is_taken_is_planned_for() -> None:
    for delta in (2e-14, 3e-14, 1e-13):
        plan = method_for(make("cross-silo", delta=delta, method={"rounds": 5})).plan()
        assert 0.99 < plan.guarantee.epsilon <= 1.0


def test_batches_of_fixed_size_cost_a_hundredth_of_delta() -> None:
    """So often a batch may have more of the honest records than is counted."""
    plan = method_for(make("cross-silo", method={"rounds": 20, "sampling": "without-replacement"})).plan()
    assert plan.slack == pytest.approx(0.01 * plan.study.privacy.delta, rel=1e-3)


@pytest.mark.parametrize("method", ["helmet", "moments", "cape", "central"])
@pytest.mark.parametrize(("norm", "said"), [(1.0, False), (1.74, False), (30.0, True)])
def test_a_norm_that_no_record_of_a_table_can_have_is_told(method: str, norm: float, said: bool) -> None:
    columns = {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}}
    plan = method_for(make(method, data={"label": "y", "classes": [0, 1], "columns": columns, "norm": norm})).plan()
    told = [note for note in plan.notes if note.startswith("norm = 30 is 17 times 1.73, the longest that records")]
    assert bool(told) == said, plan.notes


def test_a_norm_is_not_called_too_large_where_nothing_depends_on_it(tmp_path: Path) -> None:
    columns = {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}}
    data = {"label": "y", "classes": [0, 1], "columns": columns, "norm": 30.0}
    (tmp_path / "public.csv").write_text("age,sex\n50,f\n")
    mapped = make("helmet", data=data | {"public": str(tmp_path / "public.csv")})
    for study in (make("none", data=data), make("cross-silo", data=data), mapped):
        assert not [note for note in method_for(study).plan().notes if note.startswith("norm")]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"epsilon": 10.0}, None),
        ({"epsilon": 10.1}, "epsilon = 10.1 promises little"),
        ({"noise_multiplier": 0.3}, "promises little"),
        ({"epsilon": 31.0}, "epsilon is taken as 30, the largest"),
        ({"delta": 0.01}, None),
        ({"delta": 0.0101}, "delta = 0.0101 is above 1/100 (one over the number of records): it would allow"),
        ({"delta": 0.1, "unit": "party"}, None),
        ({"delta": 0.11, "unit": "party"}, "delta = 0.11 is above 1/10 (one over the number of parties)"),
    ],
)
def test_a_promise_that_is_worth_little_is_told_and_no_other(said: dict[str, Any], words: str | None) -> None:
    notes = method_for(make("helmet", parties={"count": 10, "records": 10}, **said)).plan().notes
    told = [note for note in notes if "promises little" in note or "taken as" in note or "would allow" in note]
    assert any(words in note for note in told) if words else told == []


def test_a_norm_is_told_from_a_hundredth_too_much_on() -> None:
    """People round the length of the longest record, here √3."""
    columns = {"age": {"min": 0, "max": 110}, "sex": {"categories": ["f", "m"]}}
    for norm, said in ((1.749, 0), (1.75, 1)):
        data = {"label": "y", "classes": [0, 1], "columns": columns, "norm": norm}
        notes = method_for(make("moments", data=data)).plan().notes
        assert len([note for note in notes if note.startswith("norm = ")]) == said
