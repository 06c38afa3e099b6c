"""A job's p95 comes from roll-ups if they cover the time, and is the same for live evaluation and backtest."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.alerts.gathering.figures import baselines
from monitoring.models import Checkpoint, FigureBaseline
from tests.monitoring.history.conftest import Pipeline, dsn

pytestmark = pytest.mark.django_db(transaction=True)
DAY = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def runs(rows):
    """Return runs of three jobs, with a hundred checkpoints in the week before DAY, and a huge one before and after."""
    dice, made = random.Random(2), [rows.run(rows.job(), started_at=DAY - timedelta(days=30)) for _ in range(3)]
    for run in made:
        moments = [DAY - timedelta(days=7 * dice.random()) for _ in range(100)]
        Checkpoint.objects.bulk_create(
            completed(run, n, at, dice.randint(10**6, 10**9)) for n, at in enumerate(moments)
        )
        Checkpoint.objects.bulk_create(
            completed(run, 200 + n, DAY + timedelta(days=days), 10**12) for n, days in enumerate((-8, 0))
        )
    return made


def completed(run, number: int, at: datetime, size: int) -> Checkpoint:
    return Checkpoint(run=run, checkpoint_id=number, status="COMPLETED", triggered_at=at, state_size=size)


def asked(runs) -> tuple[dict[int, float], str]:
    """Return the p95 by job, and the SQL statements that computed it."""
    FigureBaseline.objects.all().delete()
    with CaptureQueriesContext(connection) as statements:
        found = baselines("state_size", {run.job_id for run in runs}, 7, [DAY.date()])
    return {job: days[DAY.date()] for job, days in found.items()}, " ".join(each["sql"] for each in statements)


def test_a_baseline_combines_roll_ups_with_checkpoints_changed_since(runs, tmp_path) -> None:
    exact, how = asked(runs)
    assert "percentile_disc" in how
    path = tmp_path / "dsn"
    path.write_text(dsn())
    Pipeline(path).run()
    rolled, how = asked(runs)
    assert "percentile_disc" not in how
    assert rolled == {job: pytest.approx(p95, rel=1e-6) for job, p95 in exact.items()}
    first = runs[0].checkpoints.filter(triggered_at__lt=DAY, triggered_at__gte=DAY - timedelta(days=7))
    first.update(state_size=77)
    changed, how = asked(runs)
    assert "percentile_disc" in how
    assert changed == {**rolled, runs[0].job_id: 77}


def test_a_computed_baseline_does_not_change_when_roll_ups_arrive(runs, tmp_path) -> None:
    jobs = {run.job_id for run in runs}
    before = baselines("state_size", jobs, 7, [DAY.date()])
    path = tmp_path / "dsn"
    path.write_text(dsn())
    Pipeline(path).run()
    assert baselines("state_size", jobs, 7, [DAY.date()]) == before
