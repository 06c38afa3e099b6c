"""The stored newest completed checkpoint of a run is current after every kind of write.

The tests of the polls (tests/monitoring/polling) check this after each test, too.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from django.db import connection

from monitoring import bulk
from monitoring.history.partitions import TABLES, alone, cover, drop_oldest, partitions_of
from monitoring.models import Checkpoint, CheckpointStatus, NewestCompleted, Run
from monitoring.polling.rows import CHECKPOINT_COLUMNS
from tests.monitoring.newest_completed import outdated

PENDING, COMPLETED, FAILED = CheckpointStatus.IN_PROGRESS, CheckpointStatus.COMPLETED, CheckpointStatus.FAILED


@pytest.fixture
def run(rows) -> Run:
    """Return a run with the completed checkpoints 1 and 2 and a pending checkpoint 3."""
    run = rows.run(rows.job())
    for number, status in ((1, COMPLETED), (2, COMPLETED), (3, PENDING)):
        rows.checkpoint(run, number, status=status, triggered_at=rows.ago(100 - number), state_size=number)
    return run


def newest(run: Run) -> int | None:
    """Return the number of the stored checkpoint, which must be current for every run."""
    assert outdated() == []
    return NewestCompleted.objects.filter(run=run).values_list("checkpoint_id", flat=True).first()


def test_a_completed_checkpoint_is_stored_and_a_pending_one_is_not(run):
    assert newest(run) == 2


def test_a_pending_checkpoint_is_stored_once_it_completes(run):
    Checkpoint.objects.filter(run=run, checkpoint_id=3).update(status=COMPLETED)
    assert newest(run) == 3


def test_savepoints_and_failed_checkpoints_are_not_stored(run, rows):
    rows.checkpoint(run, 4, is_savepoint=True, triggered_at=rows.ago(10))
    rows.failed(run, 5, rows.ago(5))
    assert newest(run) == 2


def test_a_checkpoint_that_is_stored_late_replaces_no_newer_one(run, rows):
    rows.checkpoint(run, 7, triggered_at=rows.ago(900))
    assert newest(run) == 2


def test_a_corrected_checkpoint_has_its_new_figures(run):
    Checkpoint.objects.filter(run=run, checkpoint_id=2).update(state_size=77, end_to_end_duration=5)
    assert newest(run) == 2
    assert NewestCompleted.objects.get(run=run).state_size == 77


def test_a_poll_that_stores_and_updates_many_rows_at_once_stores_the_newest_one(run, rows):
    stored = dict(Checkpoint.objects.filter(run=run).values_list("checkpoint_id", "triggered_at"))
    known = Checkpoint.objects.filter(run=run, checkpoint_id=2).values("run_id", "first_seen_at", *CHECKPOINT_COLUMNS)
    given = [
        {**known[0], "checkpoint_id": number, "triggered_at": stored.get(number, rows.ago(100 - number))}
        for number in (5, 2, 3, 4)
    ]
    key = ("run_id", "checkpoint_id", "triggered_at")
    bulk.upsert(Checkpoint, given, key, CHECKPOINT_COLUMNS, once=("first_seen_at",))
    assert newest(run) == 5


def test_a_deleted_checkpoint_gives_way_to_the_one_before_it(run):
    Checkpoint.objects.filter(run=run, checkpoint_id=2).delete()
    assert newest(run) == 1
    Checkpoint.objects.filter(run=run).delete()
    assert newest(run) is None


def test_a_checkpoint_that_turns_out_to_have_failed_gives_way(run):
    Checkpoint.objects.filter(run=run, checkpoint_id=2).update(status=FAILED)
    assert newest(run) == 1


def test_checkpoints_that_move_to_the_run_after_a_superseded_one_are_those_of_the_new_run(run, rows):
    later = rows.run(run.job)
    Checkpoint.objects.filter(run=run, checkpoint_id=2).update(run=later)
    assert (newest(run), newest(later)) == (1, 2)


def test_a_deleted_run_has_no_stored_checkpoint(run):
    run.job.delete()
    assert outdated() == []
    assert not NewestCompleted.objects.exists()


def test_an_imported_history_that_gets_its_partitions_changes_nothing(rows):
    run = rows.run(rows.job())
    rows.checkpoint(run, 1, triggered_at=datetime(2026, 9, 16, tzinfo=UTC))
    cover(datetime(2026, 9, 16, tzinfo=UTC))
    assert newest(run) == 1


def test_an_archived_checkpoint_stays_stored(rows):
    run = rows.run(rows.job())
    rows.checkpoint(run, 1, triggered_at=datetime(2026, 9, 16, tzinfo=UTC))
    cover(datetime(2026, 9, 16, tzinfo=UTC))
    table = TABLES[0]
    oldest = next(each for each in partitions_of(table) if each.start is not None)
    with connection.cursor() as cursor:
        alone(cursor)
    drop_oldest(table, oldest.name, oldest.end, "id", [])
    assert not Checkpoint.objects.exists()
    assert NewestCompleted.objects.get().checkpoint_id == 1


def test_the_migration_stores_the_newest_checkpoint_of_every_run(run):
    NewestCompleted.objects.all().delete()
    assert outdated() == [run.pk]
    with connection.cursor() as cursor:
        cursor.execute(import_module("monitoring.migrations.0021_newest_completed").FILL)
    assert newest(run) == 2


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_writes_leaves_the_newest_checkpoint_stored(rows, seed):
    dice = random.Random(seed)
    runs = [rows.run(rows.job()) for _ in range(3)]
    for number in range(1, 121):
        some = Checkpoint.objects.filter(pk__in=[pk for pk in _keys() if dice.random() < 0.2])
        match dice.randrange(7):
            case 0 | 1 | 2:
                Checkpoint.objects.bulk_create(
                    Checkpoint(
                        run=dice.choice(runs),
                        checkpoint_id=10 * number + more,
                        status=dice.choice((PENDING, COMPLETED, COMPLETED, FAILED)),
                        is_savepoint=dice.random() < 0.2,
                        triggered_at=rows.now + timedelta(minutes=dice.randint(0, 10_000), seconds=number),
                        state_size=number,
                    )
                    for more in range(dice.randint(1, 4))
                )
            case 3:
                some.update(status=dice.choice((COMPLETED, FAILED)))
            case 4:
                some.update(run=dice.choice(runs))
            case 5:
                some.update(state_size=number, discarded=True)
            case 6:
                some.delete()
        assert outdated() == [], f"after write {number}"


def _keys() -> list[int]:
    return list(Checkpoint.objects.order_by("pk").values_list("pk", flat=True))
