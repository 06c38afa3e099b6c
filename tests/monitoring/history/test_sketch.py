"""Quantiles of sketches equal those of the values within the stated error. Merging is exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.history.pipeline.sketch import (
    RELATIVE_ERROR,
    UnknownSketch,
    encode,
    encode_counts,
    encode_sums,
    merged,
    merged_each,
    quantiles,
    ranges_of,
)
from tests.monitoring.history.conftest import as_pairs

VALUES = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 1000), min_size=1, max_size=300)
# The time to generate values depends on the machine.
LOADED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ASKED = (0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


def sketch(values: list[int]) -> bytes:
    numbers = np.array(values, np.int64)
    return encode(np.zeros(len(values), np.int64), ranges_of(numbers), 1)[1]


@LOADED
@given(VALUES)
def test_each_quantile_is_within_the_error_of_percentile_disc(values):
    ordered = sorted(values)
    for q, told in zip(ASKED, quantiles(merged([sketch(values)]), ASKED), strict=True):
        true = ordered[max(1, int(np.ceil(q * len(ordered) - 1e-9))) - 1]
        assert told == pytest.approx(true, rel=RELATIVE_ERROR * 1.0001, abs=0)


@LOADED
@given(st.lists(VALUES, max_size=5))
def test_merged_sketches_are_the_sketch_of_all_values(several):
    together = [value for values in several for value in values]
    counts = merged([sketch(values) for values in several])
    assert encode_counts(counts) == (sketch(together) if together else b"")
    assert counts.sum() == len(together)


def test_a_count_of_any_size_takes_its_bits_only():
    many = sketch([7] * 200_000)
    assert len(many) == 4 + 3  # the header, 17 bits and an end bit
    assert merged([many, many]).sum() == 400_000


@LOADED
@given(st.lists(VALUES, max_size=5))
def test_sums_by_group_are_the_sketches_of_each_group(several):
    sketches = [sketch(values) for values in several]
    groups = np.array([n % 2 for n in range(len(several))], np.int64)
    offsets, body = encode_sums(sketches, [2] * len(several), groups, 2)
    parts = [body[begin:end] for begin, end in itertools.pairwise(offsets)]
    assert parts == [encode_counts(merged(sketches[which::2])) for which in (0, 1)]


@LOADED
@given(st.lists(st.lists(VALUES, max_size=3), max_size=3))
def test_groups_decoded_in_one_go_are_each_as_alone(groups):
    sketches = [[sketch(values) for values in group] for group in groups]
    together = merged_each(sketches, [[2] * len(group) for group in sketches])
    assert [list(each) for each in together] == [list(merged(group)) for group in sketches]


@LOADED
@given(VALUES, VALUES)
def test_what_an_older_waymark_stored_is_read_and_summed_with_what_is_stored_now(older, newer):
    pairs = as_pairs(merged([sketch(older)]))
    together = merged([pairs, sketch(newer)], [1, 2])
    assert encode_counts(together) == sketch(older + newer)


def test_groups_are_kept_apart():
    groups, values = np.array([2, 0, 2, 0]), np.array([5, 6, 500, 6], np.int64)
    offsets, body = encode(groups, ranges_of(values), 4)
    parts = [body[begin:end] for begin, end in itertools.pairwise(offsets)]
    assert parts == [sketch([6, 6]), b"", sketch([5, 500]), b""]


WHOLE = sketch([5, 500, 500, 7000])


@pytest.mark.parametrize(
    ("version", "wrong"),
    [
        (1, b"abc"),
        (1, b"\xff\xff\x01\x00"),
        (2, b"abc"),
        (2, b"\xff\x07\xff\xff"),
        (2, WHOLE[:-1]),
        (2, WHOLE + b"\xff"),
        (2, b"\x00\x00\x00\x00\x01"),
        (2, b"\xff\x03\x02\x00\x05"),  # an empty first range
        (2, b"\xff\x07\x02\x00\x0a"),  # a count beyond the last range
        (3, WHOLE),
    ],
)
def test_what_is_no_sketch_is_named(version, wrong):
    with pytest.raises(UnknownSketch, match=f"version {version}"):
        merged([wrong], [version])


def test_nothing_has_no_quantiles():
    assert quantiles(merged([]), [0.5]) == [None]
