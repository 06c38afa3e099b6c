"""Usual values at an hour of the week, and forecasts, with and without a pipeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitoring.history.baselines import forecast, usual
from monitoring.history.expectations import Basis
from monitoring.models import Checkpoint

NOW = datetime(2026, 11, 18, 10, 30, tzinfo=UTC)  # a Wednesday
TOLERANCE = 0.021  # sketches have an error of two per cent


@pytest.fixture
def job(rows):
    job = rows.job()
    rows.run(job, checkpoint_config={"timeout": 60_000, "interval": 600_000})
    return job


def fill(rows, job, days, duration, size=lambda day, hour: 1000, every_min=30):
    """Store checkpoints of the `days` before NOW. Each metric is a function of (days ago, time)."""
    run, made = job.runs.first(), []
    for number in range(days * 24 * 60 // every_min):
        at = NOW - timedelta(minutes=number * every_min)
        ago = (NOW.date() - at.date()).days
        figures = {"end_to_end_duration": round(duration(ago, at)), "state_size": round(size(ago, at))}
        made.append(Checkpoint(run=run, checkpoint_id=number, status="COMPLETED", triggered_at=at, **figures))
    Checkpoint.objects.bulk_create(made)


@pytest.mark.parametrize("rolled_up", [True, False])
def test_each_hour_of_the_week_has_a_separate_expected_value(rows, job, pipeline, rolled_up):
    fill(rows, job, 29, lambda ago, at: 9000 if (at.weekday(), at.hour) == (2, 10) else 500 if at.hour == 10 else 100)
    if rolled_up:
        pipeline.run()
    found = usual(job, NOW)
    assert found["duration"].expected == pytest.approx(9000, rel=TOLERANCE)
    assert (found["duration"].basis, found["duration"].hours) == (Basis.HOUR_OF_THE_WEEK(), 4)
    assert usual(job, NOW + timedelta(days=1))["duration"].expected == pytest.approx(500, rel=TOLERANCE)
    assert found["interval"].expected == 1800
    assert found["duration"].deviations(9000) == pytest.approx(0, abs=0.25)
    assert found["duration"].deviations(100_000) > 50


def test_a_young_job_is_compared_with_the_hours_that_exist(rows, job):
    fill(rows, job, 5, lambda ago, at: 500 if at.hour == 10 else 100, every_min=60)
    assert usual(job, NOW)["duration"].basis == Basis.HOUR_OF_THE_DAY()
    assert usual(job, NOW - timedelta(days=3))["duration"].basis == Basis.ALL_HOURS()
    assert usual(job, NOW - timedelta(days=5)) == {}


def test_todays_checkpoints_do_not_change_todays_expected_value(rows, job):
    fill(rows, job, 20, lambda ago, at: 10_000 if ago == 0 else 100, every_min=120)
    assert usual(job, NOW)["duration"].expected == pytest.approx(100, rel=TOLERANCE)


def test_growth_and_the_day_of_the_timeout_are_predicted(rows, job):
    """The duration grows by one second a day. From 40 s yesterday it reaches 60 s in 21 days, despite an outlier."""
    slow = lambda ago, at: 900_000 if ago == 6 else 41_000 - 1000 * ago  # noqa: E731
    fill(rows, job, 28, slow, lambda ago, at: 10**9 - 10**7 * ago, every_min=240)
    result = forecast(job, NOW)
    assert result.state_per_day == pytest.approx(10**7, rel=0.2)
    assert result.duration_per_day == pytest.approx(1000, rel=0.15)
    assert result.exceeds_timeout_on is not None
    assert 14 <= (result.exceeds_timeout_on - NOW).days <= 24


def test_a_constant_duration_never_exceeds_the_timeout(rows, job):
    fill(rows, job, 28, lambda ago, at: 5000, every_min=240)
    result = forecast(job, NOW)
    assert (result.state_per_day, result.exceeds_timeout_on, result.days) == (0, None, 28)


def test_a_short_history_has_no_forecast(rows, job):
    fill(rows, job, 5, lambda ago, at: 5000 - 900 * ago, every_min=240)
    result = forecast(job, NOW)
    assert (result.state_per_day, result.duration_per_day, result.exceeds_timeout_on) == (None, None, None)
