"""A row of any time has a partition. Partitions are created before their time begins."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from monitoring import bulk
from monitoring.history.partitions import AHEAD, DAY, TABLES, WEEK, bounds, cover, make_ahead, partitions_of
from monitoring.models import Checkpoint, OperatorCheckpoint, Savepoint
from monitoring.polling.rows import CHECKPOINT_COLUMNS
from tests.monitoring.reported import NOTHING

CHECKPOINTS = TABLES[0]


def place(checkpoint: Checkpoint) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text FROM monitoring_checkpoint WHERE id = %s", [checkpoint.pk])
        return str(cursor.fetchone()[0])


def edge() -> datetime:
    """Return the end of the time for which partitions were created."""
    end = partitions_of(CHECKPOINTS)[-1].start
    assert end is not None
    return end


def is_without_a_hole(table) -> bool:
    parts = partitions_of(table)
    return (
        parts[0].start is None
        and parts[-1].end is None
        and all(left.end == right.start is not None for left, right in itertools.pairwise(parts))
    )


@pytest.mark.parametrize("days", [-40_000, -400, 0, 400, 40_000])
def test_rows_of_any_time_are_stored_and_found(rows, days):
    run = rows.run(rows.job())
    made = rows.checkpoint(run, 1, triggered_at=timezone.now() + timedelta(days=days))
    assert Checkpoint.objects.get(pk=made.pk).triggered_at == made.triggered_at
    assert (place(made) == "monitoring_checkpoint_before") == (days < 0)
    assert (place(made) == "monitoring_checkpoint_after") == (days > 0)


@pytest.mark.parametrize("width", ["week", "day"])
def test_new_partitions_take_over_rows_that_were_stored_early(rows, settings, width):
    settings.HISTORY_PARTITION = width
    run, end = rows.run(rows.job()), edge()
    early = rows.checkpoint(run, 1, triggered_at=end + timedelta(hours=30))
    far = rows.checkpoint(run, 2, triggered_at=end + timedelta(days=400))
    operator = OperatorCheckpoint.objects.create(
        checkpoint=early, vertex_id="a", name="a", num_subtasks=1, num_acknowledged_subtasks=1
    )

    report = make_ahead(end + timedelta(hours=1))

    assert report.done[0].args["names"][0].startswith("monitoring_checkpoint_")
    assert place(early) == f"monitoring_checkpoint_{(end if width == 'week' else end + DAY):%Y%m%d}"
    assert place(far) == "monitoring_checkpoint_after"
    assert list(early.operators.all()) == [operator]
    assert all(is_without_a_hole(table) for table in TABLES)
    assert make_ahead(end + timedelta(hours=1)) == NOTHING


def test_imported_history_gets_partitions(rows, now):
    run = rows.run(rows.job())
    old = rows.checkpoint(run, 1, triggered_at=datetime(2026, 9, 16, tzinfo=UTC))
    older = rows.checkpoint(run, 2, triggered_at=datetime(2025, 1, 1, tzinfo=UTC))
    assert cover(datetime(2026, 9, 16, 5, tzinfo=UTC))[0] == "monitoring_checkpoint_20260914"
    assert (place(old), place(older)) == ("monitoring_checkpoint_20260914", "monitoring_checkpoint_before")
    assert all(is_without_a_hole(table) for table in TABLES)
    assert cover(datetime(2026, 9, 16, 5, tzinfo=UTC)) == []


def test_a_clock_far_ahead_creates_at_most_eight_partitions_at_once():
    begin = datetime(2026, 11, 23, tzinfo=UTC)
    made = bounds(begin, begin + timedelta(days=4000), WEEK)
    assert made[0] == (begin, begin + WEEK)
    assert len(made) == 8


def test_a_changed_width_applies_after_the_last_partition():
    sunday = datetime(2026, 11, 22, tzinfo=UTC)
    assert bounds(sunday, sunday, WEEK)[0] == (sunday, sunday + DAY)
    assert bounds(sunday, sunday + timedelta(hours=1), DAY)[0] == (sunday, sunday + DAY)
    assert len(bounds(sunday, sunday, DAY)) == 1 + AHEAD


@pytest.mark.django_db(transaction=True)
def test_creating_partitions_does_not_wait_for_long_reads(settings, postgres_dsn):
    settings.HISTORY_PARTITION = "week"
    end, failed = edge(), []
    reader = connection.copy()
    try:
        reader.set_autocommit(False)
        with reader.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM monitoring_checkpoint")

        def make() -> None:
            try:
                make_ahead(end + WEEK)
            except OperationalError as error:
                failed.append(str(error))
            finally:
                connection.close()

        thread = threading.Thread(target=make)
        thread.start()
        thread.join(20)
        assert "lock timeout" in failed[0]
        assert edge() == end
    finally:
        reader.rollback()
        reader.close()
    assert make_ahead(end + WEEK).done


def test_a_checkpoint_that_is_read_again_updates_its_row(rows, now):
    run = rows.run(rows.job())
    row = {
        **dict.fromkeys(CHECKPOINT_COLUMNS),
        "run_id": run.pk,
        "checkpoint_id": 7,
        "triggered_at": now,
        "status": "IN_PROGRESS",
        "first_seen_at": now,
        "is_savepoint": False,
        "checkpoint_type": "CHECKPOINT",
        "savepoint_format": "",
        "failure_message": "",
        "external_path": "",
        "discarded": False,
        "final": False,
        "num_subtasks": 1,
        "num_acknowledged_subtasks": 0,
    }
    key = ("run_id", "checkpoint_id", "triggered_at")
    first = bulk.upsert(Checkpoint, [row], key, CHECKPOINT_COLUMNS, once=("first_seen_at",))
    again = bulk.upsert(Checkpoint, [row | {"status": "COMPLETED"}], key, CHECKPOINT_COLUMNS, once=("first_seen_at",))
    assert first == again == {(run.pk, 7, now): Checkpoint.objects.get(status="COMPLETED").pk}


def test_deleting_a_checkpoint_deletes_its_operators_and_keeps_its_savepoint(rows, now):
    run = rows.run(rows.job())
    made = rows.checkpoint(run, 1, is_savepoint=True)
    OperatorCheckpoint.objects.create(
        checkpoint=made, vertex_id="a", name="a", num_subtasks=1, num_acknowledged_subtasks=1
    )
    savepoint = Savepoint.objects.create(job=run.job, run=run, checkpoint=made, state="completed", requested_at=now)
    made.delete()
    savepoint.refresh_from_db()
    assert savepoint.checkpoint_id is None
    assert not OperatorCheckpoint.objects.exists()


def test_reading_the_newest_rows_of_a_run_skips_older_partitions(rows, now):
    """Partitions are read in order up to the first with rows. A default partition would prevent this."""
    run = rows.run(rows.job())
    rows.checkpoint(run, 1, triggered_at=edge() - timedelta(hours=1))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
        cursor.execute(
            "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT id FROM monitoring_checkpoint WHERE run_id = %s"
            " ORDER BY triggered_at DESC LIMIT 1",
            [run.pk],
        )
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Merge Append" not in plan
    assert plan.count("never executed") >= len(partitions_of(CHECKPOINTS)) - 3
