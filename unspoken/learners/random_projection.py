"""Random projections of gradients from d to k dimensions by a public seed, so that a secure sum carries k numbers.

Algorithm 3 of "Differentially private cross-silo federated learning" (Section 3.5): parties send Pᵀz, and P times the
noisy sum is an unbiased gradient, as E[PPᵀ] = I. But its error E‖PPᵀu − u‖² is about (d/k)·‖u‖², so steps must be
smaller than without projection, by up to that factor. A new matrix is drawn for each turn, from the public seed and
never from data, and is never held as a whole.

Choice. `LayerProjection` is for networks of linear layers: it projects each example's gradient from its factors, and
clipping follows. `HadamardProjection` is for gradients given as vectors; clipping follows too. `GaussianProjection` is
the paper's, with a bound for gradients that were clipped before (`projected_bound`); a call costs d·k random numbers.

All parties must draw the same matrix. So only Philox's raw words are used, which numpy keeps stable, and not the
samplers of `numpy.random.Generator`, which may change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammainccinv

from unspoken.arithmetic import sum_of_products
from unspoken.compiling import compiled
from unspoken.types import Floats, Integers, Words

_BLOCK = 1 << 18
"""The number of entries of a Gaussian matrix that are held at a time"""
_GAUSSIAN, _SIGNS, _ROWS, _LAYERS = range(4)
"""Uses of random words; each has a stream of its own."""


def projected_bound(clip: float, size: int, delta: float) -> float:
    """The smallest C̃ with P[Γ(shape k/2, scale 2C²/k) > C̃²] ≤ δ' (Theorem 2): ‖Pᵀz‖ exceeds it with probability δ'.

    For a fixed vector of norm C and Gaussian P. It costs δ' in every turn, so T·δ' in total, where the paper counts it
    once. It holds only if P is independent of z: a new P for each turn, drawn after the model at which z is the
    gradient. Clipping each example after the projection needs none of this.

    >>> round(projected_bound(1.0, 1000, 1e-6), 4)
    1.1078
    """
    return clip * math.sqrt(2.0 / size * float(gammainccinv(size / 2, delta)))


@dataclass(frozen=True)
class _Projection:
    """The sizes d and k of a projection, and the public seed and turn that it is drawn from."""

    dimension: int
    size: int
    seed: int
    turn: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.dimension:
            raise ValueError(f"Expected 1 <= size <= {self.dimension}, got size={self.size}.")


@dataclass(frozen=True)
class GaussianProjection(_Projection):
    """P of independent N(0, 1/k) entries, made in blocks of rows: ‖Pᵀu‖² is ‖u‖²·χ²_k/k.

    Entries have single precision and at most 6.8 standard deviations.
    """

    def project(self, vectors: Floats) -> Floats:
        """Pᵀ of each row: (B, d) to (B, k)."""
        projected = np.zeros((len(vectors), self.size))
        for start, block in self._blocks():
            projected += vectors[:, start : start + len(block)] @ block.astype(np.float64)
        return projected

    def lift(self, vector: Floats) -> Floats:
        """P·v: (k,) to (d,)."""
        lifted, narrow = np.empty(self.dimension), vector.astype(np.float32)
        for start, block in self._blocks():
            lifted[start : start + len(block)] = block @ narrow
        return lifted

    def _blocks(self) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """Blocks of rows of P, each with the index of its first row."""
        rows = max(1, _BLOCK // self.size)
        for number, start in enumerate(range(0, self.dimension, rows)):
            count = min(rows, self.dimension - start)
            entries = _normals(count * self.size, _words(self.seed, self.turn, _GAUSSIAN, number))
            yield start, entries.reshape(count, self.size) * np.float32(self.size**-0.5)


@dataclass(frozen=True)
class HadamardProjection(_Projection):
    """Pᵀ = (1/√k)·S·H·D: random signs D, the Walsh–Hadamard matrix H of n ≥ d rows, and k of its rows by S.

    Costs n·log n instead of d·k. The k rows are different ones, so PᵀP = (n/k)·I: ‖Pᵀu‖² is ‖u‖² on average and never
    more than (n/k)·‖u‖². That bound is too loose to rely on: clip each example after its projection.
    """

    def project(self, vectors: Floats) -> Floats:
        """Pᵀ of each row: (B, d) to (B, k)."""
        projected, padded = np.empty((len(vectors), self.size)), np.empty(self._padded)
        for vector, target in zip(vectors, projected, strict=True):
            np.multiply(vector, self._signs, out=padded[: self.dimension])
            padded[self.dimension :] = 0.0
            walsh_hadamard(padded)
            np.multiply(padded[self._rows], self.size**-0.5, out=target)
        return projected

    def lift(self, vector: Floats) -> Floats:
        """P·v: (k,) to (d,)."""
        padded = np.zeros(self._padded)
        padded[self._rows] = vector * self.size**-0.5
        walsh_hadamard(padded)
        lifted: Floats = padded[: self.dimension] * self._signs
        return lifted

    @property
    def _padded(self) -> int:
        return 1 << (self.dimension - 1).bit_length()

    @cached_property
    def _signs(self) -> npt.NDArray[np.int8]:
        return _random_signs(self.dimension, _words(self.seed, self.turn, _SIGNS))

    @cached_property
    def _rows(self) -> Integers:
        words = _words(self.seed, self.turn, _ROWS).random_raw(self._padded)
        return np.sort(np.argpartition(words, self.size - 1)[: self.size])


@dataclass(frozen=True)
class Side:
    """One factor of a layer's projection, for its outputs or its inputs: ±1/√k, or the identity if k = d."""

    matrix: Floats | None

    @classmethod
    def make(cls, dimension: int, size: int, words: np.random.Philox) -> Side:
        if size == dimension:
            return cls(None)
        signs = _random_signs(dimension * size, words).reshape(dimension, size)
        return cls(signs * size**-0.5)

    @staticmethod
    def spread(dimension: int, size: int) -> float:
        """E‖MMᵀu‖²/‖u‖² of such a factor M: (d + k − 1)/k, or 1 for the identity."""
        return 1.0 if size == dimension else (dimension + size - 1) / size

    @classmethod
    def loss(cls, dimension: int, size: int) -> float:
        """The spread times E‖Mᵀu‖⁴/‖u‖⁴ ≈ 1 + 2/k, since uneven lengths lose more in clipping."""
        return cls.spread(dimension, size) * (1.0 if size == dimension else 1.0 + 2.0 / size)

    def down(self, rows: Floats) -> Floats:
        return rows if self.matrix is None else rows @ self.matrix

    def up(self, rows: Floats) -> Floats:
        return rows if self.matrix is None else rows @ self.matrix.T


class LayerProjection:
    """A projection for networks of linear layers, whose per-example gradients are outer products g⊗a.

    Each layer has P = P_g ⊗ P_a with small sign matrices, so Pᵀ(g⊗a) = (P_gᵀg)⊗(P_aᵀa) costs k₁·out + k₂·in and no
    gradient of the layer is ever formed. E[PPᵀ] = I, and every row of P has norm 1, so noise of deviation σ is lifted
    to noise of deviation σ in each weight. There is no tail bound: clip each example after its projection.

    Layers get numbers in proportion to the square root of their weights: this minimises Σ d_l/k_l, the error of the
    lifted gradient if all layers are equally important. Within a layer k₁·k₂ ≤ k_l (see `_sides`), so a few of the k
    may stay unused: `size` is the number used.
    """

    def __init__(self, shapes: Sequence[tuple[int, int]], size: int, seed: int, turn: int = 0) -> None:
        self.shapes = tuple(shapes)
        self.sides_of = [
            _sides(shape, share) for shape, share in zip(self.shapes, _shares(self.shapes, size), strict=True)
        ]
        self.sizes = [outs * ins for outs, ins in self.sides_of]
        self.size = sum(self.sizes)
        self._sides = [
            tuple(
                Side.make(dimension, kept, _words(seed, turn, _LAYERS, 2 * layer + side))
                for side, (dimension, kept) in enumerate(zip(shape, sizes, strict=True))
            )
            for layer, (shape, sizes) in enumerate(zip(self.shapes, self.sides_of, strict=True))
        ]

    def clipped_sum(self, backs: Sequence[Floats], inputs: Sequence[Floats], clip: float) -> Floats:
        """Σ of the examples' projected gradients over all layers, each clipped to the norm `clip`: (k,).

        The norm of an outer product is the product of the norms, so no example's projection is held. An example whose
        gradient is not finite contributes nothing.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            factors = [self._factors(layer, *pair) for layer, pair in enumerate(zip(backs, inputs, strict=True))]
            squared: Floats = np.sum([_squared(back) * _squared(ins) for back, ins in factors], axis=0)
        kept = np.isfinite(squared)
        weights = clip / np.maximum(np.sqrt(squared[kept]), clip)
        return np.concatenate(
            [sum_of_products(back[kept] * weights[:, None], ins[kept]).ravel() for back, ins in factors]
        )

    def lift(self, vector: Floats) -> list[Floats]:
        """P·v as a matrix for each layer."""
        parts = np.split(vector, np.cumsum(self.sizes)[:-1])
        return [
            outs.up(ins.up(part.reshape(sizes)).T).T
            for (outs, ins), part, sizes in zip(self._sides, parts, self.sides_of, strict=True)
        ]

    def _factors(self, layer: int, back: Floats, inputs: Floats) -> tuple[Floats, Floats]:
        outs, ins = self._sides[layer]
        return outs.down(back), ins.down(inputs)


def _shares(shapes: Sequence[tuple[int, int]], size: int) -> list[int]:
    """The layers' shares of k numbers: proportional to √d_l, at least 1 and at most the layer's weights."""
    weights = np.array([math.prod(shape) for shape in shapes])
    if not len(shapes) <= size <= weights.sum():
        raise ValueError(f"Expected {len(shapes)} <= size <= {weights.sum()}, got size={size}.")
    roots, low, high = np.sqrt(weights), 0.0, float(weights.max())
    # The common factor, by bisection: the total grows with it.
    for _ in range(100):
        factor = (low + high) / 2
        if _rounded(roots * factor, weights).sum() > size:
            high = factor
        else:
            low = factor
    shares: list[int] = _rounded(roots * low, weights).tolist()
    return shares


def _rounded(wanted: Floats, weights: Integers) -> Integers:
    return np.clip(np.floor(wanted), 1, weights).astype(np.int64)


@lru_cache(maxsize=256)
def _sides(shape: tuple[int, int], share: int) -> tuple[int, int]:
    """The k₁ and k₂ with k₁·k₂ ≤ share that minimise the loss of both sides."""
    choices = [(kept, min(shape[1], share // kept)) for kept in range(1, min(shape[0], share) + 1)]
    return min(choices, key=lambda sizes: math.prod(map(Side.loss, shape, sizes)))


@compiled
def walsh_hadamard(vector: Floats) -> None:
    """H·v in place, for a length that is a power of two; H has entries ±1, so H·H·v is n·v."""
    half = 1
    while half < vector.size:
        for start in range(0, vector.size, 2 * half):
            for index in range(start, start + half):
                one, other = vector[index], vector[index + half]
                vector[index], vector[index + half] = one + other, one - other
        half *= 2


def _words(seed: int, turn: int, use: int, number: int = 0) -> np.random.Philox:
    """A stream of public 64-bit words; streams of different arguments do not overlap."""
    for name, value in (("seed", seed), ("turn", turn)):
        if not 0 <= value < 2**64:
            raise ValueError(f"Expected 0 <= {name} < 2**64, got {name}={value}.")
    key, counter = np.array([seed, turn], dtype=np.uint64), np.array([0, 0, number, use], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter)


def _random_signs(count: int, words: np.random.Philox) -> npt.NDArray[np.int8]:
    """±1, one a bit."""
    raw: Words = words.random_raw((count + 63) // 64)
    bits = np.unpackbits(raw.astype("<u8").view(np.uint8), count=count)
    return (2 * bits.view(np.int8) - 1).astype(np.int8, copy=False)


def _normals(count: int, words: np.random.Philox) -> npt.NDArray[np.float32]:
    """Standard normals in pairs (Box–Muller): √(−2·ln u)·(cos 2πv, sin 2πv), each of u and v from 32 bits."""
    pairs = (count + 1) // 2
    halves = words.random_raw(pairs).astype("<u8", copy=False).view("<u4")
    radius, angle = halves[:pairs].astype(np.float32), halves[pairs:].astype(np.float32)
    radius = np.sqrt(np.float32(-2.0) * np.log((radius + np.float32(0.5)) * np.float32(2.0**-32)))
    angle *= np.float32(2.0 * math.pi * 2.0**-32)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def _squared(rows: Floats) -> Floats:
    squared: Floats = np.einsum("ij,ij->i", rows, rows)
    return squared
