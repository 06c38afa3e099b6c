"""Quantiles of sketches are those of the values within the stated error, also after merging."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.history.sketches import RANK_ERROR, K, UnknownSketch, encode, merged, quantiles, share_below
from tests.monitoring.history.percentiles import near, nth

VALUES = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 1000), min_size=1, max_size=K)
# The time to generate values depends on the machine.
LOADED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ASKED = (0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)


def sketch(values: list[int]) -> bytes:
    return encode(np.array(values, np.int64))


@LOADED
@given(VALUES)
def test_quantiles_of_few_values_are_exact(values):
    found = quantiles(merged([sketch(values)]), ASKED)
    assert found == [pytest.approx(nth(sorted(values), share), rel=1e-7) for share in ASKED]


@LOADED
@given(st.lists(VALUES, max_size=5))
def test_a_merged_sketch_has_all_values(several):
    together = merged(map(sketch, several))
    assert together.n == sum(map(len, several))
    if several:
        values = sorted(value for values in several for value in values)
        assert (together.get_min_value(), together.get_max_value()) == pytest.approx((values[0], values[-1]))


def test_quantiles_of_many_merged_sketches_are_within_the_error():
    dice = random.Random(7)
    several = [[round(dice.lognormvariate(8, 2)) for _ in range(dice.randrange(2000))] for _ in range(60)]
    ordered = sorted(value for values in several for value in values)
    found = quantiles(merged(map(sketch, several)), ASKED)
    assert found == [near(ordered, share) for share in ASKED]


WHOLE = sketch(list(range(1000)))


@pytest.mark.parametrize("wrong", [b"abc", b"\xff" * 40, WHOLE[:-1], WHOLE + b"x", WHOLE[:2] + b"\x01" + WHOLE[3:]])
def test_bytes_that_are_not_a_sketch_are_refused(wrong):
    with pytest.raises(UnknownSketch, match=f"{len(wrong)} bytes are not a sketch"):
        merged([sketch([1]), wrong])


def test_an_empty_sketch_has_no_quantiles():
    assert sketch([]) == b""
    assert quantiles(merged([b"", b""]), [0.5]) == [None]


@LOADED
@given(VALUES, st.integers(0, 1000))
def test_the_share_below_a_limit_is_exact_for_few_values(values, limit):
    below = sum(np.float32(value) < limit for value in values)
    assert share_below(merged([sketch(values)]), limit) == pytest.approx(below / len(values))


def test_the_share_below_a_limit_is_within_the_error_for_many_values():
    values = list(range(50_000))
    random.Random(3).shuffle(values)
    assert share_below(merged([sketch(values)]), 49_500) == pytest.approx(0.99, abs=RANK_ERROR)


def test_an_empty_sketch_has_no_share():
    assert share_below(merged([b""]), 5) is None
