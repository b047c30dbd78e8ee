"""The nearest records vote: exactly those that whole-number distances say, and one record moves a ballot by √2/k."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from unspoken.learners import nearest_neighbours as module
from unspoken.learners.nearest_neighbours import neighbour_shares
from unspoken.types import Floats, Integers


def nearest(queries: Floats, features: Floats, neighbours: int) -> list[list[int]]:
    """The rule itself, in whole numbers: the first k by (distance, place)."""
    fractions = [[Fraction(value) for value in row] for row in (*features.tolist(), *queries.tolist())]
    unit = max(value.denominator for row in fractions for value in row)
    rows = [[value.numerator * (unit // value.denominator) for value in row] for row in fractions]
    records, found = rows[: len(features)], []
    for query in rows[len(features) :]:
        distances = [sum((a - b) ** 2 for a, b in zip(query, record, strict=True)) for record in records]
        found.append(sorted(range(len(features)), key=lambda index: (distances[index], index))[:neighbours])
    return found


def shares_of(found: list[list[int]], labels: Integers, classes: int) -> Floats:
    """How often each label occurs among the nearest."""
    return np.array([np.bincount(labels[indices], minlength=classes) / len(indices) for indices in found])


def brute_force(queries: Floats, features: Floats, labels: Integers, classes: int, neighbours: int) -> Floats:
    return shares_of(nearest(queries, features, neighbours), labels, classes)


def one_ulp_apart(rng: np.random.Generator, records: int, dimension: int) -> Floats:
    """Copies of a few rows, with single entries moved to the next number above or below."""
    rows = rng.normal(size=(3, dimension))[rng.integers(0, 3, records)]
    places = (np.arange(records), rng.integers(0, dimension, records))
    rows[places] = np.nextafter(rows[places], rng.choice([-np.inf, np.inf], records))
    return rows


ADVERSARIAL: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "one ulp apart": one_ulp_apart,
    "duplicates": lambda rng, n, d: rng.normal(size=(4, d))[rng.integers(0, 4, n)],
    "all equal": lambda rng, n, d: np.full((n, d), 0.1),
    "small whole numbers": lambda rng, n, d: rng.integers(-2, 3, (n, d)).astype(np.float64),
    "a large offset": lambda rng, n, d: 2.0**40 + rng.integers(-2, 3, (n, d)).astype(np.float64),
    "a large offset, rounded": lambda rng, n, d: 1e9 + rng.normal(scale=1e-6, size=(n, d)),
    "permuted": lambda rng, n, d: rng.permuted(np.tile(rng.normal(size=d), (n, 1)), axis=1),
    "of unlike sizes": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** rng.integers(-200, 100, (n, 1)),
    "tiny": lambda rng, n, d: rng.integers(-2, 3, (n, d)) * 5e-324,
    "an outlier": lambda rng, n, d: np.concatenate([rng.normal(size=(n - 1, d)), np.full((1, d), 1e100)]),
    "signed zeros": lambda rng, n, d: rng.choice([0.0, -0.0, 1.0], (n, d)),
}


@pytest.mark.parametrize("kind", ADVERSARIAL)
@pytest.mark.parametrize(("records", "dimension", "neighbours"), [(40, 3, 1), (40, 7, 5), (150, 2, 30), (300, 4, 3)])
def test_the_neighbours_are_those_of_exact_distances(kind: str, records: int, dimension: int, neighbours: int) -> None:
    """With queries that are records themselves, that lie between two of them, and others of the same kind."""
    rng = np.random.default_rng([records, dimension])
    features = ADVERSARIAL[kind](rng, records, dimension)
    between = (features[:4] + features[4:8]) / 2.0
    queries = np.concatenate([features[:4], between, ADVERSARIAL[kind](rng, 4, dimension), np.zeros((1, dimension))])
    expected = nearest(queries, features, neighbours)
    for labels in (rng.integers(0, 3, records), np.arange(records)):
        classes = int(labels.max()) + 1
        found = neighbour_shares(queries, features, labels, classes, neighbours)
        assert (found == shares_of(expected, labels, classes)).all()


@pytest.mark.parametrize("kind", ["permuted", "one ulp apart"])
def test_the_rounding_of_double_precision_decides_nothing(kind: str) -> None:
    """Distances that are equal, or as good as, and of which double precision often gets the order wrong."""
    rng = np.random.default_rng(5)
    for _ in range(100):
        features, labels = ADVERSARIAL[kind](rng, 8, 7), np.arange(8)
        queries = np.concatenate([np.zeros((1, 7)), np.full((1, 7), 0.1), features[:1] / 3.0])
        found = neighbour_shares(queries, features, labels, 8, 3)
        assert (found == brute_force(queries, features, labels, 8, 3)).all()


@given(data=st.data())
def test_the_neighbours_of_any_numbers(data: st.DataObject) -> None:
    numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1.0 + 2.0**-52, 0.1, 0.3, 3e-9]) | st.floats(-1e6, 1e6)
    dimension, records = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 12))
    flat = data.draw(st.lists(numbers, min_size=(records + 2) * dimension, max_size=(records + 2) * dimension))
    rows = np.array(flat).reshape(-1, dimension)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=records, max_size=records)))
    neighbours = data.draw(st.integers(1, records))
    found = neighbour_shares(rows[:2], rows[2:], labels, 3, neighbours)
    assert (found == brute_force(rows[:2], rows[2:], labels, 3, neighbours)).all()


def test_of_records_equally_far_the_earlier_count() -> None:
    """Each of the eight corners of a cube is as far from its middle; so is any of their copies."""
    corners = np.array([[x, y, z] for x in (0.1, 0.7) for y in (0.1, 0.7) for z in (0.1, 0.7)])
    middle = np.full((1, 3), (0.1 + 0.7) / 2.0)
    features, labels = np.tile(corners, (50, 1)), np.arange(400)
    rng = np.random.default_rng(0)
    for _ in range(5):
        order = rng.permutation(400)
        distances = [
            sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(row, middle[0], strict=True))
            for row in features[order]
        ]
        first = sorted(range(400), key=lambda place: (distances[place], place))[:3]
        found = neighbour_shares(middle, features[order], labels[order], 400, 3)
        assert sorted(np.flatnonzero(found[0])) == sorted(order[first])


@pytest.mark.parametrize(("records", "neighbours"), [(50, 1), (200, 7), (300, 300), (9000, 4)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_shares_are_those_of_scikit_learn(records: int, neighbours: int, kind: type) -> None:
    """Over several blocks of records and of queries; in general position rounding does not matter."""
    rng = np.random.default_rng(0)
    features, queries = rng.normal(size=(records, 5)).astype(kind), rng.normal(size=(1500, 5))
    labels = rng.integers(0, 4, records)
    found = neighbour_shares(queries, features, labels, 4, neighbours)
    fitted = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(features.astype(np.float64))
    nearest = fitted.kneighbors(queries)[1]
    expected = np.stack([(labels[nearest] == label).mean(axis=1) for label in range(4)], axis=1)
    assert np.allclose(found, expected)
    assert np.allclose(found.sum(axis=1), 1.0)


@pytest.mark.parametrize("kind", ["one ulp apart", "duplicates", "small whole numbers", "permuted", "an outlier"])
def test_a_replaced_record_takes_the_place_of_one_neighbour_at_most(kind: str) -> None:
    """The records that the filters let through may change; the ballots move by √2/k at most, at the border, too."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        features, labels = ADVERSARIAL[kind](rng, 60, 3), rng.integers(0, 3, 60)
        queries = np.concatenate([features[:5], ADVERSARIAL[kind](rng, 5, 3)])
        before = neighbour_shares(queries, features, labels, 3, 4)
        changed, relabelled, place = features.copy(), labels.copy(), int(rng.integers(60))
        changed[place] = [queries[0], np.full(3, 1e6), features[(place + 1) % 60]][int(rng.integers(3))]
        relabelled[place] = rng.integers(0, 3)
        after = neighbour_shares(queries, changed, relabelled, 3, 4)
        assert np.linalg.norm(after - before, axis=1).max() <= math.sqrt(2.0) / 4 * (1.0 + 1e-12)


def test_a_replaced_record_can_move_a_ballot_that_far() -> None:
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(300):
        features, labels = rng.normal(size=(12, 2)), rng.integers(0, 3, 12)
        queries = rng.normal(size=(10, 2))
        before = neighbour_shares(queries, features, labels, 3, 4)
        changed, relabelled = features.copy(), labels.copy()
        changed[0], relabelled[0] = queries[0] if rng.uniform() < 0.5 else 100.0, rng.integers(0, 3)
        after = neighbour_shares(queries, changed, relabelled, 3, 4)
        worst = max(worst, float(np.linalg.norm(after - before, axis=1).max()))
    assert worst == pytest.approx(math.sqrt(2.0) / 4)


@pytest.mark.parametrize("dimension", [3, 100, 2000])
def test_the_first_filter_lets_every_neighbour_through_and_few_others(dimension: int) -> None:
    """Its bounds are about 1,000 times what rounding does on average, and still leave a handful of 5,000 records."""
    rng = np.random.default_rng(3)
    features, queries = rng.normal(size=(5000, dimension)) + 10.0, rng.normal(size=(20, dimension)) + 10.0
    found, counts = module._candidates(queries, features, features.mean(axis=0), 5)
    for query, candidates, count in zip(queries, found, counts, strict=True):
        distances = ((features - query) ** 2).sum(axis=1)
        assert set(distances.argsort()[:5]) <= set(candidates[:count])
    assert counts.max() <= 74


def test_candidates_that_do_not_fit_are_all_looked_at() -> None:
    """More copies of one record than the filter has room for."""
    features = np.concatenate([np.zeros((500, 2)), np.ones((500, 2))])
    labels = np.repeat([0, 1, 2, 3], 250)
    _, counts = module._candidates(np.zeros((1, 2)), features, np.zeros(2), 300)
    assert counts.tolist() == [-1] or counts[0] >= 500
    found = neighbour_shares(np.zeros((1, 2)), features, labels, 4, 300)
    assert np.allclose(found, [[250 / 300, 50 / 300, 0.0, 0.0]])


def test_without_single_precision_the_neighbours_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    features, queries, labels = rng.normal(size=(300, 6)), rng.normal(size=(20, 6)), rng.integers(0, 3, 300)
    usual = neighbour_shares(queries, features, labels, 3, 5)
    monkeypatch.setattr(module, "_MOST_FEATURES", 1)
    assert (neighbour_shares(queries, features, labels, 3, 5) == usual).all()


def test_more_neighbours_than_records_are_refused() -> None:
    with pytest.raises(ValueError, match="neighbours"):
        neighbour_shares(np.zeros((1, 2)), np.zeros((3, 2)), np.zeros(3, dtype=np.int64), 2, 4)


@pytest.mark.parametrize("label", [-1, 2])
def test_labels_of_no_class_are_refused(label: int) -> None:
    with pytest.raises(ValueError, match="labels"):
        neighbour_shares(np.zeros((1, 2)), np.zeros((3, 2)), np.full(3, label), 2, 1)


@pytest.mark.parametrize("value", [1e200, math.nan, math.inf])
@pytest.mark.parametrize("where", ["queries", "features"])
def test_numbers_beyond_the_bounds_are_refused(value: float, where: str) -> None:
    queries, features = np.zeros((1, 2)), np.zeros((3, 2))
    (queries if where == "queries" else features)[0, 0] = value
    with pytest.raises(ValueError, match="within"):
        neighbour_shares(queries, features, np.array([0, 1, 1]), 2, 1)
