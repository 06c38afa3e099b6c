"""Usual values at an hour of the week come from roll-ups if they exist, with a small error against the checkpoints."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.alerts.gathering.figures import baselines_of_hours
from monitoring.models import Checkpoint, HourlyBaseline, RollupProgress, Run
from tests.monitoring.conftest import Rows
from tests.monitoring.history.conftest import Pipeline, dsn

pytestmark = pytest.mark.django_db(transaction=True)
DAY = datetime(2026, 11, 21, tzinfo=UTC)
WEEK = timedelta(weeks=1)


@pytest.fixture
def run(rows: Rows) -> Run:
    """Return a run with thirty checkpoints between 8 and 10 o'clock on each of the four Saturdays before DAY.

    Two Saturdays also have some at 11 o'clock. All other days have huge checkpoints.
    """
    dice, made = random.Random(4), rows.run(rows.job(), started_at=DAY - timedelta(days=40))
    moments = [DAY - week * WEEK + timedelta(hours=8 + 2 * dice.random()) for week in (1, 2, 3, 4) for _ in range(30)]
    moments += [DAY - week * WEEK + timedelta(hours=11, minutes=n) for week in (1, 2) for n in range(30)]
    figures = [(at, dice.randint(10**3, 10**5)) for at in moments]
    figures += [(DAY - timedelta(days=days, hours=-9), 10**9) for days in range(40) if days % 7]
    Checkpoint.objects.bulk_create(
        Checkpoint(run=made, checkpoint_id=n, status="COMPLETED", triggered_at=at, end_to_end_duration=each)
        for n, (at, each) in enumerate(figures)
    )
    return made


def asked(run: Run) -> tuple[list[float | None], str]:
    """Return the p95 of each hour of DAY, and the SQL statements that computed them."""
    HourlyBaseline.objects.all().delete()
    with CaptureQueriesContext(connection) as statements:
        found = baselines_of_hours("end_to_end_duration", {run.job_id}, 4, [DAY.date()])
    return list(found[run.job_id][DAY.date()]), " ".join(each["sql"] for each in statements)


def by_hand(run: Run, hour: int) -> int:
    days = [(DAY - week * WEEK).date() for week in (1, 2, 3, 4)]
    at = run.checkpoints.filter(triggered_at__date__in=days, triggered_at__hour=hour)
    values = sorted(at.values_list("end_to_end_duration", flat=True))
    return values[-(-95 * len(values) // 100) - 1]


def test_an_hour_with_data_of_three_weeks_has_a_baseline_from_checkpoints_or_roll_ups(run: Run, tmp_path: Path) -> None:
    exact, how = asked(run)
    assert "percentile_disc" in how
    assert {hour: p95 for hour, p95 in enumerate(exact) if p95 is not None} == {h: by_hand(run, h) for h in (8, 9)}
    path = tmp_path / "dsn"
    path.write_text(dsn())
    Pipeline(path).run()
    rolled, how = asked(run)
    assert "percentile_disc" not in how
    assert rolled == [p95 if p95 is None else pytest.approx(p95, rel=1e-6) for p95 in exact]  # few values are exact
    RollupProgress.objects.update(hours_from=DAY - 3 * WEEK)  # roll-ups of the first week's hours are deleted
    assert asked(run)[0] == exact
    RollupProgress.objects.update(hours_from=None)
    run.checkpoints.filter(triggered_at__lt=DAY - 3 * WEEK, end_to_end_duration__lt=10**6).update(end_to_end_duration=9)
    changed, how = asked(run)
    assert "percentile_disc" in how
    assert changed[8] == by_hand(run, 8)


def test_a_computed_hour_does_not_change_later(run: Run) -> None:
    first, _ = asked(run)
    run.checkpoints.update(end_to_end_duration=1)
    kept = baselines_of_hours("end_to_end_duration", {run.job_id}, 4, [DAY.date()])
    assert kept[run.job_id][DAY.date()] == first
