"""A federation hands out every party once, with exactly its records, in blocks."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import maker
from unspoken.data import federation
from unspoken.data.bounding import clip_rows, scale_labels
from unspoken.data.federation import ArrayFederation
from unspoken.data.files import DataError, Records
from unspoken.study import Study

CLASSES = {"features": 3, "classes": 4, "intercept": True}


study = maker(data=CLASSES)


def records_of(sizes: list[int], seed: int = 0) -> tuple[Records, np.ndarray]:
    """Distinct records of parties of these sizes, in random order."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return Records(rng.normal(size=(len(groups), 3)), rng.integers(4, size=len(groups))), groups


@given(
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=20), block_bytes=st.sampled_from([1, 500, 2000, 1 << 24])
)
def test_blocks_cover_each_party_once_with_exactly_its_records(sizes: list[int], block_bytes: int) -> None:
    records, groups = records_of(sizes)
    agreed = study(parties=len(sizes))
    bounded = clip_rows(records.features, agreed.data)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(federation, "BLOCK_BYTES", block_bytes)
        for parties, block in ArrayFederation(agreed, records, groups).blocks():
            assert len(parties) == len(block)
            assert block.features.shape == (*block.labels.shape, 4)
            assert len(block) == 1 or block.features.nbytes <= block_bytes
            for at, party in enumerate(parties):
                rows = groups == party
                count = block.counts[at]
                assert count == sizes[party] == rows.sum()
                np.testing.assert_array_equal(block.features[at, :count], bounded[rows])
                np.testing.assert_array_equal(block.labels[at, :count], records.labels[rows])
                assert not block.features[at, count:].any()
                assert not block.record_weights()[at, count:].any()
            np.testing.assert_allclose(block.record_weights().sum(axis=1), 1.0)
            seen += parties.tolist()
    assert sorted(seen) == list(range(len(sizes)))


@pytest.mark.parametrize("sizes", [[3, 3], [1, 4, 2]])
def test_a_regression_s_labels_are_clipped_and_scaled_and_padded_with_0(sizes: list[int]) -> None:
    records, groups = records_of(sizes)
    records = Records(records.features, np.linspace(-50.0, 200.0, len(groups)))
    agreed = study(parties=len(sizes), task="regression", data={"features": 3, "label_bounds": [10, 110]})
    for parties, block in ArrayFederation(agreed, records, groups).blocks():
        assert block.labels.dtype == np.float64
        assert np.abs(block.labels).max() <= 1.0
        for at, party in enumerate(parties):
            mine = groups == party
            scaled = scale_labels(records.labels[mine], agreed.data)
            # A record that is clipped takes its label along.
            lengths = np.linalg.norm(records.features[mine], axis=1)
            np.testing.assert_allclose(block.labels[at, : block.counts[at]], scaled / np.maximum(lengths, 1.0))
            assert not block.labels[at, block.counts[at] :].any()


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_labels_of_a_regression_are_scaled_in_full_precision_whatever_their_type(kind: Any) -> None:
    records = Records(np.zeros((2, 3)), np.array([10, 60], dtype=kind))
    agreed = study(parties=2, task="regression", data={"features": 3, "label_bounds": [10, 110]})
    blocks = [block for _, block in ArrayFederation(agreed, records, np.array([0, 1])).blocks()]
    assert all(block.labels.dtype == np.float64 for block in blocks)
    assert sorted(np.concatenate([block.labels.ravel() for block in blocks]).tolist()) == [-1.0, 0.0]


def test_statistics_have_labels_of_0() -> None:
    records, groups = records_of([1, 4, 2])
    agreed = study(parties=3, task="statistics", data={"features": 3})
    nothing = Records(records.features, np.zeros(7, dtype=np.int64))
    for _, block in ArrayFederation(agreed, nothing, groups).blocks():
        assert block.labels.dtype == np.int64
        assert not block.labels.any()
        assert block.features.shape[2] == 3


@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=12))
def test_a_block_falls_into_parts_of_equal_size_that_cover_it(sizes: list[int]) -> None:
    records, groups = records_of(sizes)
    for _, block in ArrayFederation(study(parties=len(sizes)), records, groups).blocks():
        seen = []
        for positions, part in block.by_size():
            count = part.features.shape[1]
            assert (part.counts == count).all()
            np.testing.assert_array_equal(part.features, block.features[positions, :count])
            np.testing.assert_array_equal(part.labels, block.labels[positions, :count])
            seen += positions.tolist()
        assert sorted(seen) == list(range(len(block)))


def test_parties_of_like_size_share_a_block_so_that_little_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    records, groups = records_of([1, 50] * 10)
    monkeypatch.setattr(federation, "BLOCK_BYTES", 10 * 50 * 4 * 8)
    blocks = list(ArrayFederation(study(parties=20), records, groups).blocks())
    assert [(block.features.shape, sum(block.counts)) for _, block in blocks] == [((10, 50, 4), 500), ((10, 1, 4), 10)]


def test_a_party_on_its_own_is_not_told_to_have_fewer_parties() -> None:
    agreed = study(parties={"count": 3, "records": 4})
    said = "this party has 1 record, but the study's [parties] asks for at least 4; lower records in the study."
    with pytest.raises(DataError, match=f"^{re.escape(said)}$"):
        federation.check_count(agreed, 1)


@pytest.mark.parametrize(
    ("sizes", "agreed", "expected"),
    [
        (
            [5, 2, 5],
            study(parties={"count": 3, "records": 4}),
            "party 1 has 2 records, but the study's [parties] asks for at least 4; use fewer",
        ),
        (
            [5, 5, 0],
            study(parties=3),
            "party 2 has 0 records, but the study's [parties] asks for at least 1; use fewer parties",
        ),
        (
            [5, 9, 5],
            study(parties={"count": 3, "max_records": 8}),
            "party 1 has 9 records, above the study's [parties] max_records = 8; raise",
        ),
        ([5, 5, 5], study(parties=2), "the records belong to 3 parties, but the study has count = 2."),
    ],
)
def test_parties_that_do_not_fit_the_study_are_refused_by_their_number(
    sizes: list[int], agreed: Study, expected: str
) -> None:
    records, groups = records_of(sizes)
    with pytest.raises(DataError, match="^" + re.escape(expected)):
        ArrayFederation(agreed, records, groups)


def test_every_record_needs_a_party() -> None:
    records, groups = records_of([3, 3])
    with pytest.raises(DataError, match=r"^there are 6 records but 5 groups; give one party for each record\.$"):
        ArrayFederation(study(parties=2), records, groups[:-1])
