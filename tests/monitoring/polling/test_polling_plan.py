"""When a cluster is polled next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.polling.plan import (
    FASTEST_READ_S,
    PollSchedule,
    next_tick,
    next_try,
    read_every_s,
    reads_archives,
    shows_more,
    tick_every_s,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@given(
    interval_ms=st.integers(min_value=300, max_value=86_400_000),
    poll_interval_s=st.floats(min_value=1, max_value=600),
    history=st.integers(min_value=4, max_value=1000),
    pending=st.booleans(),
)
def test_the_history_never_rolls_over_between_two_reads(interval_ms, poll_interval_s, history, pending):
    every_s = read_every_s(interval_ms, poll_interval_s, history, pending=pending)
    # If a run is due right after a tick, only the next tick reads it.
    apart_s = every_s + tick_every_s(poll_interval_s, [every_s])
    assert every_s == pytest.approx(FASTEST_READ_S) or apart_s <= interval_ms / 1000 * history * 0.67


@pytest.mark.parametrize(
    ("interval_ms", "pending", "every_s"),
    [
        (600, False, 2.0),  # ten in 6 s
        (5_000, False, 3.0),
        (60_000, False, 10.0),
        (60_000, True, 3.0),
        (None, False, 5.0),
        (None, True, 3.0),
        (1, False, 1.0),
    ],
)
def test_a_run_is_read_at_the_planned_interval(interval_ms, pending, every_s):
    assert read_every_s(interval_ms, 3.0, pending=pending) == every_s


def test_a_longer_history_is_read_less_often():
    assert read_every_s(300, 3.0, 10, pending=False) == 1.0
    assert read_every_s(300, 3.0, 100, pending=False) == 3.0


def test_the_cluster_ticks_for_the_run_that_is_read_most_often():
    assert tick_every_s(3.0, [10.0, 2.0]) == 2.0
    assert tick_every_s(3.0, [10.0]) == 3.0
    assert tick_every_s(3.0, []) == 3.0
    assert tick_every_s(3.0, [0.1]) == FASTEST_READ_S


@settings(deadline=None)
@given(
    name=st.text(min_size=1),
    every_s=st.floats(min_value=1, max_value=600),
    tick_s=st.floats(min_value=0.5, max_value=5),
)
def test_a_run_is_due_once_in_each_period_for_any_poller(name, every_s, tick_s):
    schedule = PollSchedule.of(name, every_s)
    ticks = [NOW + timedelta(seconds=tick_s) * number for number in range(min(500, int(3 * every_s / tick_s) + 2))]
    due = sum(schedule.polls_between(before, after) for before, after in pairwise(ticks))
    periods = (ticks[-1] - ticks[0]).total_seconds() / every_s
    assert min(periods, len(ticks) - 1) - 1.01 <= due <= periods + 1.01


@settings(deadline=None)
@given(name=st.text(min_size=1), every_s=st.floats(min_value=1, max_value=600), after_s=st.floats(0, 10_000))
def test_the_next_tick_keeps_the_beat_and_leaves_half_a_period(name, every_s, after_s):
    schedule, now = PollSchedule.of(name, every_s), NOW + timedelta(seconds=after_s)
    wait_s = (schedule.next_after(now) - now).total_seconds()
    assert every_s / 2 - 0.001 <= wait_s <= every_s * 1.5 + 0.001


@pytest.mark.parametrize(
    ("took_s", "ticks"), [(0.1, 1), (4.9, 1), (5.1, 1), (9.9, 1), (10.1, 2), (14.9, 2), (15.1, 3), (25.0, 3)]
)
def test_a_long_poll_skips_only_missed_ticks(took_s, ticks):
    schedule = PollSchedule.of("a cluster", 10.0)
    polled_at = schedule.next_after(NOW)
    now = polled_at + timedelta(seconds=took_s)
    assert next_tick(schedule, polled_at, now) == polled_at + timedelta(seconds=10 * ticks)
    assert next_tick(schedule, now + timedelta(days=1), now) <= now + timedelta(seconds=15), "the clock was put back"


def test_the_runs_of_a_large_cluster_are_spread_over_its_ticks():
    schedules = [PollSchedule.of(f"{number:032x}", 10.0) for number in range(1000)]
    ticks = [NOW + timedelta(seconds=2) * number for number in range(6)]
    due = [sum(schedule.polls_between(*span) for schedule in schedules) for span in pairwise(ticks)]
    assert sum(due) == 1000
    assert all(150 < count < 250 for count in due)


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_a_silent_cluster_is_polled_less_often_but_always(jitter):
    share = 1 - 0.2 * jitter
    waits = [(next_try(NOW, 3.0, failures, jitter) - NOW).total_seconds() for failures in (1, 2, 3, 4, 5000)]
    assert waits == pytest.approx([3 * share, 6 * share, 12 * share, 15 * share, 15 * share])
    assert next_try(NOW, 60.0, 9, 0.0) == NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("age_s", "least", "most"), [(10, 10, 10), (29, 10, 10), (120, 3, 5), (600, 0, 1), (7200, 0, 1)]
)
def test_the_details_of_a_pending_checkpoint_are_requested_at_growing_intervals(age_s, least, most):
    """Count the reads during ten ticks, three seconds apart."""
    now, triggered = NOW, NOW - timedelta(seconds=age_s)
    ticks = [now + timedelta(seconds=3 * number) for number in range(11)]
    looks = sum(
        shows_more("a" * 32, min(triggered + (until - now), until), since, until) for since, until in pairwise(ticks)
    )
    assert least <= looks <= most


def test_a_pending_checkpoint_with_an_unknown_last_request_is_due():
    assert shows_more("a" * 32, NOW - timedelta(hours=1), None, NOW)
    assert shows_more("a" * 32, NOW + timedelta(hours=1), NOW, NOW), "the engine's clock is ahead"


@pytest.mark.parametrize(
    ("poll_interval_s", "seconds_apart"), [(1, {60.0}), (3, {60.0}), (15, {60.0}), (30, {60.0}), (600, {600.0})]
)
def test_a_long_silence_is_looked_up_in_the_history_server_once_a_minute(poll_interval_s, seconds_apart):
    assert all(reads_archives(poll_interval_s, failures) for failures in range(20)), "its first minutes"
    wait_s = (next_try(NOW, poll_interval_s, 100, 0) - NOW).total_seconds()
    read = [number * wait_s for number in range(100, 400) if reads_archives(poll_interval_s, number)]
    assert {later - earlier for earlier, later in pairwise(read)} == seconds_apart
