"""Every method, whatever it protects and however it adds up: neighbours stay within the planned sensitivity, come
close to it, and what is left of the noise in the smallest total that can open is what was planned.

Methods and protocols come from the registries: a new one is attacked as soon as it is there. `--soak` tries all
combinations of unit, dropouts, sizes and protocol for each; otherwise every pair of these occurs with some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import attacks
import pytest
from attacks import Case

from unspoken.data.federation import ArrayFederation
from unspoken.engines import local
from unspoken.methods.registry import METHODS
from unspoken.summation.base import Aborted
from unspoken.summation.registry import PROTOCOLS


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return attacks.public_records(tmp_path_factory.mktemp("public"))


@pytest.mark.parametrize(("number", "variant"), list(enumerate(attacks.variants())), ids=str)
def test_neighbours_stay_within_the_planned_sensitivity_and_reach_half_of_it(
    number: int, variant: tuple[str, Any, str], public: Path, runs: Callable[[int, int], int]
) -> None:
    case = Case(*variant)
    if attacks.planned(case, public) is None and attacks.planned(replace(case, unit="party"), public) is None:
        pytest.skip("no such study, or no promise")
    # Settings take turns with the neighbours; and variants with the settings, unless all of them are tried.
    every = [list(attacks.settings())[number % 3 :: 3], list(attacks.all_settings())][runs(0, 1)]
    ratios = [
        attacks.attacked(replace(case, **setting), public, slice(place % 2, None, 2))
        for place, setting in enumerate(every)
    ]
    assert max(ratio for ratio in ratios if ratio is not None) >= 0.5


def test_every_method_that_promises_something_is_attacked(public: Path) -> None:
    """Here by what it sums, or by what its trainer releases; or it is named as attacked elsewhere."""
    attacked_here = {
        name
        for name, options, task in attacks.variants()
        for unit in ("record", "party")
        if attacks.planned(Case(name, options, task, unit), public) is not None
    }
    silent = {name for name in METHODS if name not in attacked_here | attacks.ELSEWHERE}
    assert silent == {"none"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_dropout_more_than_planned_for_reveals_nothing(protocol: str, public: Path) -> None:
    """The study allows one; two parties vanish while they send."""
    case = Case("moments", (), "statistics", dropouts=1, protocol=protocol)
    found = attacks.planned(case, public)
    assert found is not None
    _, pair = next(attacks.neighbours(case, found[1]))
    with pytest.raises(Aborted):
        local.run(*found, ArrayFederation(found[0].study, pair.one, pair.groups), drop=2)
