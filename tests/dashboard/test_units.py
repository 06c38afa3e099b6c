from __future__ import annotations

from datetime import timedelta

import pytest

from dashboard.units import age_text, bytes_text, duration_text, span_text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (12, "12ms"),
        (3_045, "3s 45ms"),
        (123_004, "2m 3s 4ms"),
        (3_723_000, "1h 2m 3s"),
        (183_845_000, "2d 3h 4m 5s"),
        (-1, "–"),
        (None, "–"),
    ],
)
def test_durations_read_as_in_flink(milliseconds: int | None, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KB"),
        (83_251, "81.3 KB"),
        (205_824, "201 KB"),
        (1_048_063, "1.00 MB"),
        (2_587_717_304, "2.41 GB"),
        (-1, "–"),
        (None, "–"),
    ],
)
def test_sizes_have_three_digits_and_powers_of_1024(size: int | None, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (130, "2 min 10 s"),
        (2_285, "38 min"),
        (21_000, "5 h 50 min"),
        (18_300, "5 h 05 min"),
        (7_200, "2 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_ages_have_at_most_two_units(seconds: float, text: str) -> None:
    assert age_text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (90, "90 s"), (900, "15 min"), (7200, "2 h"), (0.5, "0.5 s")]
)
def test_spans_are_exact(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
