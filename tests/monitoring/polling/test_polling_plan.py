"""When to ask again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.polling.plan import FASTEST_READ_S, HISTORY, next_poll, next_try, read_every_s

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@given(
    interval_ms=st.integers(min_value=300, max_value=86_400_000),
    poll_interval_s=st.floats(min_value=1, max_value=600),
    pending=st.booleans(),
)
def test_the_history_never_rolls_over_between_two_reads(interval_ms, poll_interval_s, pending):
    every_s = read_every_s(interval_ms, poll_interval_s, pending=pending)
    assert every_s == pytest.approx(FASTEST_READ_S) or every_s <= interval_ms / 1000 * HISTORY / 2


@pytest.mark.parametrize(
    ("interval_ms", "pending", "every_s"),
    [
        (600, False, 2.0),  # ten in 6 s
        (5_000, False, 3.0),
        (60_000, False, 15.0),
        (60_000, True, 3.0),
        (None, False, 5.0),
        (None, True, 3.0),
        (1, False, 1.0),
    ],
)
def test_how_often_a_run_is_read(interval_ms, pending, every_s):
    assert read_every_s(interval_ms, 3.0, pending=pending) == every_s


def test_the_cluster_is_polled_for_the_run_that_is_due_first():
    soon, late = NOW + timedelta(seconds=2), NOW + timedelta(seconds=20)
    assert next_poll(NOW, 3.0, [late, soon, None]) == soon
    assert next_poll(NOW, 3.0, [late]) == NOW + timedelta(seconds=3)
    assert next_poll(NOW, 3.0, [NOW]) == NOW + timedelta(seconds=1)


def test_a_silent_cluster_is_asked_less_often_but_never_given_up():
    waits = [(next_try(NOW, 3.0, failures) - NOW).total_seconds() for failures in (1, 2, 3, 4, 5000)]
    assert waits == [3, 6, 12, 15, 15]
    assert next_try(NOW, 60.0, 9) == NOW + timedelta(seconds=60)
