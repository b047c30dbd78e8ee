"""Projections are unbiased, linear, adjoint to their lifts, the same for everyone, small in memory; bounds are tight.

Seeds are fixed, so a failure is a change of the code; each statistical test states its false-alarm rate for a fresh
seed.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import hadamard

from unspoken.learners import random_projection
from unspoken.learners.random_projection import (
    GaussianProjection,
    HadamardProjection,
    LayerProjection,
    Side,
    projected_bound,
    walsh_hadamard,
)

VECTORS = pytest.mark.parametrize("kind", [GaussianProjection, HadamardProjection])
Vectors = type[GaussianProjection] | type[HadamardProjection]
SHAPES = [(4, 6), (3, 5)]


def matrix(projected: GaussianProjection | HadamardProjection) -> np.ndarray:
    """P, one column after the other."""
    return np.stack([projected.lift(unit) for unit in np.eye(projected.size)], axis=1)


def project_outer(projected: LayerProjection, layer: int, back: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Pᵀ(g⊗a) for each example's g in `back` (B, out) and a in `inputs` (B, in): (B, k of the layer)."""
    outs, ins = projected._sides[layer]
    return (outs.down(back)[:, :, None] * ins.down(inputs)[:, None, :]).reshape(len(back), -1)


def project_layers(projected: LayerProjection, gradients: list[np.ndarray]) -> np.ndarray:
    """Pᵀ of one gradient, given as a matrix for each layer: (k,)."""
    pairs = zip(projected._sides, gradients, strict=True)
    return np.concatenate([outs.down(ins.down(gradient).T).T.ravel() for (outs, ins), gradient in pairs])


def spread(projected: LayerProjection, layer: int) -> float:
    """E‖PPᵀG‖²/‖G‖² for a gradient G of the layer: the product of its sides' spreads; 1 without loss."""
    return math.prod(map(Side.spread, projected.shapes[layer], projected.sides_of[layer]))


def layer_matrix(projected: LayerProjection) -> np.ndarray:
    columns = [[part.ravel() for part in projected.lift(unit)] for unit in np.eye(projected.size)]
    return np.stack([np.concatenate(column) for column in columns], axis=1)


def assert_mean_is_identity(products: list[np.ndarray]) -> None:
    """Every entry's mean within 5 of its own standard errors of the identity's."""
    error = np.mean(products, axis=0) - np.eye(len(products[0]))
    deviations = np.std(products, axis=0) / math.sqrt(len(products))
    assert (np.abs(error) <= 5 * deviations + 1e-6).all()


@VECTORS
@pytest.mark.parametrize(("dimension", "size"), [(12, 3), (16, 5)])
def test_a_projection_and_its_lift_are_the_identity_on_average(kind: Vectors, dimension: int, size: int) -> None:
    """False alarms: 1 in 5,000 for each case (up to 256 entries at 5 deviations)."""
    products = []
    for turn in range(1_000):
        columns = matrix(kind(dimension, size, 7, turn))
        products.append(columns @ columns.T)
    assert_mean_is_identity(products)


@pytest.mark.parametrize("size", [4, 11, 24])
@pytest.mark.long
def test_layers_projected_and_lifted_are_the_identity_on_average(size: int, runs: Callable[[int, int], int]) -> None:
    """False alarms: 1 in 1,000 for each case (1,521 entries at 5 deviations)."""
    products = []
    for turn in range(runs(400, 1_500)):
        columns = layer_matrix(LayerProjection(SHAPES, size, 7, turn))
        products.append(columns @ columns.T)
    assert_mean_is_identity(products)


@VECTORS
@given(dimension=st.integers(1, 700), seed=st.integers(0, 2**64 - 1), turn=st.integers(0, 2**64 - 1), data=st.data())
def test_projections_are_linear_and_adjoint_to_their_lifts(
    kind: Vectors, dimension: int, seed: int, turn: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, dimension))
    projected = kind(dimension, size, seed, turn)
    rng = np.random.default_rng(0)
    rows, weights, vector = rng.normal(size=(3, dimension)), rng.normal(size=3), rng.normal(size=size)
    images = projected.project(rows)
    assert images.shape == (3, size)
    np.testing.assert_allclose(projected.project((weights @ rows)[None])[0], weights @ images, atol=2e-4)
    np.testing.assert_allclose(images @ vector, rows @ projected.lift(vector), rtol=1e-4, atol=2e-3)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=4),
    seed=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_layers_are_projected_alike_as_outer_products_and_as_matrices(
    shapes: list[tuple[int, int]], seed: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(len(shapes), sum(math.prod(shape) for shape in shapes)))
    projected = LayerProjection(shapes, size, seed)
    assert projected.size <= size
    rng = np.random.default_rng(0)
    backs = [rng.normal(size=(5, outs)) for outs, _ in shapes]
    inputs = [rng.normal(size=(5, ins)) for _, ins in shapes]
    outer = [project_outer(projected, layer, backs[layer], inputs[layer]) for layer in range(len(shapes))]
    examples = np.concatenate(outer, axis=1)
    assert examples.shape == (5, projected.size)
    gradients = [back.T @ ins for back, ins in zip(backs, inputs, strict=True)]
    np.testing.assert_allclose(project_layers(projected, gradients), examples.sum(axis=0), atol=1e-9)
    vector = rng.normal(size=projected.size)
    lifted = projected.lift(vector)
    assert [part.shape for part in lifted] == shapes
    inner = sum((gradient * part).sum() for gradient, part in zip(gradients, lifted, strict=True))
    assert inner == pytest.approx(project_layers(projected, gradients) @ vector, abs=1e-7)


def test_each_example_is_clipped_after_its_projection() -> None:
    projected, rng = LayerProjection([(20, 30), (4, 21)], 40, 1), np.random.default_rng(0)
    backs = [rng.normal(size=(50, 20)), rng.normal(size=(50, 4))]
    inputs = [rng.normal(size=(50, 30)), rng.normal(size=(50, 21))]
    examples = np.concatenate([project_outer(projected, i, backs[i], inputs[i]) for i in range(2)], axis=1)
    clip = float(np.median(np.linalg.norm(examples, axis=1)))
    clipped = examples * np.minimum(1.0, clip / np.linalg.norm(examples, axis=1))[:, None]
    np.testing.assert_allclose(projected.clipped_sum(backs, inputs, clip), clipped.sum(axis=0), atol=1e-9)


@given(scale=st.floats(1e-3, 1e300), seed=st.integers(0, 1_000))
def test_one_example_moves_a_clipped_sum_by_no_more_than_the_clip(scale: float, seed: int) -> None:
    projected, rng = LayerProjection([(8, 9), (3, 9)], 12, seed), np.random.default_rng(seed)
    backs, inputs = [rng.normal(size=(4, 8)), rng.normal(size=(4, 3))], [rng.normal(size=(4, 9)) for _ in range(2)]
    backs[0][0] *= scale
    inputs[0][0] *= scale
    whole = projected.clipped_sum(backs, inputs, 0.5)
    without = projected.clipped_sum([back[1:] for back in backs], [rows[1:] for rows in inputs], 0.5)
    assert np.isfinite(whole).all()
    assert np.linalg.norm(whole - without) <= 0.5 * (1 + 1e-12)


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_an_example_beyond_floating_point_counts_nothing(wrong: float) -> None:
    projected, rng = LayerProjection([(8, 9)], 12, 0), np.random.default_rng(0)
    back, inputs = rng.normal(size=(4, 8)), rng.normal(size=(4, 9))
    back[0, 3] = wrong
    whole = projected.clipped_sum([back], [inputs], 0.5)
    np.testing.assert_allclose(whole, projected.clipped_sum([back[1:]], [inputs[1:]], 0.5))


@VECTORS
def test_seed_and_turn_alone_decide_about_the_matrix(kind: Vectors) -> None:
    assert (matrix(kind(40, 5, 1, 2)) == matrix(kind(40, 5, 1, 2))).all()
    matrices = [matrix(kind(40, 5, seed, turn)) for seed, turn in [(1, 2), (2, 2), (1, 3), (2, 1)]]
    for index, one in enumerate(matrices):
        assert all((one != other).any() for other in matrices[:index])


def test_seed_and_turn_alone_decide_about_the_matrices_of_layers() -> None:
    def made(seed: int, turn: int) -> np.ndarray:
        return layer_matrix(LayerProjection(SHAPES, 10, seed, turn))

    assert (made(1, 2) == made(1, 2)).all()
    matrices = [made(seed, turn) for seed, turn in [(1, 2), (2, 2), (1, 3), (2, 1)]]
    for index, one in enumerate(matrices):
        assert all((one != other).any() for other in matrices[:index])


def test_layers_of_the_same_shape_have_different_matrices() -> None:
    projected = LayerProjection([(6, 7), (6, 7)], 20, 1)
    first, second = projected.lift(np.ones(projected.size))
    assert (first != second).any()


def test_matrices_do_not_change_between_versions() -> None:
    """Parties with another release of numpy or of unspoken must make the same matrices."""
    gaussian = GaussianProjection(3, 2, 5, 6).project(np.eye(3))
    expected = [[1.39509678, 1.25871134], [-0.9889273, -0.40071896], [0.52470273, -0.39117396]]
    np.testing.assert_allclose(gaussian, expected, rtol=1e-5)
    signs = HadamardProjection(4, 3, 5, 6).project(np.eye(4)) * math.sqrt(3)
    np.testing.assert_allclose(signs, [[1, 1, 1], [1, 1, -1], [1, -1, -1], [1, -1, 1]])
    layers = LayerProjection([(3, 4)], 4, 5, 6)
    assert layers.sides_of == [(1, 4)]
    np.testing.assert_allclose(layers.lift(np.eye(4)[0])[0][:, 0], [1, 1, -1])


def test_blocks_of_a_gaussian_matrix_are_different_and_standard() -> None:
    """Kolmogorov–Smirnov on 10⁶ entries, and correlations of blocks; false alarms: 1 in 1,000."""
    entries = np.concatenate([block.ravel() for _, block in GaussianProjection(4_000, 250, 3)._blocks()])
    assert len(entries) == 1_000_000
    scaled = entries.astype(np.float64) * math.sqrt(250)
    assert stats.kstest(scaled, "norm").pvalue > 2e-4
    assert abs(scaled.mean()) < 4e-3
    assert abs(stats.kurtosis(scaled)) < 4 * math.sqrt(24 / 1e6)
    blocks = scaled[: len(scaled) // 50_000 * 50_000].reshape(-1, 50_000)
    correlations = np.corrcoef(blocks)[np.triu_indices(len(blocks), 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(50_000)


def test_gaussian_norms_are_those_of_a_chi_square() -> None:
    """‖Pᵀu‖²·k/‖u‖² against χ²_k, Kolmogorov–Smirnov; false alarms: 1 in 1,000."""
    vector = np.random.default_rng(0).normal(size=(1, 50))
    squares = [np.sum(GaussianProjection(50, 8, 1, turn).project(vector) ** 2) for turn in range(4_000)]
    assert stats.kstest(np.array(squares) * 8 / np.sum(vector**2), stats.chi2(8).cdf).pvalue > 1e-3


@VECTORS
def test_norms_concentrate_and_a_lifted_gradient_is_off_by_d_over_k(kind: Vectors) -> None:
    """E‖Pᵀu‖² = ‖u‖² with relative variance 2/k at most, E‖PPᵀu − u‖² = (d + 1)/k·‖u‖² (Gaussian) or (n/k − 1)·‖u‖²
    (Hadamard): means over 500 turns within 5 deviations; false alarms: 1 in 10⁵.
    """
    dimension, size, turns = 512, 32, 500
    vector = np.random.default_rng(1).normal(size=dimension)
    vector /= np.linalg.norm(vector)
    squares, errors = [], []
    for turn in range(turns):
        projected = kind(dimension, size, 2, turn)
        image = projected.project(vector[None])[0]
        squares.append(image @ image)
        errors.append(np.sum((projected.lift(image) - vector) ** 2))
    assert abs(np.mean(squares) - 1) < 5 * math.sqrt(2 / size / turns)
    assert np.var(squares) < 2 / size * (1 + 5 * math.sqrt(3 / turns))
    expected = (dimension + 1) / size if kind is GaussianProjection else dimension / size - 1
    assert abs(np.mean(errors) - expected) < 5 * np.std(errors) / math.sqrt(turns)


def test_hadamard_rows_are_orthogonal() -> None:
    columns = matrix(HadamardProjection(64, 20, 4))
    np.testing.assert_allclose(columns.T @ columns, np.eye(20) * 64 / 20, atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 64])
def test_the_transform_is_the_walsh_hadamard_matrix(length: int) -> None:
    vector = np.random.default_rng(0).normal(size=length)
    transformed = vector.copy()
    walsh_hadamard(transformed)
    np.testing.assert_allclose(transformed, hadamard(length) @ vector, atol=1e-12)


@pytest.mark.long
def test_norms_of_projected_layers_concentrate_and_the_spread_is_as_stated(runs: Callable[[int, int], int]) -> None:
    """Means over all turns within 5 deviations; false alarms: 1 in 10⁵."""
    rng, shapes = np.random.default_rng(1), [(30, 40), (3, 31)]
    gradients = [rng.normal(size=shape) for shape in shapes]
    back, inputs = rng.normal(size=(1, 30)), rng.normal(size=(1, 40))
    norms, spreads = [], []
    for turn in range(runs(1_000, 1_500)):
        projected = LayerProjection(shapes, 60, 5, turn)
        lifted = projected.lift(project_layers(projected, gradients))
        spreads.append([np.sum(part**2) / np.sum(full**2) for part, full in zip(lifted, gradients, strict=True)])
        norms.append(np.sum(project_outer(projected, 0, back, inputs) ** 2))
    expected = [spread(projected, layer) for layer in range(2)]
    deviations = np.std(spreads, axis=0) / math.sqrt(len(spreads))
    assert (np.abs(np.mean(spreads, axis=0) - expected) < 5 * deviations + 1e-12).all()
    relative = np.array(norms) / (np.sum(back**2) * np.sum(inputs**2))
    outs, ins = projected.sides_of[0]
    variance = (1 + 2 / outs) * (1 + 2 / ins) - 1
    assert abs(relative.mean() - 1) < 5 * math.sqrt(variance / len(norms))
    assert relative.var() < variance * 1.3


def test_every_weight_gets_noise_of_the_deviation_that_was_added() -> None:
    rows = np.linalg.norm(layer_matrix(LayerProjection([(30, 40), (3, 31)], 60, 5)), axis=1)
    np.testing.assert_allclose(rows, 1.0)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=5),
    fraction=st.floats(0.0, 1.0),
)
def test_layers_share_the_numbers_by_the_root_of_their_weights(shapes: list[tuple[int, int]], fraction: float) -> None:
    weights = np.array([math.prod(shape) for shape in shapes])
    size = int(len(shapes) + fraction * (weights.sum() - len(shapes)))
    shares = np.array(random_projection._shares(shapes, size))
    assert size - len(shapes) < shares.sum() <= size
    assert ((shares >= 1) & (shares <= weights)).all()
    inside = (shares > 1) & (shares < weights)
    factors = shares[inside] / np.sqrt(weights[inside])
    if len(factors):
        assert factors.max() - factors.min() <= (1 / np.sqrt(weights[inside])).max() + 1e-9


def test_all_numbers_for_all_weights_lose_nothing() -> None:
    projected = LayerProjection(SHAPES, 39, 1)
    assert (projected.size, spread(projected, 0), spread(projected, 1)) == (39, 1.0, 1.0)
    gradients = [np.random.default_rng(0).normal(size=shape) for shape in SHAPES]
    for lifted, gradient in zip(projected.lift(project_layers(projected, gradients)), gradients, strict=True):
        assert (lifted == gradient).all()


def test_a_layer_is_cut_where_it_loses_least() -> None:
    best = min(
        Side.loss(7, outs) * Side.loss(9, ins) for outs in range(1, 8) for ins in range(1, 10) if outs * ins <= 20
    )
    outs, ins = random_projection._sides((7, 9), 20)
    assert Side.loss(7, outs) * Side.loss(9, ins) == best
    # To mix ten outputs into one number would be hardly worse on average, but clip most of what is long.
    assert random_projection._sides((10, 1281), 32) == (10, 3)
    assert random_projection._sides((10, 1281), 8192) == (10, 819)


@pytest.mark.parametrize("size", [1, 3, 12])
def test_lengths_are_as_uneven_as_a_side_s_loss_says(size: int) -> None:
    """The fourth moment over many vectors and matrices, known to about 5 %."""
    vectors = np.random.default_rng(0).normal(size=(2_000, 60))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    squares = [
        (Side.make(60, size, random_projection._words(1, turn, 9)).down(vectors) ** 2).sum(axis=1) for turn in range(40)
    ]
    found = (np.concatenate(squares) ** 2).mean()
    assert found == pytest.approx(Side.loss(60, size) / Side.spread(60, size), rel=0.1)


def test_the_projected_bound_holds_and_is_tight() -> None:
    """The number of projections beyond the bound is binomial with δ'; false alarms: 1 in 10,000 for each case."""
    clip, dimension = 2.5, 400
    vector = np.random.default_rng(0).normal(size=(1, dimension))
    vector *= clip / np.linalg.norm(vector)
    # Columns are independent, so that each group of k of them is one projection.
    images = [GaussianProjection(dimension, dimension, 9, turn).project(vector)[0] for turn in range(500)]
    for size, delta in ((3, 1e-3), (3, 1e-2), (20, 1e-2)):
        pool = np.concatenate(images) * math.sqrt(dimension / size)
        norms = np.linalg.norm(pool[: len(pool) // size * size].reshape(-1, size), axis=1)
        beyond = int((norms > projected_bound(clip, size, delta)).sum())
        assert beyond > 20
        assert stats.binomtest(beyond, len(norms), delta).pvalue > 1e-4


@given(clip=st.floats(1e-3, 1e3), size=st.integers(1, 10_000), delta=st.floats(1e-12, 0.5))
def test_the_projected_bound_is_the_smallest(clip: float, size: int, delta: float) -> None:
    bound = projected_bound(clip, size, delta)
    tail = stats.gamma(size / 2, scale=2 * clip**2 / size)
    assert tail.sf(bound**2) == pytest.approx(delta, rel=1e-6)
    assert tail.sf((bound * (1 - 1e-3)) ** 2) > delta


def test_a_million_weights_need_no_large_memory() -> None:
    """The matrices would have 80 MB (d = 10⁶, k = 10) and 8 GB (k = 1,000)."""
    dimension = 1_000_000
    vector = np.random.default_rng(0).normal(size=(1, dimension))
    assert peak(lambda: GaussianProjection(dimension, 10, 1).project(vector)) < 15e6
    assert peak(lambda: GaussianProjection(dimension, 10, 1).lift(np.ones(10))) < 15e6 + 8 * dimension
    assert peak(lambda: HadamardProjection(dimension, 1_000, 1).project(vector)) < 40e6
    assert peak(lambda: HadamardProjection(dimension, 1_000, 1).lift(np.ones(1_000))) < 50e6
    wide = LayerProjection([(1_000, 1_000)], 1_000, 1)
    rows = np.ones((64, 1_000))
    assert peak(lambda: wide.clipped_sum([rows], [rows], 1.0)) < 1e6


def peak(run: Callable[[], object]) -> int:
    """The most memory, in bytes, that a call has at a time once its code is compiled."""
    run()
    tracemalloc.start()
    run()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("kind", [GaussianProjection, HadamardProjection])
@pytest.mark.parametrize("size", [0, 11])
def test_a_size_beyond_the_dimension_is_refused(kind: Vectors, size: int) -> None:
    with pytest.raises(ValueError, match="1 <= size <= 10"):
        kind(10, size, 0)


@pytest.mark.parametrize("size", [1, 40])
def test_layers_need_a_number_each_and_no_more_than_their_weights(size: int) -> None:
    with pytest.raises(ValueError, match="2 <= size <= 39"):
        LayerProjection(SHAPES, size, 0)


@pytest.mark.parametrize(("seed", "turn"), [(-1, 0), (2**64, 0), (0, -1)])
def test_seeds_and_turns_are_words(seed: int, turn: int) -> None:
    with pytest.raises(ValueError, match=r"2\*\*64"):
        LayerProjection(SHAPES, 10, seed, turn)
