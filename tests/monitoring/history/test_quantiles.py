"""Quantiles of any time range equal those of the checkpoints within the stated error, also without a pipeline."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from monitoring.history import stretches
from monitoring.history.pipeline.columns import FIGURES
from monitoring.history.quantiles import NotRolledUp, UnknownSketch, of_whole_days, quantiles, series
from monitoring.models import Checkpoint, Rollup, RollupProgress
from tests.monitoring.history.percentiles import near

ASKED = (0.5, 0.9, 0.99)


@pytest.fixture
def job(rows):
    """Return a job with checkpoints of forty days in two runs, some of them failed."""
    rows.now = timezone.now().replace(minute=30)
    made, dice = rows.job(), random.Random(5)
    runs = [rows.run(made), rows.run(made)]
    for number in range(400):
        at = rows.ago(dice.random() * 40 * 86_400)
        if dice.random() < 0.1:
            rows.failed(runs[number % 2], number + 1, at)
        else:
            values = {column: round(10 ** (dice.random() * 6)) for column in FIGURES.values()}
            rows.checkpoint(runs[number % 2], number + 1, triggered_at=at, **values)
    rows.checkpoint(rows.run(rows.job()), 1, end_to_end_duration=10**9)  # a checkpoint of another job must not count
    return made


def by_sql(job, start, end, figure):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(value), sum(value), min(value), max(value),"
            " array_agg(value ORDER BY value) FILTER (WHERE value IS NOT NULL)"
            " FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id"
            f" CROSS JOIN LATERAL (SELECT c.{FIGURES[figure]} AS value) figure"
            " WHERE r.job_id = %s AND c.status = 'COMPLETED' AND c.triggered_at >= %s AND c.triggered_at < %s",
            [job.pk, start, end],
        )
        return cursor.fetchone()


def agree(job, start, end, figure):
    result = quantiles(job, start, end, figure, ASKED)
    known, total, minimum, maximum, values = by_sql(job, start, end, figure)
    assert (result.known, result.total, result.minimum, result.maximum) == (known, total, minimum, maximum)
    for share, value in result.quantiles.items():
        assert value == (near(values, share) if values else None)
    return result


@pytest.mark.parametrize("state", ["no pipeline", "up to date", "behind"])
def test_quantiles_of_any_time_range_agree_with_sql(job, pipeline, rows, state):
    if state != "no pipeline":
        pipeline.run()
    if state == "behind":
        Checkpoint.objects.filter(run__job=job, checkpoint_id__lt=60).update(end_to_end_duration=77)
        Checkpoint.objects.filter(run__job=job, checkpoint_id__in=range(60, 90)).delete()
        rows.checkpoint(job.runs.first(), 900, triggered_at=rows.ago(86_400 * 20), end_to_end_duration=10**8)
    dice = random.Random(7)
    for _ in range(25):
        one, other = sorted(rows.ago(dice.random() * 42 * 86_400) for _ in range(2))
        agree(job, one, other, dice.choice(list(FIGURES)))
    whole = agree(job, rows.ago(50 * 86_400), rows.now, "duration")
    assert whole.counts["failed"] == Checkpoint.objects.filter(run__job=job, status="FAILED").count()


def test_a_long_series_needs_few_queries_and_agrees_with_sql(job, pipeline, rows):
    pipeline.run()
    start = rows.ago(40 * 86_400)
    with CaptureQueriesContext(connection) as queries:
        days = series(job, start, rows.now, "duration", ASKED)
    assert len(queries) <= 5
    assert [each.start for each in days] == sorted({each.start for each in days})
    assert sum(each.known for each in days) == by_sql(job, start, rows.now, "duration")[0]
    for each in days:
        agree(job, each.start, each.end, "duration")


def test_a_short_series_has_hours(job, pipeline, rows):
    pipeline.run()
    hours = series(job, rows.ago(7 * 86_400), rows.now, "state_size", ASKED)
    assert all(each.end - each.start <= timedelta(hours=1) for each in hours)
    for each in hours:
        agree(job, each.start, each.end, "state_size")


def test_a_roll_up_of_another_version_is_named(job, pipeline, rows):
    pipeline.run()
    Rollup.objects.update(version=4)
    with pytest.raises(UnknownSketch, match="version 4"):
        quantiles(job, rows.ago(50 * 86_400), rows.now)


def test_invalid_arguments_are_named(rows):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="figure 'speed' is not known; allowed are duration, alignment"):
        quantiles(rows.job(), at, at, "speed")
    with pytest.raises(ValueError, match="start must not be after end"):
        quantiles(rows.job(), at, at - timedelta(days=1))


def test_progress_of_another_server_is_ignored(job, pipeline, rows):
    pipeline.run()
    RollupProgress.objects.update(done=10**15)
    Rollup.objects.all().delete()
    agree(job, rows.ago(50 * 86_400), rows.now, "duration")


def test_a_time_without_checkpoints_has_no_figures(rows):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    result = quantiles(rows.job(), at, at + timedelta(days=3))
    assert (result.known, result.mean, result.maximum, set(result.quantiles.values())) == (0, None, None, {None})


def test_unread_changes_block_only_the_series_of_their_job(job, pipeline, rows, monkeypatch):
    monkeypatch.setattr(stretches, "MOST_BEHIND", 50)
    pipeline.run()
    other = rows.run(rows.job())
    for number in range(60):
        rows.checkpoint(other, number + 1)
    whole = [stretches.Stretch(rows.ago(50 * 86_400), rows.now)]
    assert stretches.read(job, whole, ["duration"], most=10_000)
    with pytest.raises(NotRolledUp, match="are behind"):
        stretches.read(other.job, whole, ["duration"], most=10_000)
    assert of_whole_days({job.pk, other.job_id}, rows.ago(50 * 86_400), rows.ago(-86_400), "duration", 0.95).keys() == {
        job.pk
    }


def test_counting_the_unread_changes_of_a_job_uses_the_index(job, pipeline):
    """The number of waiting changes of other jobs does not matter."""
    pipeline.run()
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN (COSTS OFF) {stretches._BEHIND}", {"job": job.pk, "done": 5, "most": 10})
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
    assert re.search(r"Index Cond: \(\(changed_in >= .*\) AND \(run_id = ANY", plan), plan
