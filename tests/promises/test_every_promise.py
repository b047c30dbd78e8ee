"""Every method, whatever it protects and however it adds up: neighbours stay within the planned sensitivity, come
close to it, and what is left of the noise in the smallest total that can open is what was planned.

Methods and protocols come from the registries: a new one is attacked as soon as it is there. Each method meets some
combinations of unit, dropouts, sizes and protocol, and together they meet every pair; with `--soak` each method meets
ten of all, and with `--soak-times 15` as well all of them. Secret votes (`tally`) show no totals that could be
compared: tests/summation/test_tally_winners.py has them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import attacks
import cases
import neighbours
import numpy as np
import pytest
from cases import SUMS, Case

from unspoken.data.federation import ArrayFederation
from unspoken.engines import local
from unspoken.engines.conditions import Conditions
from unspoken.methods.registry import METHODS
from unspoken.summation.base import Aborted

BATCHES = ("sampling", "without-replacement")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.public_records(tmp_path_factory.mktemp("public"))


@pytest.mark.parametrize(
    "case",
    [
        # Batches of a fixed size are drawn, and clipped, as those of a classification.
        pytest.param(
            case, marks=pytest.mark.long if case.task == "regression" and BATCHES in case.options else (), id=str(case)
        )
        for case in cases.variants()
    ],
)
def test_neighbours_stay_within_the_planned_sensitivity_and_reach_half_of_it(
    case: Case, public: Path, runs: Callable[[int, int], int], seeds: Callable[[int, int], range]
) -> None:
    """All neighbours where a run is cheap (but for groups of records some in turn, without --soak); one of them, in
    turn, where units, dropouts, sizes and protocols meet."""
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    ratios = []
    for setting in cases.cheap_settings():
        some = (
            rng.permutation(neighbours.PAIRS)[: runs(2, neighbours.PAIRS)]
            if isinstance(setting["unit"], dict)
            else None
        )
        ratios.append(attacks.attacked(replace(case, **setting), public, some))
    if not any(ratios):
        pytest.skip("no such study, or no promise")
    attacks.check_reached(attacks.worst_of(ratios))
    settings = list(cases.all_settings() if runs(0, 1) else cases.settings())
    for number in rng.permutation(len(settings))[: len(seeds(1, 10))]:
        attacks.attacked(replace(case, **settings[number]), public, rng.permutation(neighbours.PAIRS)[:1])


LEFT_OUT = ("voting", "fedavg", "cross-silo")
"""Methods that promise for records that are left out or put in, whose totals show what these do."""
EACH_LEFT_OUT = pytest.mark.parametrize(
    "case",
    [
        # Votes after an adaptation are cast, and counted, as those without one.
        pytest.param(case, marks=pytest.mark.long if ("adaptation", "coral") in case.options else ())
        for case in cases.variants()
        if case.method in LEFT_OUT
    ],
    ids=str,
)


@EACH_LEFT_OUT
def test_what_is_left_out_or_put_in_moves_totals_by_no_more_than_is_stated_for_it(
    case: Case, public: Path, runs: Callable[[int, int], int]
) -> None:
    """Whole parties, too: one without records takes part, and what it sends is empty."""
    settings = [replace(case, **setting) for setting in cases.settings_of_left_out()]
    found = {str(one.unit): attacks.attacked(one, public) for one in settings}
    if not any(found.values()):
        pytest.skip("no such study")
    for unit in ("record", "party"):
        attacks.check_reached(found[unit] or {})
    if found["party"] and runs(0, 1):
        for protocol in SUMS:
            attacks.attacked(replace(settings[-1], protocol=protocol, dropouts=1), public)


@pytest.mark.parametrize(
    "case", [Case("moments", (), "statistics", dropouts=1), Case("cape", (), "statistics", dropouts=1)], ids=str
)
def test_neighbours_stay_apart_by_no_more_where_a_party_uses_some_of_the_nodes(case: Case, public: Path) -> None:
    """In every run of this suite, not only where the settings above take their turns."""
    ratios = attacks.attacked(replace(case, protocol="compute-nodes", nodes=cases.SOME_NODES), public)
    assert ratios
    attacks.check_reached(ratios)


@pytest.mark.parametrize("case", cases.directed(), ids=str)
def test_neighbours_stay_within_the_sensitivity_after_a_map_from_public_records_too(
    case: Case, public: Path, runs: Callable[[int, int], int]
) -> None:
    """Records are clipped again after the map, whatever it is: here it is far from the identity."""
    if case not in cases.first_of_each_method(cases.directed()) and not runs(0, 1):
        pytest.skip("another variant of the method is tried; runs with --soak")
    worst: attacks.Ratios = {}
    for setting in cases.cheap_settings():
        if min(worst.values(), default=0.0) < attacks.ENOUGH or runs(0, 1):
            worst = attacks.worst_of([worst, attacks.attacked(replace(case, **setting), public)])
    found = cases.planned(case, public) or cases.planned(replace(case, unit="party"), public)
    assert found is not None
    assert found[0].directions is not None
    assert worst
    attacks.check_reached(worst)


@pytest.mark.parametrize("case", cases.variants(), ids=str)
def test_with_as_many_colluders_as_planned_nothing_is_weakened(case: Case, public: Path) -> None:
    """The first row of that table is the promise itself, up to the coarser accounting of sampled rounds."""
    for unit in ("record", "party"):
        found = cases.planned(replace(case, unit=unit, protocol="secagg+"), public)
        if found is not None and (rows := found[1].weakening()):
            assert rows[0]["epsilon"] == pytest.approx(found[1].guarantee.epsilon, rel=0.02)


TASKS_OF_METHODS = [
    pytest.param(name, task, id=f"{name} {task}")
    for name, kind in METHODS.items()
    if name not in cases.ELSEWHERE and name != "none"
    for task in kind.tasks
]
"""Every task that a method says it takes. ("none" promises nothing.)"""


@pytest.mark.parametrize(("method", "task"), TASKS_OF_METHODS)
def test_every_method_that_promises_something_is_attacked(method: str, task: str, public: Path) -> None:
    """Here by what it sums, or by what its trainer releases, for each task that it takes; or it is named as attacked
    elsewhere. A method whose keys have no defaults, or that takes no matrix, cannot be attacked: it says so here."""
    chosen = [case for case in cases.variants() if (case.method, case.task) == (method, task)]
    settings = [replace(case, unit=unit) for case in chosen for unit in ("record", "party")]
    if not any(cases.planned(case, public) for case in settings):
        pytest.fail(f'no study of "{method}" is attacked: {cases.refusal(settings[0], public)}')


@pytest.mark.parametrize("protocol", SUMS)
def test_one_dropout_more_than_planned_for_reveals_nothing(protocol: str, public: Path) -> None:
    """The study allows one; two parties vanish while they send."""
    case = Case("moments", (), "statistics", dropouts=1, protocol=protocol)
    found = cases.planned(case, public)
    assert found is not None
    _, pair = next(neighbours.neighbours(case, found[1]))
    with pytest.raises(Aborted):
        local.run(*found, ArrayFederation(found[0].study, pair.one, pair.groups), Conditions(drop=2))
