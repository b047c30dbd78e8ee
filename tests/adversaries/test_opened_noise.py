"""Noise that is opened for other survivors than the quorum's, by a coordinator of real parties that tells two stories.

Of nine parties two may collude, and three may drop out. So six signatures open a sum, and two lists would need a third
colluder: with that one, each of these attacks succeeds.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversaries.forked import Forked, Story
from adversaries.on_disk import recount
from small_studies import RECORDS, small
from unspoken.methods.base import Cancel, Collect, Request, Sum, ZeroSum
from unspoken.methods.parameters import Refused
from unspoken.roles.messages import ask_for
from unspoken.roles.store import MemoryStore
from unspoken.summation.base import address_of
from unspoken.types import Words

PARTIES, COLLUDING, DROPOUTS, VICTIM = 9, 2, 3, 8
EVERYONE = set(range(PARTIES))
BOUND = pytest.mark.parametrize(("colluders", "falls"), [({0, 1}, False), ({0, 1, 2}, True)])


def forked(public: Path, method: str, colluders: set[int], summation: str = "secagg", **keys: Any) -> Forked:
    parties = {"count": PARTIES, "records": RECORDS, "max_records": RECORDS}
    trust = {"colluding": COLLUDING, "dropouts": DROPOUTS}
    return Forked(
        small(public, method, "statistics", parties=parties, keys=keys, summation=summation, **trust), colluders
    )


def two_stories(cast: Forked, lists: tuple[set[int], set[int]]) -> tuple[Story, Story]:
    """Each list is told to half of the honest parties, of whom it must not leave out any."""
    one, other = lists
    second = [index for index in cast.honest if index in other][: len(cast.honest) // 2]
    first = [index for index in cast.honest if index not in second]
    stories = cast.story(one, first), cast.story(other, second)
    for story in stories:
        story.tell()
    return stories


def difference(stories: tuple[Story, Story]) -> Words | None:
    """The first story's total without the second one's, if both open."""
    first, second = (story.total() for story in stories)
    return None if first is None or second is None else stories[0].session.reduce(first - second)


@BOUND
@pytest.mark.parametrize(
    ("method", "keys", "kind"),
    [
        ("moments", {}, Sum),
        ("cape", {"order": "noise-first"}, ZeroSum),
        ("cape", {"order": "messages-first"}, Cancel),
    ],
    ids=["sum", "noise-first", "messages-first"],
)
def test_two_sums_with_and_without_a_party_need_one_colluder_more(
    method: str, keys: dict[str, str], kind: type[Request], colluders: set[int], falls: bool, public: Path
) -> None:
    """They would differ by the party's vector; with `cape`, by the noise that hides its message."""
    cast = forked(public, method, colluders, **keys)
    cast.gather(kind)
    lists = EVERYONE, EVERYONE - {VICTIM}
    stories = two_stories(cast, lists)
    for story, parties in zip(stories, lists, strict=True):
        assert (total := story.total()) is None or np.array_equal(total, story.true_total(parties))
    found = difference(stories)
    assert (found is not None) == falls
    assert found is None or np.array_equal(found, stories[0].true_total([VICTIM]))


@pytest.mark.parametrize(("corrupt", "falls"), [({0, 1}, False), ({0, 2}, False), ({0, 1, 2}, True)])
@pytest.mark.parametrize("order", [None, "noise-first", "messages-first"], ids=["sum", "noise-first", "messages-first"])
def test_two_sums_at_compute_nodes_need_all_nodes(
    order: str | None, corrupt: set[int], falls: bool, public: Path
) -> None:
    """One honest node prevents the second."""
    method, keys = ("moments", {}) if order is None else ("cape", {"order": order})
    cast = forked(public, method, set(), "compute-nodes", **keys)
    cast.gather({None: Sum, "noise-first": ZeroSum, "messages-first": Cancel}[order])
    first = cast.story_for_nodes(corrupt)
    first.tell()
    assert np.array_equal(first.total(), first.true_total(EVERYONE))
    second = cast.story_for_nodes(corrupt, first, left_out=VICTIM)
    second.tell()
    found = difference((first, second))
    assert (found is not None) == falls
    assert found is None or np.array_equal(found, first.true_total([VICTIM]))


@BOUND
def test_a_message_without_its_common_noise_needs_one_colluder_more(
    colluders: set[int], falls: bool, public: Path
) -> None:
    """What is left of the victim's message hides its records by its own noise alone, a small part of the whole."""
    cast = forked(public, "cape", colluders, order="messages-first")
    cast.gather(Cancel)
    planned = cast.plan.sums[0]
    kept = cast.coordinator.totals.messages[planned.name]
    (message,) = kept.vectors[kept.senders == VICTIM]
    common = difference(two_stories(cast, (EVERYONE, EVERYONE - {VICTIM})))
    assert (common is not None) == falls
    if common is not None:
        left = planned.encoding.decode(message[: planned.dimension] - common)
        exact = cast.method.contribute(Collect(planned.name), cast._records[VICTIM], []).noisy[0]
        own, whole = (
            math.sqrt(variance) / planned.encoding.scale for variance in planned.noise.variances(VICTIM)[::-1]
        )
        assert np.abs(left - exact).max() < 6 * own < whole / 5


@BOUND
def test_noise_that_a_smaller_total_needs_is_opened_with_one_colluder_more(
    colluders: set[int], falls: bool, public: Path
) -> None:
    """If all are there, spare noise is opened. A total of six parties needs it."""
    cast = forked(public, "moments", colluders)
    cast.gather(Sum)
    planned, few = cast.plan.sums[0], {*colluders, *cast.honest[: PARTIES - DROPOUTS - len(colluders)]}
    schedule = planned.noise.schedule
    assert schedule.opened(len(few)) == ()
    with_all, with_few = two_stories(cast, (EVERYONE, few))
    assert (with_all.total() is not None and with_few.total() is not None) == falls
    if falls:
        seeds = with_all.endpoint.opened()
        spare = [planned.noise.opened(planned.dimension, PARTIES, seeds[index]) for index in few]
        assert all(np.any(noise) for noise in spare)
        # The adversary takes it out of the smaller total, which keeps less noise than it was to have.
        left = planned.noise.schedule.kept(PARTIES)
        assert left < 0.8 * schedule.kept(len(few))


@pytest.mark.parametrize("colluders", [set(), {0, 1}])
def test_noise_is_opened_for_parties_that_sent_nothing_and_then_no_total_is(colluders: set[int], public: Path) -> None:
    """Six vectors come, and all nine parties are said to be there. The true list comes too late: everyone has signed
    another."""
    cast = forked(public, "moments", colluders)
    silent = {6, 7, 8}
    cast.gather(Sum, silent)
    hearers = set(cast.honest) - silent
    stories = cast.story(EVERYONE, hearers), cast.story(EVERYONE - silent, hearers)
    for story in stories:
        story.tell()
    assert stories[0].endpoint.state.answers.keys() == EVERYONE - silent
    assert stories[1].endpoint.state.answers.keys() <= colluders
    assert [story.total() for story in stories] == [None, None]


@pytest.mark.parametrize("remember", [True, False])
def test_who_remembers_adds_up_the_noise_of_a_message_once(remember: bool, public: Path) -> None:
    """A second sum, without the victim, would tell the victim's noise. Only who is set back to before the first one
    would take part in it."""
    cast = forked(public, "cape", set(), order="messages-first")
    name, before = cast.plan.sums[0].name, dict[str, list[bytes]]()

    def keep(to: str, body: bytes) -> None:
        if isinstance(cast.coordinator.request, Cancel) and not before:
            before.update({address: store.read() for address, store in cast.stores.items()})

    cast.before = keep
    cast.totals()
    for index in EVERYONE - {VICTIM}:
        if not remember:
            cast.stores[address_of(index)] = MemoryStore(before[address_of(index)])
        party = cast.party(index)
        for request in (Collect(name), Cancel(name)):
            ask = recount(cast, ask_for(request, 0, cast.coordinator.attempt))
            with nullcontext() if not remember and request == Cancel(name) else pytest.raises(Refused):
                assert party.receive(ask)
