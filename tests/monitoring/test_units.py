from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils.translation import override

from monitoring.alerts.kinds.base import Unit
from monitoring.units import (
    DATE,
    SHORT_DATE_AND_CLOCK,
    age_text,
    bytes_text,
    duration_text,
    length_text,
    round_bytes_texts,
    span_ms_text,
    span_ms_texts,
    span_text,
    time_text,
)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (12.4, "12 ms"),
        (850, "850 ms"),
        (3_045, "3.04 s"),
        (4_000, "4 s"),
        (16_750, "16.8 s"),
        (59_949, "59.9 s"),
        (59_950, "1 min"),
        (123_004, "2 min 3 s"),
        (3_723_000, "1 h 2 min"),
        (-1, "–"),
        (None, "–"),
    ],
)
def test_durations_have_three_digits_or_two_units(milliseconds: float | None, text: str) -> None:
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


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (45, "45 s"), (900, "15 min"), (5400, "1 h 30 min"), (86_461, "1 d")]
)
def test_lengths_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert length_text(seconds) == length_text(timedelta(seconds=seconds)) == text


def test_round_numbers_have_no_decimals() -> None:
    assert [span_ms_text(each) for each in (500, 2000, 900_000)] == ["500 ms", "2 s", "15 min"]


@pytest.mark.parametrize(
    ("ticks", "texts"),
    [
        ((1,), ["1 B"]),
        ((256 * 1024, 512 * 1024), ["256 KB", "512 KB"]),
        ((512 * 1024, 1024 * 1024, 1536 * 1024), ["0.5 MB", "1 MB", "1.5 MB"]),
    ],
)
def test_sizes_of_an_axis_have_one_unit(ticks: tuple[int, ...], texts: list[str]) -> None:
    assert round_bytes_texts(ticks) == texts


@pytest.mark.parametrize(
    ("step", "count", "texts"),
    [
        (20, 3, ["20 ms", "40 ms", "60 ms"]),
        (500, 3, ["0.5 s", "1 s", "1.5 s"]),
        (15_000, 5, ["15 s", "30 s", "45 s", "60 s", "75 s"]),
        (30_000, 4, ["30 s", "60 s", "90 s", "120 s"]),
        (900_000, 5, ["15 min", "30 min", "45 min", "60 min", "75 min"]),
        (7_200_000, 2, ["2 h", "4 h"]),
        (86_400_000, 2, ["1 d", "2 d"]),
    ],
)
def test_lengths_of_an_axis_have_one_unit(step: int, count: int, texts: list[str]) -> None:
    assert span_ms_texts([step * n for n in range(1, count + 1)]) == texts


def test_the_catalogue_has_the_units_and_the_order_of_a_date() -> None:
    at = datetime(2026, 5, 3, 4, 5, 6, tzinfo=UTC)
    with override("zh-hans"):
        assert [Unit.SECONDS.text(5400), Unit.MILLISECONDS.text(4500)] == ["1 小时 30 分钟", "4.5 秒"]
        assert [span_text(900), age_text(timedelta(seconds=130))] == ["15 分钟", "2 分钟 10 秒"]
        assert [duration_text(12), duration_text(3_723_000)] == ["12 毫秒", "1 小时 2 分钟"]
        assert [time_text(at, DATE), time_text(at, SHORT_DATE_AND_CLOCK)] == ["2026年5月3日", "5月3日 04:05:06"]
    assert [time_text(at, DATE), time_text(at, SHORT_DATE_AND_CLOCK)] == ["3 May 2026", "May 3, 04:05:06"]


def test_names_of_months_are_those_of_the_language() -> None:
    def dutch(text: str) -> str:
        return {"March": "maart", "mar": "mrt"}.get(text, text)

    at = datetime(2026, 3, 3, tzinfo=UTC)
    assert [time_text(at, form, dutch) for form in ("%-d %B", "%-d %b")] == ["3 maart", "3 Mrt"]
