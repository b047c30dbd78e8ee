"""Every method, whatever it protects and however it adds up: neighbours stay within the planned sensitivity, come
close to it, and what is left of the noise in the smallest total that can open is what was planned.

Methods and protocols come from the registries: a new one is attacked as soon as it is there. `--soak` tries all
combinations of unit, dropouts, sizes and protocol; otherwise each method meets some, and together every pair. Secret
votes (`tally`) show no totals that could be compared: tests/summation/test_tally.py has them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import attacks
import numpy as np
import pytest
from attacks import SUMS, Case

from unspoken.data.federation import ArrayFederation
from unspoken.engines import local
from unspoken.methods.registry import METHODS
from unspoken.summation.base import Aborted


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacks.public_records(tmp_path_factory.mktemp("public"))


@pytest.mark.parametrize("case", attacks.variants(), ids=str)
def test_neighbours_stay_within_the_planned_sensitivity_and_reach_half_of_it(
    case: Case, public: Path, runs: Callable[[int, int], int]
) -> None:
    """All neighbours where a run is cheap; one of them, in turn, where units, dropouts, sizes and protocols meet."""
    found = [attacks.attacked(replace(case, **setting), public) for setting in attacks.cheap_settings()]
    ratios = [ratio for ratio in found if ratio is not None]
    if not ratios:
        pytest.skip("no such study, or no promise")
    assert max(ratios) >= 0.5
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    settings = list(attacks.all_settings() if runs(0, 1) else attacks.settings())
    for number in rng.permutation(len(settings))[: runs(5, len(settings))]:
        attacks.attacked(replace(case, **settings[number]), public, rng.permutation(attacks.KINDS)[:1])


@pytest.mark.parametrize(
    "case", [Case("moments", (), "statistics", dropouts=1), Case("cape", (), "statistics", dropouts=1)], ids=str
)
def test_neighbours_stay_apart_by_no_more_where_a_party_uses_some_of_the_nodes(case: Case, public: Path) -> None:
    """In every run of this suite, not only where the settings above take their turns."""
    ratio = attacks.attacked(replace(case, protocol="compute-nodes", nodes=attacks.SOME_NODES), public)
    assert ratio is not None
    assert ratio >= 0.5


@pytest.mark.parametrize("case", attacks.variants(), ids=str)
def test_with_as_many_colluders_as_planned_nothing_is_weakened(case: Case, public: Path) -> None:
    """The first row of that table is the promise itself, up to the coarser accounting of sampled rounds."""
    for unit in ("record", "party"):
        found = attacks.planned(replace(case, unit=unit, protocol="secagg+"), public)
        if found is not None and (rows := found[1].weakening()):
            assert rows[0]["epsilon"] == pytest.approx(found[1].guarantee.epsilon, rel=0.02)


def test_every_method_that_promises_something_is_attacked(public: Path) -> None:
    """Here by what it sums, or by what its trainer releases; or it is named as attacked elsewhere."""
    silent = set(METHODS) - attacks.ELSEWHERE
    for case in attacks.variants():
        if case.method in silent and any(
            attacks.planned(replace(case, unit=unit), public) for unit in ("record", "party")
        ):
            silent.remove(case.method)
    assert silent == {"none"}


@pytest.mark.parametrize("protocol", SUMS)
def test_one_dropout_more_than_planned_for_reveals_nothing(protocol: str, public: Path) -> None:
    """The study allows one; two parties vanish while they send."""
    case = Case("moments", (), "statistics", dropouts=1, protocol=protocol)
    found = attacks.planned(case, public)
    assert found is not None
    _, pair = next(attacks.neighbours(case, found[1]))
    with pytest.raises(Aborted):
        local.run(*found, ArrayFederation(found[0].study, pair.one, pair.groups), drop=2)
