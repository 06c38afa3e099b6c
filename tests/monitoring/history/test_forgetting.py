"""Roll-ups of minutes are deleted after three hours, those of hours after six weeks. Days are kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from monitoring.history.forgetting import forget
from monitoring.history.partitions import cover
from monitoring.history.quantiles import figures_of_ranges
from monitoring.history.stretches import Stretch
from monitoring.models import Checkpoint, OperatorRollup, Rollup, RollupProgress
from monitoring.reasons.work import WorkReason
from tests.monitoring.history.archive_rows import take_partitions_back
from tests.monitoring.history.conftest import differences
from tests.monitoring.reported import NOTHING, done


def test_minute_roll_ups_are_deleted_after_three_hours(rows, pipeline):
    rows.now = timezone.now().replace(minute=30)
    run = rows.run(rows.job())
    rows.checkpoint(run, 1)
    rows.checkpoint(run, 2, triggered_at=rows.ago(2 * 3600))
    pipeline.run()
    assert Rollup.objects.filter(seconds=60).count() == 2
    assert forget(rows.now) == NOTHING
    assert forget(rows.now + timedelta(hours=2)) == done(WorkReason.MINUTES_FORGOTTEN(count=1))
    assert Rollup.objects.filter(seconds=60).count() == 1
    assert Rollup.objects.filter(seconds=3600).count() == 2


def test_minute_roll_ups_of_operators_are_deleted_after_three_hours(rows):
    rows.now = timezone.now()
    job = rows.job()
    for hours in (2, 4):
        start = rows.now - timedelta(hours=hours)
        OperatorRollup.objects.create(job=job, seconds=60, start=start, operator="a", completed=1)
    forget(rows.now)
    assert [row.start for row in OperatorRollup.objects.all()] == [rows.now - timedelta(hours=2)]


def test_checkpoints_that_are_read_late_get_no_minute_roll_ups(rows, pipeline):
    rows.now = timezone.now()
    rows.checkpoint(rows.run(rows.job()), 1, triggered_at=rows.ago(5 * 3600))
    pipeline.run()
    assert not Rollup.objects.filter(seconds=60).exists()


@pytest.fixture
def long_ago(rows, transactional_db):
    """Store checkpoints of a day 80 days ago and one 40 days ago, in three hours each."""
    rows.now = timezone.now().replace(hour=12, minute=30)
    run = rows.run(rows.job())
    moments = [rows.ago(days * 86_400 + hours * 3600) for days in (80, 40) for hours in (0, 2, 5)]
    cover(min(moments))
    for number, at in enumerate(moments):
        rows.checkpoint(run, number + 1, triggered_at=at, end_to_end_duration=100 + number)
    yield run
    take_partitions_back()


def test_hour_roll_ups_of_operators_are_deleted_with_those_of_their_job(rows, pipeline, long_ago):
    pipeline.run()
    days = [rows.now - timedelta(days=number) for number in (80, 40)]
    for seconds in (3600, 86_400):
        for day in days:
            OperatorRollup.objects.create(job=long_ago.job, seconds=seconds, start=day, operator="a", completed=1)
    forget(rows.now)
    left = OperatorRollup.objects.order_by("seconds", "start").values_list("seconds", "start")
    assert list(left) == [(3600, days[1]), (86_400, days[0]), (86_400, days[1])]


def hours() -> int:
    return Rollup.objects.filter(seconds=3600).count()


def test_hour_roll_ups_are_deleted_after_six_weeks_and_the_report_names_the_day(rows, pipeline, long_ago):
    pipeline.run()
    before = rows.now.date() - timedelta(days=45)
    assert str(forget(rows.now)) == f"Hour roll-ups before {before} deleted: 3."
    assert (hours(), Rollup.objects.filter(seconds=86_400).count()) == (3, 2)
    assert forget(rows.now) == NOTHING


def test_a_changed_day_is_recomputed_without_its_hour_roll_ups(rows, pipeline, long_ago):
    pipeline.run()
    forget(rows.now)
    Checkpoint.objects.filter(checkpoint_id=2).update(end_to_end_duration=7)
    Checkpoint.objects.filter(checkpoint_id=5).delete()
    rows.failed(long_ago, 100, rows.ago(80 * 86_400 + 9 * 3600), "Checkpoint expired before completing.")
    pipeline.run()
    assert differences(86_400) == []
    assert hours() == 3
    pipeline.offset = pipeline.reader.initialOffset()
    pipeline.run()
    assert (differences(86_400), hours()) == ([], 3)


def test_quantiles_are_the_same_after_hour_roll_ups_are_deleted(rows, pipeline, long_ago):
    pipeline.run()
    job, whole = long_ago.job, Stretch(rows.ago(90 * 86_400), rows.now)
    asked = [whole, Stretch(rows.ago(80 * 86_400 + 3 * 3600), rows.ago(20 * 86_400)), replace(whole, run=long_ago.pk)]
    before = figures_of_ranges(job, asked, ("duration",), (0.5, 0.95))
    forget(rows.now)
    assert figures_of_ranges(job, asked, ("duration",), (0.5, 0.95)) == before
    Checkpoint.objects.filter(checkpoint_id=1).update(end_to_end_duration=9)
    assert figures_of_ranges(job, asked[:1], ("duration",), (0.5,))[0]["duration"].minimum == 9


def test_hour_roll_ups_are_kept_while_an_older_pipeline_runs(rows, pipeline, long_ago):
    pipeline.run()
    RollupProgress.objects.update(program=None)
    assert forget(rows.now) == NOTHING
    assert hours() == 6


def test_an_earlier_longer_retention_stays_until_the_setting_is_changed(rows, pipeline, long_ago, settings):
    pipeline.run()
    RollupProgress.objects.update(hours_kept=400)
    assert forget(rows.now) == NOTHING
    settings.HOURS_KEPT = timedelta(days=70)
    assert forget(rows.now).done[0].args["count"] == 3
