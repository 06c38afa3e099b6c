"""The source skips no change, even if it commits late or out of order, or is a correction or deletion."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from django.utils import timezone

from monitoring.history.forgetting import forget
from monitoring.history.pipeline.columns import CHANGES, PROGRAM
from monitoring.history.pipeline.stored import NotReadable
from monitoring.models import Checkpoint, CheckpointStatus, OperatorCheckpoint, Rollup, RollupProgress
from tests.monitoring.history.conftest import Pipeline, differences, dsn

WIDTHS = (60, 3600, 86_400)


@pytest.fixture(autouse=True)
def recent(rows):
    """Let the rows be recent, because roll-ups of minutes cover only the last three hours."""
    rows.now = timezone.now().replace(minute=30)


def all_differences() -> list[str]:
    """Return all differences between the roll-ups and the rows."""
    return [line for seconds in WIDTHS for line in differences(seconds)]


def exact() -> bool:
    found = all_differences()
    assert not found, "\n".join(found[:20])
    return True


def figures(dice: random.Random) -> dict[str, int | None]:
    names = ("end_to_end_duration", "alignment_max", "start_delay_max", "state_size", "checkpointed_size")
    return {name: dice.choice([None, 0, 1, dice.randrange(10**9), dice.randrange(10**16)]) for name in names}


def test_roll_ups_follow_a_checkpoint_from_its_start_to_its_correction(rows, pipeline):
    run = rows.run(rows.job())
    made = rows.checkpoint(run, 1, status=CheckpointStatus.IN_PROGRESS)
    pipeline.run()
    assert Rollup.objects.get(seconds=3600).pending == 1
    made.status, made.end_to_end_duration, made.processed_data = CheckpointStatus.COMPLETED, 700, 12
    made.save()
    pipeline.run()
    assert Rollup.objects.get(seconds=86_400).duration_sum == 700
    Checkpoint.objects.update(end_to_end_duration=900)
    pipeline.run()
    assert exact()
    assert list(Rollup.objects.values_list("duration_max", flat=True)) == [900] * 3


def test_irrelevant_changes_start_no_batch(rows, pipeline):
    rows.checkpoint(rows.run(rows.job()), 1)
    assert len(pipeline.run()) == 1
    Checkpoint.objects.update(discarded=True)  # a change that roll-ups do not contain
    rows.job()  # an unrelated transaction
    assert pipeline.run() == []


def test_the_offset_waits_for_a_long_transaction_and_skips_no_later_one(rows, pipeline):
    rows.checkpoint(rows.run(rows.job()), 1)
    other = rows.run(rows.job())  # a transaction waits for another one that writes checkpoints of the same run
    with psycopg.connect(dsn()) as slow:
        slow.execute("UPDATE monitoring_checkpoint SET end_to_end_duration = 5 WHERE checkpoint_id = 1")
        rows.checkpoint(other, 2)  # this transaction begins later and ends earlier
        pipeline.run()
        before = dict(pipeline.offset)
        rows.checkpoint(other, 3)
        assert pipeline.run() == []
        assert pipeline.offset == before
        slow.commit()
    pipeline.run()
    assert exact()
    assert sorted(Rollup.objects.filter(seconds=3600).values_list("completed", flat=True)) == [1, 2]


def test_a_transaction_that_commits_after_a_later_one_is_read(rows, pipeline):
    """The late transaction has a lower number than the one that has already been read."""
    run = rows.run(rows.job())
    rows.checkpoint(run, 1)
    with psycopg.connect(dsn()) as old:
        old.execute("SELECT pg_current_xact_id()")
        Checkpoint.objects.update(end_to_end_duration=1)
        pipeline.run()
        old.execute("UPDATE monitoring_checkpoint SET end_to_end_duration = 2")
        old.commit()
    pipeline.run()
    assert Rollup.objects.get(seconds=86_400).duration_max == 2
    assert exact()


def test_deleted_checkpoints_are_no_longer_counted(rows, pipeline):
    run = rows.run(rows.job())
    kept, gone = rows.checkpoint(run, 1), rows.checkpoint(run, 2, triggered_at=rows.ago(5000))
    pipeline.run()
    gone.delete()
    pipeline.run()
    assert exact()
    assert {each.start: each.completed for each in Rollup.objects.filter(seconds=60)} == {
        kept.triggered_at.replace(second=0, microsecond=0): 1,
        gone.triggered_at.replace(second=0, microsecond=0): 0,
    }


def test_roll_ups_of_a_deleted_job_are_deleted(rows, pipeline):
    job, other = rows.job(), rows.job()
    for each in (job, other):
        rows.checkpoint(rows.run(each), 1)
    pipeline.run()
    job.current_run = None
    job.save()
    job.delete()
    pipeline.run()
    assert exact()
    assert set(Rollup.objects.values_list("job_id", flat=True)) == {other.pk}


def test_a_long_history_is_read_completely_in_several_batches(rows, dsn_file):
    dice = random.Random(3)
    runs = [rows.run(rows.job()) for _ in range(3)]
    for number in range(120):
        rows.checkpoint(dice.choice(runs), number + 1, triggered_at=rows.ago(number * 2500), **figures(dice))
    pipeline = Pipeline(dsn_file, rows_per_batch=20)
    ends = pipeline.run()
    assert len(ends) > 4
    assert all(end["done"] == 0 and end["until"] == ends[0]["until"] for end in ends[:-1])
    assert set(ends[-1]) == {"done", "program"}
    assert not differences(3600) + differences(86_400)


def test_a_replaced_database_is_read_from_the_beginning(rows, pipeline):
    rows.checkpoint(rows.run(rows.job()), 1)
    pipeline.offset = {"done": 10**15, "program": PROGRAM}
    pipeline.run()
    assert exact()
    assert pipeline.offset["done"] < 10**15


def test_roll_ups_equal_sql_after_random_changes_restarts_and_restores(rows, dsn_file):
    """Transactions commit in any order, batches run twice, and older offsets are restored."""
    dice = random.Random(20261121)
    numbers = iter(range(1, 10_000))
    runs, slow_runs = ([rows.run(rows.job()) for _ in range(3)] for _ in range(2))
    for run in slow_runs * 4:
        rows.checkpoint(run, next(numbers), triggered_at=rows.ago(dice.random() * 9000), **figures(dice))
    pipeline = Pipeline(dsn_file, rows_per_batch=15)
    states = [pipeline.offset]
    # Each writes to another run, because two transactions that write checkpoints of one run wait for each other.
    open_ones = {run.pk: psycopg.connect(dsn()) for run in slow_runs}
    try:
        for _ in range(60):
            match dice.randrange(8):
                case 0 | 1:
                    at = rows.now - timedelta(seconds=dice.choice([10, 600, 4000, 90_000]) * dice.random())
                    rows.checkpoint(dice.choice(runs), next(numbers), triggered_at=at, **figures(dice))
                case 2:
                    rows.failed(dice.choice(runs), next(numbers), rows.ago(dice.random() * 9000), 'Ärger: x, "y".\nz')
                case 3 | 4:
                    run, one = dice.choice([*open_ones.items()])
                    some = f"SELECT id FROM monitoring_checkpoint WHERE run_id = {run} ORDER BY random() LIMIT 3"
                    duration = dice.randrange(10**6)
                    one.execute(
                        f"UPDATE monitoring_checkpoint SET end_to_end_duration = {duration} WHERE id IN ({some})"
                    )
                case 5:
                    one = dice.choice([*open_ones.values()])
                    one.commit() if dice.random() < 0.8 else one.rollback()
                case 6:
                    pipeline.run()
                    states.append(dict(pipeline.offset))
                case 7:
                    start, again = dict(pipeline.offset), Pipeline(dsn_file, rows_per_batch=15)
                    end = pipeline.reader.latestOffset(start)
                    if end != start and dice.random() < 0.5:
                        pipeline.batch(start, end)  # the batch's commit was lost, so the next process runs it again
                        again.batch(start, end)
                        again.offset = end
                    else:
                        again.offset = dice.choice(states)
                    pipeline = again
        for one in open_ones.values():
            one.commit()
        pipeline.run()
        assert exact()
        assert Rollup.objects.filter(seconds=60).count() > 10
    finally:
        for one in open_ones.values():
            one.close()


def test_wrong_clocks_do_not_change_the_roll_ups(rows, pipeline, monkeypatch):
    """The engine's clock ran backwards or years ahead, and the roll-up machine's clock was wrong, too."""
    run = rows.run(rows.job())
    for number, seconds in enumerate((7200, 10, 5000, -86_400 * 3000, 86_400 * 9000, 20)):
        rows.checkpoint(run, number + 1, triggered_at=rows.ago(seconds), end_to_end_duration=number)
    pipeline.run()
    here = time.time()
    monkeypatch.setattr(time, "time", lambda: here + 10 * 86_400)
    Checkpoint.objects.filter(checkpoint_id__lt=4).update(end_to_end_duration=1000)
    pipeline.run()
    assert not differences(3600) + differences(86_400)
    recent = Rollup.objects.filter(seconds=60, start__gte=rows.ago(8000), start__lt=rows.ago(0))
    assert sorted(recent.values_list("duration_max", flat=True)) in ([5, 1000, 1000, 1000], [1000] * 3)


def test_roll_ups_of_a_newer_version_stop_the_program_and_are_not_changed(rows, pipeline):
    run = rows.run(rows.job())
    moment = rows.now.replace(hour=12)
    rows.checkpoint(run, 1, triggered_at=moment)
    pipeline.run()
    Rollup.objects.update(version=4)
    rows.checkpoint(run, 2, triggered_at=moment - timedelta(hours=2))
    with pytest.raises(NotReadable, match="there are roll-ups of version 4, and this program writes version 3"):
        pipeline.run()
    assert set(Rollup.objects.values_list("version", "completed")) == {(4, 1)}


def test_a_job_started_by_an_older_program_reads_everything_again(rows, pipeline):
    run = rows.run(rows.job())
    rows.checkpoint(run, 1, end_to_end_duration=5)
    pipeline.run()
    Rollup.objects.update(duration_sum=0)
    before = RollupProgress.objects.get()
    del pipeline.offset["program"]  # version 2 stored none
    assert pipeline.run()[0] == pipeline.reader.initialOffset()
    assert exact()
    assert RollupProgress.objects.get().done >= before.done > 0


def test_a_batch_fails_if_its_hours_were_deleted_after_planning(rows, pipeline):
    run = rows.run(rows.job())
    for hours in (1, 2):
        rows.checkpoint(run, hours, triggered_at=rows.ago(60 * 86_400 + hours * 3600))
    pipeline.run()
    Checkpoint.objects.filter(checkpoint_id=1).update(end_to_end_duration=7)
    start, end = dict(pipeline.offset), pipeline.reader.latestOffset(pipeline.offset)
    planned = pipeline.reader.partitions(start, end)
    forget(rows.now)
    pipeline.reader.partitions = lambda *_: planned
    with pytest.raises(NotReadable, match="hours were deleted after this batch was planned"):
        pipeline.batch(start, end)
    again = Pipeline(Path(pipeline.dsn_file))
    again.offset = start
    again.run()
    assert not differences(86_400)


def test_available_now_ignores_changes_made_after_its_start(rows, pipeline):
    """Spark reads the end once before the first batch. Later rows belong to the next run."""
    run = rows.run(rows.job())
    rows.checkpoint(run, 1)
    pipeline.reader.prepareForTriggerAvailableNow()
    rows.checkpoint(run, 2)
    pipeline.run()
    assert Rollup.objects.get(seconds=3600).completed in (1, 2)  # 1 or 2, because the whole hour is read
    rows.checkpoint(run, 3, triggered_at=rows.ago(7200))
    assert pipeline.run() == []
    again = Pipeline(Path(pipeline.dsn_file))
    again.offset = pipeline.offset
    again.run()
    assert exact()


def test_rows_written_during_reading_are_not_skipped(rows, pipeline):
    runs = [rows.run(rows.job()) for _ in range(3)]
    address = dsn()

    def write(run) -> None:
        with psycopg.connect(address) as own:
            for number in range(60):
                own.execute(
                    "INSERT INTO monitoring_checkpoint (run_id, checkpoint_id, status, is_savepoint, checkpoint_type,"
                    " savepoint_format, triggered_at, failure_message, num_subtasks, num_acknowledged_subtasks,"
                    " external_path, discarded, final, first_seen_at, end_to_end_duration) VALUES"
                    " (%s, %s, 'COMPLETED', false, 'CHECKPOINT', '', now(), '', 1, 1, '', false, true, now(), %s)",
                    [run.pk, number, number],
                )
                if number % 7 == 6:
                    own.commit()

    threads = [threading.Thread(target=write, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        pipeline.run()
    pipeline.run()
    assert exact()
    assert Checkpoint.objects.count() == 180


def test_operators_that_are_stored_after_their_checkpoint_are_read(rows, pipeline):
    made = rows.checkpoint(rows.run(rows.job()), 1, end_to_end_duration=7)
    pipeline.run()
    part = {"checkpoint": made, "vertex_id": "a", "name": "a", "num_subtasks": 1, "num_acknowledged_subtasks": 1}
    OperatorCheckpoint.objects.create(**part, state_size=12)
    Checkpoint.objects.filter(pk=made.pk).update(final=True)
    start, reader = pipeline.offset, pipeline.reader
    end = reader.latestOffset(start)
    read = pa.Table.from_batches(
        [batch for each in reader.partitions(start, end) for batch in reader.read(each)], CHANGES
    )
    operators = read.filter(pc.field("operator") == "a").to_pylist()
    assert [(row["status"], row["state_size"], row["duration"]) for row in operators] == [("COMPLETED", 12, None)]
