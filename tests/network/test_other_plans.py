"""A participant that plans a study otherwise than its coordinator leaves before anything is spent.

Versions whose numbers fit may still differ: in the package by mistake, or in a package that brings a method.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flower.site_nodes import SiteTown
from network.liar import hub_of
from network.town import NAMES, Town
from small_studies import methods_and_tasks, public_file, small
from unspoken import sites
from unspoken.engines.flower.exchanges import AskingSide, Declines, Hello, Joins
from unspoken.engines.network.frames import unpacked
from unspoken.engines.network.server import Server
from unspoken.engines.network.sign_in import SignInRefused
from unspoken.engines.signing import canonical
from unspoken.flower import taking_part
from unspoken.methods.planning import Plan
from unspoken.methods.registry import plan_for
from unspoken.privacy.ledger import Ledger
from unspoken.report.countersigning import differs
from unspoken.summation.base import Roster


def less_sensitive(plan: Plan, by: float = 0.999) -> Plan:
    """The plan of a version that has proved a smaller sensitivity, and would make do with less noise."""
    return replace(plan, sums=tuple(replace(planned, sensitivity=by * planned.sensitivity) for planned in plan.sums))


def finer(plan: Plan) -> Plan:
    """The plan of a version that encodes numbers in other units, which no one is told otherwise."""
    encoded = (replace(each, encoding=replace(each.encoding, scale=2 * each.encoding.scale)) for each in plan.sums)
    return replace(plan, sums=tuple(encoded))


OTHERS: list[tuple[Callable[[Plan], Plan], str]] = [
    (less_sensitive, r'"plan\.releases\[0\]\.sensitivity" is '),
    (lambda plan: replace(plan, notes=("in other words",)), r'"plan\.notes" is '),
]


@pytest.mark.parametrize(("other", "said"), OTHERS)
def test_another_plan_is_told_by_the_place_that_differs(other: Callable[[Plan], Plan], said: str, town: Town) -> None:
    plan = plan_for(town.study)
    problem = differs(plan, canonical(other(plan).compared()))
    assert problem is not None
    assert re.match(said, problem)


def test_other_units_are_noticed(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Totals would be wrong, and no certificate says why."""
    plan = plan_for(town.study)
    monkeypatch.setattr(Plan, "__post_init__", lambda self: None)
    shown = {**finer(plan).compared(), **plan.to_json()}
    assert '"plan.encodings.model.scale" is ' in str(differs(plan, canonical(shown)))


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a":1,"a":2}', b"[" * 100_000, b"\xff"])
def test_what_is_no_plan_differs(content: bytes, town: Town) -> None:
    assert differs(plan_for(town.study), content)


def test_last_digits_are_no_difference(town: Town) -> None:
    plan = plan_for(town.study)
    assert differs(plan, canonical(less_sensitive(plan, 1 - 1e-9).compared())) is None


@pytest.mark.parametrize(("name", "task"), list(dict(methods_and_tasks()).items()))
def test_every_method_s_plan_is_its_own(name: str, task: str, tmp_path: Path) -> None:
    study = small(public_file(tmp_path), name, task)
    shown = canonical(plan_for(study).compared())
    json.loads(shown, parse_constant=lambda word: pytest.fail(word))
    assert differs(plan_for(study), shown) is None


def test_who_plans_otherwise_leaves_before_anything_is_spent_and_both_sides_say_why(town: Town) -> None:
    said: list[str] = []
    ledger = Ledger(town.folder / "ledger")
    ready = sites.prepare(town.study, town.folder / f"{NAMES[0]}.npz", key=town.key(NAMES[0]), ledger=ledger)
    ready = replace(ready, plan=less_sensitive(ready.plan))

    async def play() -> None:
        events = sites.Events(told=said.append)
        with sites.coordinator_of(town.study, town.key("hub"), events) as facts:
            server = Server(*facts, sites.Deadlines(), events)
            listening = await server.listen("127.0.0.1", 0)
            told = r"plans the study otherwise than this one, .*: \"plan\.releases\[0\]\.sensitivity\" is "
            with pytest.raises(SignInRefused, match=told):
                await asyncio.to_thread(ready.join, town.where(listening.sockets[0].getsockname()[1]))
            while server.present:
                await asyncio.sleep(0.01)
            listening.close()
            await listening.wait_closed()

    asyncio.run(asyncio.wait_for(play(), 300.0))
    assert "party:0 leaves: it plans the study otherwise, so it has another version of something" in said
    assert not ledger.account().runs


def test_a_site_of_a_federation_declines_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSPOKEN_HOME", "/nowhere")
    towns = SiteTown(tmp_path)
    study = towns.town.study
    asking = AskingSide(study.digest(), hub_of(towns.town), Roster.of(study), [])
    site = str(towns.site(NAMES[0]))
    other, own = (canonical(plan.compared()) for plan in (less_sensitive(plan_for(study)), plan_for(study)))
    declines = unpacked(taking_part.answer(asking.question(Hello(other))[0], site), Declines)
    assert "plans the study otherwise than this one" in declines.reason
    content, nonce = asking.question(Hello(own))
    assert isinstance(asking.answer(taking_part.answer(content, site), nonce)[1], Joins)
    towns.stop()
