"""The roll-up program with a real Spark session and a real table: exact after restarts and restores of older state."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db.models import Max
from django.utils import timezone
from pyspark.errors import StreamingQueryException

from checkpointing.sinks import context
from checkpointing.sinks.conformance import PlayedJob
from checkpointing.spark.job import make_importable_for_workers
from checkpointing.spark.program import load_program
from monitoring.history.forgetting import forget
from monitoring.history.packing import ENTRY_CLASS, pack
from monitoring.history.partitions import cover
from monitoring.models import Checkpoint, OperatorCheckpoint, OperatorRollup, Rollup, RollupProgress, Run
from tests.monitoring.history.archive_rows import take_partitions_back
from tests.monitoring.history.conftest import differences, operator_differences
from tests.monitoring.history.test_changes import WIDTHS, all_differences, exact
from tests.waiting import eventually

pytestmark = pytest.mark.spark


@pytest.fixture
def job(transactional_db: None) -> Iterator[PlayedJob]:
    yield PlayedJob()
    context._current = None
    # A sink's connections are closed when the driver's process ends, but this process continues.
    for each in [each for each in gc.get_objects() if isinstance(each, psycopg.Connection) and not each.closed]:
        if each.info.get_parameters().get("application_name", "").startswith("waymark"):
            each.close()


@pytest.fixture(scope="module")
def rollups(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Load the program and distribute it to Spark workers, as a driver does."""
    directory = tmp_path_factory.mktemp("program")
    program = load_program(pack(directory / "waymark_history.zip"), ENTRY_CLASS, directory)
    make_importable_for_workers(spark, program)
    return program.function


def run(spark: Any, rollups: Any, dsn_file: Path, location: Path) -> int:
    """Process all new rows in batches of fifty until the roll-ups are exact. Return the number of the last batch.

    Rows that an open transaction of the server may still precede are not read yet, so several runs may be needed.
    """
    eventually("exact roll-ups", lambda: _run(spark, rollups, dsn_file, location) or not all_differences())
    assert exact()
    assert not [each for seconds in WIDTHS for each in operator_differences(seconds)]
    return max(int(each.name) for each in (location / "commits").iterdir() if each.name.isdigit())


def _run(spark: Any, rollups: Any, dsn_file: Path, location: Path) -> None:
    """Run the query once. Ignore a source's process that takes longer than Spark's ten seconds to start."""
    writer = rollups(spark, {"dsn-file": str(dsn_file), "rows-per-batch": "50"})
    query = writer.option("checkpointLocation", str(location)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(240)
    except StreamingQueryException as error:
        if "Python worker failed to connect back" not in str(error):
            raise
    finally:
        query.stop()


def checkpoint(rows: Any, run: Run, number: int, **values: Any) -> Checkpoint:
    """Store a checkpoint with two operators, of which one has no state."""
    made = rows.checkpoint(run, number, **values)
    for operator, state_size in (("source", None), ("window", 1000 * number)):
        OperatorCheckpoint.objects.create(
            checkpoint=made, vertex_id=operator, name=operator, num_subtasks=1, num_acknowledged_subtasks=1,
            end_to_end_duration=number, state_size=state_size, checkpointed_size=state_size,
        )  # fmt: skip
    return made


def test_roll_ups_are_exact_over_restarts_and_older_states(rows, spark, rollups, job, dsn_file, tmp_path):
    rows.now = timezone.now().replace(minute=30)
    runs = [rows.run(rows.job()) for _ in range(2)]
    for number in range(100):
        at = rows.ago(number * 900)
        checkpoint(rows, runs[number % 2], number + 1, triggered_at=at, end_to_end_duration=number)
    job.start("A")
    last = run(spark, rollups, dsn_file, tmp_path / "a")
    assert last > 0
    assert exact()
    # The progress is stored at once, because pages count changes after it from the checkpoints.
    assert RollupProgress.objects.get().done > Checkpoint.objects.aggregate(last=Max("changed_in"))["last"]
    shutil.copytree(tmp_path / "a", tmp_path / "older")
    state = job.snapshot(last)

    Checkpoint.objects.filter(checkpoint_id__lt=30).update(end_to_end_duration=1_000_000)
    rows.failed(runs[0], 500, rows.ago(3), "Checkpoint expired before completing.")
    job.next_attempt()
    run(spark, rollups, dsn_file, tmp_path / "a")
    assert exact()

    hour = Checkpoint.objects.get(checkpoint_id=70).triggered_at.replace(minute=0, second=0, microsecond=0)
    Checkpoint.objects.filter(run=runs[1], triggered_at__range=(hour, hour + timedelta(hours=1))).delete()
    job.start("B", state)
    run(spark, rollups, dsn_file, tmp_path / "older")
    assert Rollup.objects.filter(seconds=86_400, failed=1).count() == 1
    left = OperatorRollup.objects.filter(job=runs[1].job, seconds=3600, start=hour)
    assert list(left.order_by("operator").values_list("operator", "completed", "state_size_max")) == [
        ("source", 0, None),
        ("window", 0, None),
    ]
    Checkpoint.objects.filter(checkpoint_id__in=(1, 2)).delete()
    run(spark, rollups, dsn_file, tmp_path / "older")
    minutes = OperatorRollup.objects.filter(seconds=60)
    assert set(minutes.filter(completed=0).values_list("operator", "duration_sketch")) == {
        ("source", b""), ("window", b""),
    }  # fmt: skip
    assert minutes.filter(completed=1).count() > 2


@pytest.fixture
def moments(rows, job: PlayedJob) -> Iterator[list[datetime]]:
    """Return three times of a day 60 days ago, which has partitions."""
    rows.now = timezone.now().replace(hour=12, minute=30)
    found = [rows.ago(60 * 86_400 + hours * 3600) for hours in (0, 2, 5)]
    cover(min(found))
    yield found
    take_partitions_back()


@pytest.mark.nightly
def test_a_day_without_hours_is_computed_from_all_its_checkpoints(
    rows, moments, spark, rollups, job, dsn_file, tmp_path
):
    owner = rows.run(rows.job())
    for number, at in enumerate(moments):
        rows.checkpoint(owner, number + 1, triggered_at=at, end_to_end_duration=100 + number)
    job.start("A")
    run(spark, rollups, dsn_file, tmp_path / "a")
    assert forget(rows.now).done
    Checkpoint.objects.filter(checkpoint_id=2).update(end_to_end_duration=7)
    rows.failed(owner, 100, rows.ago(60 * 86_400 + 9 * 3600), "Disk full: /dev/sda")
    job.next_attempt()
    eventually("an exact day", lambda: _run(spark, rollups, dsn_file, tmp_path / "a") or not differences(86_400))
    assert not Rollup.objects.filter(seconds=3600).exists()
