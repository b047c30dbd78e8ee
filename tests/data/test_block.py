"""A block of parties: padding weighs nothing, and parties of one size come together."""

from __future__ import annotations

import numpy as np

from unspoken.data.block import Block


def block(*counts: int) -> Block:
    features = np.arange(len(counts) * 4 * 2, dtype=float).reshape(len(counts), 4, 2)
    return Block(features, np.arange(len(counts) * 4).reshape(len(counts), 4), np.array(counts))


def test_each_party_s_records_weigh_one_together_and_padding_nothing() -> None:
    weights = block(4, 1, 3).record_weights()
    assert np.allclose(weights.sum(axis=1), 1.0)
    assert (weights > 0.0).sum(axis=1).tolist() == [4, 1, 3]
    assert weights[1].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_parties_of_one_size_come_together_with_their_own_records() -> None:
    whole = block(3, 1, 3)
    found = {len(part.labels[0]): (positions.tolist(), part) for positions, part in whole.by_size()}
    assert {count: positions for count, (positions, _) in found.items()} == {1: [1], 3: [0, 2]}
    three = found[3][1]
    assert np.array_equal(three.features, whole.features[[0, 2], :3])
    assert np.array_equal(three.labels, whole.labels[[0, 2], :3])
    ((positions, alone),) = block(2, 2).by_size()
    assert (positions.tolist(), alone.features.shape) == ([0, 1], (2, 2, 2))
