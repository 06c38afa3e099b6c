"""Quantiles of sketches are those of the values, within the stated error; merging is exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.history.pipeline.sketch import (
    RELATIVE_ERROR,
    UnknownSketch,
    encode,
    encode_counts,
    merged,
    quantiles,
    ranges_of,
)

VALUES = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 1000), min_size=1, max_size=300)
ASKED = (0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


def sketch(values: list[int]) -> bytes:
    numbers = np.array(values, np.int64)
    return encode(np.zeros(len(values), np.int64), ranges_of(numbers), 1)[1]


@given(VALUES)
def test_each_quantile_is_within_the_error_of_percentile_disc(values):
    ordered = sorted(values)
    for q, told in zip(ASKED, quantiles(merged([sketch(values)]), ASKED), strict=True):
        true = ordered[max(1, int(np.ceil(q * len(ordered) - 1e-9))) - 1]
        assert told == pytest.approx(true, rel=RELATIVE_ERROR * 1.0001, abs=0)


@given(st.lists(VALUES, max_size=5))
def test_merged_sketches_are_the_sketch_of_all_values(several):
    together = [value for values in several for value in values]
    counts = merged([sketch(values) for values in several])
    assert encode_counts(counts) == (sketch(together) if together else b"")
    assert counts.sum() == len(together)


def test_a_count_that_is_too_large_for_a_pair_takes_several():
    many = sketch([7] * 200_000)
    assert len(many) == 4 * 4
    assert merged([many, many]).sum() == 400_000


def test_groups_are_kept_apart():
    groups, values = np.array([2, 0, 2, 0]), np.array([5, 6, 500, 6], np.int64)
    offsets, body = encode(groups, ranges_of(values), 4)
    parts = [body[begin:end] for begin, end in itertools.pairwise(offsets)]
    assert parts == [sketch([6, 6]), b"", sketch([5, 500]), b""]


@pytest.mark.parametrize("wrong", [b"abc", b"\xff\xff\x01\x00"])
def test_what_is_no_sketch_is_named(wrong):
    with pytest.raises(UnknownSketch, match="version 1"):
        merged([wrong])


def test_nothing_has_no_quantiles():
    assert quantiles(merged([]), [0.5]) == [None]
