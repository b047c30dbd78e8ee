"""The ledger: what it keeps, what it adds up to, and what it refuses, also with a full disk and with company."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.privacy.accounting import epsilon_of
from unspoken.privacy.events import Event, Gaussian, PureLoss, Spend, SubsampledGaussian, Unprotected
from unspoken.privacy.gaussian import delta_of as gaussian_delta
from unspoken.privacy.gaussian import epsilon_of as gaussian_epsilon
from unspoken.privacy.gaussian import mu_for
from unspoken.privacy.guarantee import Trust
from unspoken.privacy.ledger import Ledger, LedgerError, OverLimit, Run, datasets, recognised
from unspoken.privacy.ledger_pages import Account, Charged, Limit, decoded, encoded

DELTA = 1e-6
SAMPLED = SubsampledGaussian(1.5, 0.1, "poisson", 3)


def run_of(identifier: str = "run", **said: Any) -> Run:
    facts: dict[str, Any] = {"study": "heart", "study_sha256": "5f", "method": "moments", "group": 1}
    facts |= {"adjacency": "replace", "delta": DELTA, "slack": 0.0, "distance": 0.0, "trust": Trust(10, 2, 1)}
    return Run(identifier=identifier, **(facts | said))


def charged(*runs: tuple[Run, tuple[Event, ...]]) -> Ledger:
    ledger = Ledger()
    for number, (run, events) in enumerate(runs):
        ledger.charge(run, str(number), events)
    return ledger


def epsilon(ledger: Ledger, delta: float = DELTA) -> float:
    return ledger.guarantee(delta).epsilon


def left(ledger: Ledger) -> float:
    limit = ledger.limit()
    assert limit is not None
    return ledger.total().left(limit)


def test_what_was_charged_is_there_for_whoever_opens_the_file_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    events = (Gaussian(0.3, 2), SAMPLED, PureLoss(0.1), Unprotected())
    Ledger(path, "heart").charge(run_of(once=(PureLoss(0.2),)), "a", events)
    account = Ledger(path, "heart").account()
    assert [charge.events for charge in account.charges.values()] == [events]
    assert list(account.runs.values()) == [run_of(once=(PureLoss(0.2),))]
    assert not Ledger(path, "lung").account().charges
    assert datasets(path) == ["heart"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_attempt_is_charged_once_however_often_it_is_said(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for _ in range(3):
        ledger.charge(run_of(), "a", [Gaussian(0.5)])
        Ledger(tmp_path / "ledger").charge(run_of(), "a", [Gaussian(0.5)])
    assert epsilon(ledger) == gaussian_epsilon(0.5, DELTA)
    # A coordinator chooses the names of attempts, but not those of runs.
    ledger.charge(run_of("another"), "a", [Gaussian(0.5)])
    assert epsilon(ledger) == gaussian_epsilon(math.hypot(0.5, 0.5), DELTA)


def test_a_run_cannot_change_its_plan_on_the_way() -> None:
    ledger = charged((run_of(), (Gaussian(0.5),)))
    with pytest.raises(LedgerError, match="another plan"):
        ledger.charge(run_of(slack=1e-9), "b", [Gaussian(0.5)])


def test_runs_compose_by_their_events_and_not_by_their_epsilons() -> None:
    ledger = charged(*((run_of(str(number)), (Gaussian(0.2),)) for number in range(19)))
    assert epsilon(ledger) == pytest.approx(gaussian_epsilon(0.2 * math.sqrt(19), DELTA))
    assert epsilon(ledger) < 19 * gaussian_epsilon(0.2, DELTA) / 3
    assert ledger.spent() == Spend((Gaussian(0.2, 19),), 1)


def test_what_a_run_costs_once_is_counted_once() -> None:
    run = run_of(once=(PureLoss(0.5),), slack=1e-7)
    ledger = charged((run, ()), (run, ()), (run_of("other", once=(PureLoss(0.25),), slack=2e-7), ()))
    assert sorted(event.epsilon for event in ledger.spent().events if isinstance(event, PureLoss)) == [0.25, 0.5]
    assert ledger.spent().slack == pytest.approx(3e-7)
    assert epsilon(ledger, 3e-7) == 0.75
    assert epsilon(ledger, 2.9e-7) == math.inf


@pytest.mark.parametrize(
    ("groups", "together"), [([1, 1], 1), ([None, None], None), ([None, 1], 1), ([5, 3], 3), ([None, 5], 1)]
)
def test_the_total_is_about_the_largest_unit_that_all_studies_protect(
    groups: list[int | None], together: int | None
) -> None:
    ledger = charged(*((run_of(str(n), group=group), (Gaussian(0.2),)) for n, group in enumerate(groups)))
    assert ledger.guarantee(DELTA).group == together


@pytest.mark.parametrize(
    ("unit", "group", "is_refused"),
    [
        ("record", None, False),
        ("party", None, False),
        ("party", 1, True),
        ({"group": 3}, 5, False),
        ({"group": 5}, 3, True),
        ({"group": 5}, None, True),
    ],
)
def test_a_limit_for_a_unit_refuses_studies_that_protect_less(unit: Any, group: int | None, is_refused: bool) -> None:
    ledger = Ledger()
    ledger.set_limit(5.0, DELTA, unit)
    if is_refused:
        with pytest.raises(OverLimit, match="no promise for a"):
            ledger.charge(run_of(group=group), "a", [Gaussian(0.1)])
    else:
        ledger.charge(run_of(group=group), "a", [Gaussian(0.1)])


def test_studies_of_different_neighbours_are_added_up_for_replaced_records() -> None:
    left_out = run_of("0", adjacency="add-remove")
    alone = charged((left_out, (SAMPLED, PureLoss(0.1))))
    assert alone.guarantee(DELTA).adjacency == "add-remove"
    assert epsilon(alone) == epsilon_of(Spend((SAMPLED, PureLoss(0.1)), 1, "add-remove"), DELTA)
    both = charged((left_out, (SAMPLED, PureLoss(0.1))), (run_of("1"), (Gaussian(0.2),)))
    assert both.guarantee(DELTA).adjacency == "replace"
    assert epsilon(both) == epsilon_of(Spend((SAMPLED, PureLoss(0.2), Gaussian(0.2)), 1), DELTA)
    gaussian = charged((left_out, (Gaussian(0.3),)), (run_of("1"), (Gaussian(0.2),)))
    assert epsilon(gaussian) == gaussian_epsilon(math.hypot(0.6, 0.2), DELTA)


def test_parties_that_are_left_out_are_added_up_for_records_as_two_steps() -> None:
    """Whatever is done to a record of a party, its records are left out, and others put in."""
    left_out = run_of("0", adjacency="add-remove", group=None)
    alone = charged((left_out, (Gaussian(0.3),)))
    assert (alone.guarantee(DELTA).unit, alone.guarantee(DELTA).adjacency) == ("party", "add-remove")
    assert epsilon(alone) == gaussian_epsilon(0.3, DELTA)
    mixed = charged((left_out, (Gaussian(0.3),)), (run_of("1", adjacency="add-remove"), (Gaussian(0.2),)))
    assert (mixed.guarantee(DELTA).unit, mixed.guarantee(DELTA).adjacency) == ("record", "replace")
    assert epsilon(mixed) == gaussian_epsilon(math.hypot(0.6, 0.4), DELTA)


@pytest.mark.parametrize(("unit", "factor"), [("party", 1.0), ("record", 2.0)])
def test_a_limit_about_records_counts_parties_that_are_left_out_twice(unit: str, factor: float) -> None:
    most = gaussian_epsilon(0.3 * factor, DELTA)
    left_out = run_of(adjacency="add-remove", group=None)
    for allowed, is_refused in ((most * 1.01, False), (most * 0.99, True)):
        ledger = Ledger()
        ledger.set_limit(allowed, DELTA, unit)
        if is_refused:
            with pytest.raises(OverLimit):
                ledger.charge(left_out, "a", [Gaussian(0.3)])
        else:
            ledger.charge(left_out, "a", [Gaussian(0.3)])


def test_the_cost_of_drawing_noise_grows_with_the_epsilon_of_the_total() -> None:
    """(1 + e^ε)·η, for the ε of all 19 runs: what that leaves of δ gives no more than the stated ε."""
    distance = 1e-14
    ledger = charged(*((run_of(str(n), distance=distance), (Gaussian(0.5),)) for n in range(19)))
    found, alone = epsilon(ledger), gaussian_epsilon(0.5 * math.sqrt(19), DELTA)
    needed = (1.0 + math.exp(found)) * 19 * distance
    assert needed > DELTA / 100
    assert alone < gaussian_epsilon(0.5 * math.sqrt(19), DELTA - needed) <= found < alone * 1.1


@pytest.mark.parametrize("mu", [4.2, 4.7, 5.2, 6.0, 60.0])
def test_a_total_above_30_is_proven_or_nothing_is_promised(mu: float) -> None:
    """Noise and its drawing together are within δ at the stated ε, or no ε is stated."""
    distance = 1e-22
    ledger = charged((run_of(distance=distance), (Gaussian(mu),)))
    found = epsilon(ledger)
    assert found > gaussian_epsilon(mu, DELTA) > 20.0
    if math.isfinite(found):
        assert mu < 5.0
        assert gaussian_delta(mu, found) + (1.0 + math.exp(found)) * distance <= DELTA
    else:
        assert (
            "the noise in everything that one run revealed is too little to prove" in ledger.guarantee(DELTA).sentence()
        )
        ledger.set_limit(1000.0, DELTA)
        with pytest.raises(OverLimit, match="would leave no promise for one record"):
            ledger.charge(run_of("next"), "next", (Gaussian(0.1),))


def test_a_total_without_noise_says_so_and_one_below_its_own_slack_says_that_nothing_is_proven() -> None:
    bare = charged((run_of("1"), (Unprotected(),)), (run_of("2"), (Gaussian(0.1),)))
    assert "without noise" in bare.guarantee(DELTA).sentence()
    for event in (Gaussian(0.1), PureLoss(0.1), SAMPLED):
        below = charged((run_of(slack=2.0 * DELTA), (event,)))
        assert "is too little to prove any epsilon" in below.guarantee(DELTA).sentence()


def test_the_total_holds_against_those_whom_every_study_withstands() -> None:
    one = run_of("1", trust=Trust(10, 3, 2, lying=True), assumptions=("a node is honest",))
    two = run_of("2", trust=Trust(5, 1, 3), assumptions=("a node is honest", "nobody breaks in"))
    said = charged((one, (Gaussian(0.1),)), (two, (Gaussian(0.1),))).guarantee(DELTA)
    assert (said.trust.colluding, said.trust.dropouts, said.trust.lying) == (1, 2, False)
    assert said.assumptions == ("a node is honest", "nobody breaks in")
    assert "everything that 2 runs revealed" in said.sentence()


def test_an_empty_ledger_has_spent_nothing() -> None:
    assert epsilon(Ledger()) == 0.0


def test_what_is_unprotected_leaves_no_promise_and_no_limit_allows_it() -> None:
    assert not charged((run_of(), (Unprotected(),))).guarantee(DELTA).is_promise
    ledger = Ledger()
    ledger.set_limit(1e6, 0.1)
    with pytest.raises(OverLimit):
        ledger.charge(run_of(), "a", [Unprotected()])


def test_a_limit_allows_what_reaches_it_and_nothing_more() -> None:
    ledger = Ledger()
    ledger.set_limit(gaussian_epsilon(0.5, DELTA), DELTA)
    ledger.charge(run_of("1"), "a", [Gaussian(0.3)])
    with pytest.raises(OverLimit, match=r'limit for "records" is epsilon = .* would bring it to'):
        ledger.charge(run_of("2"), "a", [Gaussian(0.401)])
    assert ledger.spent() == Spend((Gaussian(0.3),), 1)
    assert left(ledger) == pytest.approx(gaussian_epsilon(0.4, DELTA))
    ledger.check(run_of("2"), "a", [Gaussian(0.4)])
    ledger.charge(run_of("2"), "a", [Gaussian(0.4)])
    assert left(ledger) < 1e-6
    ledger.check(run_of("2"), "a", [Gaussian(0.4)])  # charged already
    ledger.charge(run_of("2"), "a", [Gaussian(0.4)])
    with pytest.raises(OverLimit):
        ledger.check(run_of("3"), "a", [Gaussian(0.01)])
    ledger.set_limit(None)
    ledger.charge(run_of("3"), "a", [Gaussian(3.0)])


def test_what_is_left_leaves_room_for_what_the_runs_take_of_delta() -> None:
    ledger = charged((run_of("1", slack=0.6 * DELTA), (Gaussian(0.3),)))
    ledger.set_limit(2.0, DELTA)
    mu = mu_for(left(ledger), DELTA)
    ledger.check(run_of("2"), "a", [Gaussian(mu * 0.999)])
    with pytest.raises(OverLimit):
        ledger.check(run_of("2"), "a", [Gaussian(mu * 1.001)])


def test_what_is_left_of_sampled_rounds_fits_and_hardly_more_does() -> None:
    ledger = charged((run_of(), (SAMPLED,)))
    ledger.set_limit(3.0, DELTA)
    rest = left(ledger)
    mu = next(mu / 1000 for mu in range(1, 3000) if gaussian_epsilon(mu / 1000, DELTA) > rest)
    assert epsilon_of(Spend((SAMPLED, Gaussian(mu - 0.002)), 1), DELTA, fine=False) < 3.0
    assert epsilon_of(Spend((SAMPLED, Gaussian(mu + 0.01)), 1), DELTA, fine=False) > 3.0


@pytest.mark.parametrize(
    "wrong", [(0.0, 1e-6), (-1.0, 1e-6), (math.nan, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, 1.0)]
)
def test_a_limit_that_is_none_is_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(LedgerError, match="the limit is epsilon"):
        Ledger().set_limit(*wrong)


events = st.one_of(
    st.builds(Gaussian, st.floats(0, 1e6), st.integers(1, 1 << 40)),
    st.builds(
        SubsampledGaussian,
        st.floats(0, 1e6),
        st.floats(0, 1),
        st.sampled_from(["poisson", "without-replacement"]),
        st.integers(1, 1 << 40),
    ),
    st.builds(PureLoss, st.floats(0, 1e300)),
    st.just(Unprotected()),
)


@given(st.lists(events, max_size=4), st.text(), st.text())
def test_every_event_is_read_back_as_it_was_written(listed: list[Event], dataset: str, attempt: str) -> None:
    page = Charged(dataset, "run", attempt, tuple(listed), "now")
    assert decoded(encoded(page)) == page


@pytest.mark.parametrize("wrong", [Gaussian(math.inf), Gaussian(-1.0), PureLoss(math.nan), Gaussian(1.0, 0)])
def test_what_could_not_be_read_back_is_not_written(wrong: Event) -> None:
    ledger = Ledger()
    with pytest.raises(ValueError, match="finite numbers"):
        ledger.charge(run_of(), "a", [wrong])
    assert not ledger.account().charges


def test_threads_share_a_ledger_in_memory() -> None:
    ledger = Ledger()

    def charge(name: str) -> None:
        for number in range(25):
            ledger.charge(run_of(name), str(number), [Gaussian(0.1)])

    threads = [threading.Thread(target=charge, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.spent() == Spend((Gaussian(0.1, 100),), 1)


def test_an_account_is_copied_while_nobody_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge in between could be in the copy without its run."""
    ledger, copied = charged((run_of("one"), (Gaussian(0.1),))), Account.copy
    other = threading.Thread(target=ledger.charge, args=(run_of("two"), "a", [Gaussian(0.1)]))

    def slowly(account: Account) -> Account:
        other.start()
        other.join(0.05)
        assert other.is_alive()
        return copied(account)

    monkeypatch.setattr(Account, "copy", slowly)
    assert list(ledger.account().runs) == ["one"]
    other.join(10.0)


def test_copies_are_the_same_ledger(tmp_path: Path) -> None:
    for ledger in (Ledger(tmp_path / "ledger", "heart"), Ledger(dataset="heart")):
        for other in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):  # noqa: S301
            other.charge(run_of(), "a", [Gaussian(0.5)])
            assert other.dataset == "heart"
        assert ledger.spent() == Spend((Gaussian(0.5),), 1)
        ledger.cap(Limit(1e-3, DELTA))
        for other in (copy.copy(ledger), pickle.loads(pickle.dumps(ledger))):  # noqa: S301
            with pytest.raises(OverLimit, match="the policy's limit"):
                other.charge(run_of(), "b", [Gaussian(0.5)])


def test_a_ledger_in_memory_does_not_go_to_another_process() -> None:
    function, (_, dataset) = Ledger(dataset="heart").__reduce__()
    elsewhere = function(b"of another process", dataset)
    for act in (elsewhere.account, lambda: elsewhere.charge(run_of(), "a", [Gaussian(0.5)])):
        with pytest.raises(LedgerError, match="give it a file"):
            act()


def test_a_file_is_named_once_and_then_recognised(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with pytest.raises(LedgerError, match=r"a.csv: new to the ledger .* \(it has: none yet\)"):
        recognised(path, "1a", None, "a.csv")
    assert not path.exists()
    recognised(path, "1a", "heart", "a.csv").set_limit(3.0)
    assert recognised(path, "1a", None, "a.csv").dataset == "heart"
    with pytest.raises(LedgerError, match=r'known to the ledger .* as "heart"'):
        recognised(path, "1a", "lung", "a.csv")
    with pytest.raises(LedgerError, match=r'\(it has: "heart"\)'):
        recognised(path, "2b", None, "b.csv")
    # The records of next year, of which many are those of this year.
    assert recognised(path, "2b", "heart", "b.csv").dataset == "heart"


def test_a_file_is_named_after_itself_where_it_cannot_be_a_version_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    for sha256 in ("1a", "2b"):
        recognised(path, sha256, None, "a.csv", otherwise="a").set_limit(3.0)
        assert recognised(path, sha256, None, "a.csv").dataset == "a"
    with pytest.raises(LedgerError, match=r'name the data set once with --dataset.*\(it has: "a"\)'):
        recognised(path, "3c", None, "a-2027.csv", otherwise="a-2027")
    assert recognised(path, "3c", "a", "a-2027.csv", otherwise="a-2027").dataset == "a"


def test_a_file_is_named_with_the_first_page_about_it_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    asked = recognised(path, "1a", "lung", "a.csv")
    assert (asked.account().pages, datasets(path)) == ([], [])
    chosen = pickle.loads(pickle.dumps(recognised(path, "1a", "heart", "a.csv")))  # noqa: S301
    for attempt in ("first", "second"):
        chosen.charge(run_of(), attempt, [Gaussian(0.5)])
    assert (recognised(path, "1a", None, "a.csv").dataset, datasets(path)) == ("heart", ["heart"])
    with pytest.raises(LedgerError, match='the file of "lung" was named "heart" meanwhile'):
        asked.charge(run_of("two"), "first", [Gaussian(0.5)])
    assert datasets(path) == ["heart"]


def test_a_data_set_takes_one_seat_in_a_study() -> None:
    """k seats move a total k times as far, which costs kμ; k studies cost √k·μ."""
    ledger = charged((run_of("one", seat=True), (Gaussian(0.3),)))
    ledger.charge(run_of("one", seat=True), "again", [Gaussian(0.3)])
    for ask in (ledger.check, ledger.charge):
        with pytest.raises(OverLimit, match=r'"records" takes part in "heart" already, as another party'):
            ask(run_of("two", seat=True), "a", [Gaussian(0.3)])
    ledger.charge(run_of("two", seat=True, study_sha256="another"), "a", [Gaussian(0.3)])
    ledger.charge(run_of("a simulation"), "a", [Gaussian(0.3)])
    assert ledger.spent().events == (Gaussian(0.3, 4),)
