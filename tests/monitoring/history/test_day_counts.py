"""Counts of a day are those of its checkpoints; those of an archived day come from its roll-up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.history.day_counts import DayCount, JobDay, _from_rollup, count_days
from monitoring.history.pipeline.columns import VERSION
from monitoring.history.sketches import encode
from tests.monitoring.history.conftest import Pipeline, dsn

TODAY = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def run(rows):
    """Return a run with 40 checkpoints on each of two days, the last of each day with 40 s."""
    run = rows.run(rows.job(), started_at=TODAY - timedelta(days=9))
    for day in (1, 2):
        for number in range(40):
            at = TODAY - timedelta(days=day) + timedelta(minutes=number)
            rows.checkpoint(run, triggered_at=at, end_to_end_duration=1000 * (number + 1))
    rows.failed(run, 9000, TODAY - timedelta(days=1) + timedelta(hours=3))
    return run


def counted(run, limit_ms):
    asked = [JobDay(run.job_id, (TODAY - timedelta(days=day)).date(), limit_ms) for day in (1, 2, 3)]
    with CaptureQueriesContext(connection) as statements:
        found = count_days(asked, TODAY.date())
    return [found[each] for each in asked], " ".join(each["sql"] for each in statements)


def test_days_are_counted_from_checkpoints_without_roll_ups(run) -> None:
    found, _ = counted(run, 30_000)
    assert found == [DayCount(40, 11, 1), DayCount(40, 11, 0), DayCount()]


@pytest.mark.django_db(transaction=True)
def test_roll_ups_replace_the_checkpoints_if_all_or_none_reached_the_limit(run, tmp_path) -> None:
    path = tmp_path / "dsn"
    path.write_text(dsn())
    Pipeline(path).run()
    for limit_ms, long in ((40_001, 0), (1000, 40)):
        found, how = counted(run, limit_ms)
        assert found == [DayCount(40, long, 1), DayCount(40, long, 0), DayCount()]
        assert "end_to_end_duration" not in how
    found, how = counted(run, 30_000)
    assert found == [DayCount(40, 11, 1), DayCount(40, 11, 0), DayCount()]
    assert "end_to_end_duration" in how


def row(values: list[int], **changes: object) -> dict[str, object]:
    known = {"completed": len(values), "failed": 2, "duration_min": min(values), "duration_max": max(values)}
    return {**known, "version": VERSION, "duration_sketch": encode(np.array(values, np.int64)), **changes}


@pytest.mark.parametrize(("limit_ms", "long"), [(1, 1000), (501, 500), (1000, 1), (1001, 0)])
def test_the_sketch_gives_the_share_of_an_archived_day_within_its_error(limit_ms: int, long: int) -> None:
    found = _from_rollup(JobDay(1, TODAY.date(), limit_ms), row(list(range(1, 1001))))
    assert found is not None
    assert (found.completed, found.failed) == (1000, 2)
    assert found.long == pytest.approx(long, abs=20)


def test_a_sketch_that_cannot_be_read_gives_no_count() -> None:
    assert _from_rollup(JobDay(1, TODAY.date(), 5), row([1, 9], duration_sketch=b"abc")) is None
