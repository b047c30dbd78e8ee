"""A split gives every record to one party, in the way asked for, and the same way for the same seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspoken.data.splits import SplitError, split

KINDS = ["iid", "by-class", "dirichlet:0.01", "dirichlet:0.5", "dirichlet:100"]


def labels(records: int, classes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(classes, size=records)


@pytest.mark.parametrize("kind", KINDS)
@given(records=st.integers(2, 200), classes=st.integers(2, 5), seed=st.integers(0, 2**32), data=st.data())
def test_every_record_goes_to_one_party_and_no_party_is_empty(
    kind: str, records: int, classes: int, seed: int, data: st.DataObject
) -> None:
    parties = data.draw(st.integers(1, records))
    groups = split(kind, labels(records, classes, seed), parties, seed)
    assert groups.shape == (records,)
    assert groups.dtype == np.int64
    assert sorted(set(groups.tolist())) == list(range(parties))


@pytest.mark.parametrize("kind", ["iid", "by-class"])
@given(records=st.integers(2, 300), data=st.data())
def test_parties_have_equally_many_records_within_one(kind: str, records: int, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, records))
    counts = np.bincount(split(kind, labels(records, 3), parties, 0), minlength=parties)
    assert counts.max() - counts.min() <= 1


def test_by_class_gives_nearly_every_party_a_single_class() -> None:
    y = labels(1000, 10)
    groups = split("by-class", y, 100, 0)
    mixed = [party for party in range(100) if len(set(y[groups == party].tolist())) > 1]
    # A party has several classes only where the sorted records pass from one class to the next.
    assert len(mixed) <= 9


def test_iid_gives_every_party_a_mixture() -> None:
    y = labels(1000, 2)
    groups = split("iid", y, 20, 0)
    # Of 50 fair labels, fewer than 8 are the same at any of 20 parties with a chance below 1e-5; the seed is fixed.
    assert all(8 <= y[groups == party].sum() <= 42 for party in range(20))


def test_a_smaller_dirichlet_concentration_makes_parties_less_alike() -> None:
    y = labels(5000, 10)

    def largest_share(kind: str) -> float:
        groups = split(kind, y, 20, 0)
        return float(np.mean([np.bincount(y[groups == party]).max() / (groups == party).sum() for party in range(20)]))

    assert largest_share("dirichlet:100") < 0.2 < largest_share("dirichlet:1") < largest_share("dirichlet:0.05")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_split_and_another_seed_another(kind: str) -> None:
    y = labels(300, 3)
    np.testing.assert_array_equal(split(kind, y, 10, 7), split(kind, y, 10, 7))
    assert (split(kind, y, 10, 7) != split(kind, y, 10, 8)).any()


def numbers(records: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=records)


@given(records=st.integers(2, 200), seed=st.integers(0, 2**32), data=st.data())
def test_by_class_gives_parties_of_a_regression_ranges_of_labels(records: int, seed: int, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, records))
    y = numbers(records, seed)
    groups = split("by-class", y, parties, seed)
    assert set(groups.tolist()) == set(range(parties))
    for party in range(parties - 1):
        assert y[groups == party].max() <= y[groups == party + 1].min()


def test_iid_does_not_look_at_a_regression_s_labels() -> None:
    np.testing.assert_array_equal(split("iid", numbers(100), 7, 3), split("iid", labels(100, 2), 7, 3))


@pytest.mark.parametrize("kind", ["dirichlet:0.5", "dirichlet:0"])
def test_dirichlet_is_refused_for_a_regression_with_what_works(kind: str) -> None:
    for y in (numbers(10), numbers(10).astype(np.float32)):
        with pytest.raises(SplitError) as caught:
            split(kind, y, 2, 0)
        assert str(caught.value) == (
            f"the split is {kind!r}, but a regression has no classes to draw; use iid or by-class."
        )


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_may_be_split_in_any_way(kind: str) -> None:
    assert set(split(kind, np.zeros(30, dtype=np.int64), 5, 0).tolist()) == set(range(5))


@pytest.mark.parametrize("concentration", ["1e-300", "1e300"])
def test_an_extreme_dirichlet_concentration_still_serves_every_party(concentration: str) -> None:
    groups = split(f"dirichlet:{concentration}", labels(300, 3), 50, 0)
    assert set(groups.tolist()) == set(range(50))


@pytest.mark.parametrize(
    "kind",
    ["random", "", "IID", "dirichlet", "dirichlet:", "dirichlet:0", "dirichlet:-1", "dirichlet:x", "dirichlet:1e999"],
)
def test_an_unknown_split_is_named_with_those_that_exist(kind: str) -> None:
    with pytest.raises(SplitError) as caught:
        split(kind, labels(10, 2), 2, 0)
    assert str(caught.value) == (
        f"the split is {kind!r}, but should be iid, by-class, dirichlet:A with A above 0, such as dirichlet:0.5, or "
        "(unless labels are numbers) classes:K, such as classes:6."
    )


def test_more_parties_than_records_are_refused() -> None:
    with pytest.raises(SplitError, match=r"^5 records cannot be split over 6 parties; ask for fewer parties\.$"):
        split("iid", labels(5, 2), 6, 0)


@pytest.mark.parametrize("each", [1, 3, 6, 10])
def test_parties_have_so_many_classes_and_classes_as_many_parties(each: int) -> None:
    many = np.arange(6_000) % 10
    groups = split(f"classes:{each}", many, 100, 0)
    assert np.bincount(groups).min() > 0
    assert {len(np.unique(many[groups == party])) for party in range(100)} == {each}
    holders = [len(np.unique(groups[many == label])) for label in range(10)]
    assert max(holders) - min(holders) <= 1


@pytest.mark.parametrize("kind", ["classes:0", "classes:4", "classes:1"])
def test_classes_that_do_not_fit_are_refused(kind: str) -> None:
    with pytest.raises(SplitError, match="K must be from 1 to 3, and 2 parties together must cover all classes"):
        split(kind, np.arange(30) % 3, 2, 0)
