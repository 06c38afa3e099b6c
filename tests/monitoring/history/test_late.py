"""Late rows for an archived day are counted exactly and archived, even if the process is killed at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from monitoring.history.archive import cycle, due, reading
from monitoring.history.quantiles import quantiles
from monitoring.history.sketches import K, merged
from monitoring.history.sketches import quantiles as quantiles_of
from monitoring.models import (
    ArchivedFile,
    ArchivedState,
    Checkpoint,
    OperatorCheckpoint,
    OperatorRollup,
    PartitionTouch,
    Rollup,
    Run,
    Savepoint,
)
from monitoring.reasons.work import WorkReason
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import MOVED, OLD, advance, fill
from tests.monitoring.history.conftest import Pipeline, Rollups, dsn, operators_by_sql, stored_operators, unlike
from tests.monitoring.history.test_archive import ROOT, database_url
from tests.monitoring.reported import NOTHING, done

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.usefixtures("spark")]
SECOND = timedelta(seconds=1)
TAKEN = done(WorkReason.ARCHIVED_LATE(count=1))


def come_late(rows: Rows, run: Run) -> None:
    """Store late checkpoints: between, before and after the others of the day, a failed one, and a corrected one."""
    rows.checkpoint(run, 5001, triggered_at=OLD + 61 * SECOND, end_to_end_duration=7, final=True)
    rows.checkpoint(run, 5002, triggered_at=OLD.replace(hour=0), is_savepoint=True, final=True)
    rows.checkpoint(run, 5003, triggered_at=OLD.replace(hour=23, minute=59), alignment_max=12, final=True)
    rows.failed(run, 5004, OLD + 62 * SECOND, "Disk full: /dev/sda")
    Checkpoint.objects.filter(run=run, checkpoint_id=5004).update(final=True)
    Checkpoint.objects.filter(run=run, checkpoint_id=7).update(end_to_end_duration=77_777)


def keep(run: Run) -> None:
    """Let the run's checkpoint 7 stay in PostgreSQL when its day is archived, by a savepoint that refers to it."""
    saved = run.checkpoints.get(checkpoint_id=7)
    Savepoint.objects.create(job=run.job, run=run, checkpoint=saved, state="completed", requested_at=OLD)


def figures(run: Run) -> list[dict[str, Any]]:
    """Return all roll-ups of hours and days of the job in August, with the values of their sketches."""
    found = Rollup.objects.filter(job=run.job, seconds__gt=60, start__lt=OLD + timedelta(days=20))
    return [
        {name: values_of(value) if name.endswith("_sketch") else value for name, value in row.items()}
        for row in found.order_by("seconds", "start").values(
            *(each.name for each in Rollup._meta.concrete_fields if each.name != "job")
        )
    ]


def values_of(sketch: memoryview) -> list[float | None]:
    """Return all values of a sketch that is small enough to have them."""
    whole = merged([sketch])
    assert whole.n < K
    return quantiles_of(whole, [(n + 1) / whole.n for n in range(whole.n)])


@pytest.fixture
def share_a_cluster() -> bool:
    """Return whether the rows of both runs are in the same files."""
    return True


@pytest.fixture
def twins(old: Rows, pipeline: Pipeline, archive: Path, share_a_cluster: bool) -> tuple[Run, Run]:
    """Return two archived runs with equal checkpoints. The second run already has the rows that the first gets late."""
    late_one = fill(old, 40, checkpoints_only=True)
    prompt = fill(old, 40, cluster=late_one.job.cluster if share_a_cluster else None, checkpoints_only=True)
    keep(late_one)
    keep(prompt)
    come_late(old, prompt)
    pipeline.run()
    assert advance().done[0].code is WorkReason.ARCHIVED
    assert not PartitionTouch.objects.exists()  # rows that stay in PostgreSQL do not count as late
    return late_one, prompt


def test_late_rows_are_counted_like_punctual_ones(old: Rows, pipeline: Pipeline, twins) -> None:
    late_one, prompt = twins
    assert figures(late_one) != figures(prompt)
    come_late(old, late_one)
    pipeline.run()
    assert figures(late_one) != figures(prompt)
    assert due.anything_late()
    assert advance() == TAKEN
    assert figures(late_one) == figures(prompt)
    archived = reading.for_rollups(late_one.job, [late_one.pk], OLD.replace(hour=0), OLD + timedelta(hours=12))
    assert sum(each.num_rows for each in archived) == 36 + 4
    begun = (OLD - 30 * SECOND, OLD + 90 * SECOND)  # partial hours are counted from the archive
    assert (quantiles(late_one.job, *begun).counts, quantiles(late_one.job, *begun).total) == (
        quantiles(prompt.job, *begun).counts,
        quantiles(prompt.job, *begun).total,
    )
    assert advance() == NOTHING
    pipeline.offset = pipeline.reader.initialOffset()
    pipeline.run()
    assert figures(late_one) == figures(prompt)


def test_late_rows_are_counted_for_their_operators(old: Rows, pipeline: Pipeline, archive: Path) -> None:
    """The expected figures are those of a job that had the same rows in time, by SQL before its days were archived."""
    late_one = fill(old, 20)
    prompt = fill(old, 20, cluster=late_one.job.cluster)
    for run in (late_one, prompt):
        give_figures(run)
        keep(run)
    come_late_with_operators(old, prompt)
    expected = {seconds: of_operators(operators_by_sql(seconds), prompt) for seconds in (3600, 86_400)}
    pipeline.run()
    assert advance() == MOVED
    assert not OperatorRollup.objects.exists()
    come_late_with_operators(old, late_one)
    assert advance() == TAKEN
    assert OperatorCheckpoint.objects.filter(triggered_at__lt=OLD + timedelta(days=20)).count() < 20
    for seconds, rows in expected.items():
        assert unlike(rows, of_operators(stored_operators(seconds), late_one)) == []
    assert {row["checkpointed_size_max"] for row in expected[86_400].values()} == {990_000}
    assert not OperatorRollup.objects.filter(job=prompt.job).exists(), "it had no late rows"
    assert advance() == NOTHING


def test_days_that_an_older_version_archived_get_roll_ups_of_operators(
    old: Rows, pipeline: Pipeline, archive: Path
) -> None:
    """An older version archived without such roll-ups, as the pipeline of the tests does."""
    runs = [fill(old, 200, every=timedelta(minutes=10)) for _ in range(2)]
    for run in runs:
        give_figures(run)
    fill(old, 3, checkpoints_only=True)  # a job without operators
    expected = {seconds: in_august(operators_by_sql(seconds)) for seconds in (3600, 86_400)}
    pipeline.run()
    assert advance() == MOVED
    (damaged,) = archive.glob(f"operators/cluster={runs[0].job.cluster_id}/month=2026-08/*.parquet")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-100] + bytes(100))
    with pytest.raises(CommandError, match=rf"\d+ roll-ups were computed. Some are missing:\n.*{damaged.name}"):
        call_command("archive", "operators")
    assert {job for job, _, _ in stored_operators(86_400)} == {runs[1].job_id}
    with (
        another_process_archives(),
        pytest.raises(CommandError, match=r"^Archiving skipped: another process is archiving\.$"),
    ):
        call_command("archive", "operators")
    damaged.write_bytes(content)
    call_command("archive", "operators")
    for seconds, rows in expected.items():
        assert unlike(rows, in_august(stored_operators(seconds))) == []
    assert len(expected[86_400]) == 2 * 2 * 2
    Rollup.objects.filter(job__in=[run.job_id for run in runs]).update(completed=0)
    assert cycle.add_operators() == (0, [])


@contextmanager
def another_process_archives() -> Iterator[None]:
    with psycopg.connect(dsn()) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [cycle._ADVISORY])
        yield


def come_late_with_operators(rows: Rows, run: Run) -> None:
    come_late(rows, run)
    for late in run.checkpoints.filter(checkpoint_id__range=(5001, 5003)):
        for operator, state_size in (("sink", 990_000), ("source", 1)):
            OperatorCheckpoint.objects.create(
                checkpoint=late, triggered_at=late.triggered_at, vertex_id=operator, name=operator, num_subtasks=1,
                num_acknowledged_subtasks=1, state_size=state_size, checkpointed_size=990_000, end_to_end_duration=3,
            )  # fmt: skip


def give_figures(run: Run) -> None:
    for operator in OperatorCheckpoint.objects.filter(checkpoint__run=run).select_related("checkpoint"):
        number = operator.checkpoint.checkpoint_id
        OperatorCheckpoint.objects.filter(pk=operator.pk).update(
            state_size=number * 31, checkpointed_size=number, end_to_end_duration=None if number % 3 else number
        )


def of_operators(rollups: Rollups, run: Run) -> Rollups:
    """Return the roll-ups of the run's job in August, without its key."""
    return {key[1:]: row for key, row in in_august(rollups).items() if key[0] == run.job_id}


def in_august(rollups: Rollups) -> Rollups:
    return {key: row for key, row in rollups.items() if key[1] < OLD + timedelta(days=20)}


def test_late_rows_of_a_job_without_rows_on_that_day_are_counted(old: Rows, twins) -> None:
    run = old.run(old.job(twins[0].job.cluster), started_at=OLD)
    old.checkpoint(run, 1, triggered_at=OLD + 5 * SECOND, end_to_end_duration=3, final=True)
    assert advance() == TAKEN
    (day,) = Rollup.objects.filter(job=run.job)
    assert (day.seconds, day.completed, day.duration_sum) == (86_400, 1, 3)
    assert quantiles(run.job, OLD.replace(hour=0), OLD + timedelta(days=1)).counts["completed"] == 1
    assert quantiles(run.job, OLD - SECOND, OLD + 6 * SECOND).counts["completed"] == 1


def test_a_late_row_of_a_day_without_files_is_archived(old: Rows, pipeline: Pipeline, twins) -> None:
    run = twins[0]
    for days in (2, 3):
        at = OLD + timedelta(days=days)
        old.checkpoint(run, 6000 + days, triggered_at=at, end_to_end_duration=days, final=True)
        pipeline.run()
        assert advance() == TAKEN
    part = quantiles(run.job, OLD + timedelta(days=2, minutes=-10), OLD + timedelta(days=2, minutes=10))
    assert (part.counts["completed"], part.total) == (1, 2)


@pytest.mark.timeout(900)
def test_a_kill_before_any_step_counts_late_rows_exactly_once(
    old: Rows, pipeline: Pipeline, archive: Path, twins
) -> None:
    late_one, prompt = twins
    before = figures(late_one)
    come_late(old, late_one)
    command = [sys.executable, "-m", "tests.monitoring.history.kill_archiving", str(archive), "late"]
    environ = os.environ | {"DATABASE_URL": database_url()}
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    output = [line.split("|") for line in done.stdout.splitlines()]
    assert output[-1][0] == "ended 0", done.stderr
    seen = {step.split(": ")[-1].split()[0] for step, *_ in output}
    assert seen >= {"look", "write", "count", "replace", "manifest", "forget"}
    assert {counted for *_, counted in output} == {_count_text(before), _count_text(figures(prompt))}
    assert {rows for _, rows, _ in output} == {output[0][1]}
    assert figures(late_one) == figures(prompt)
    known = {each.path for each in ArchivedFile.objects.filter(state=ArchivedState.LIVE)}
    assert {str(each.relative_to(archive)) for each in archive.rglob("*.parquet")} == known


def _count_text(rollups: list[dict[str, Any]]) -> str:
    return str(sum(row["completed"] + row["failed"] for row in rollups))


@pytest.mark.parametrize("share_a_cluster", [False])
def test_a_damaged_file_is_reported_and_other_days_are_processed(old: Rows, archive: Path, twins) -> None:
    late_one, prompt = twins
    (file,) = archive.glob(f"checkpoints/cluster={late_one.job.cluster_id}/month=2026-08/*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:-100] + bytes(100))
    come_late(old, late_one)
    next_day: datetime = OLD + timedelta(days=1)
    for run in twins:
        old.checkpoint(run, 6000, triggered_at=next_day, end_to_end_duration=5, final=True)
    report = advance()
    taken, not_counted = report.done
    assert taken == WorkReason.ARCHIVED_LATE(count=1)
    assert str(not_counted).startswith("Late rows of 13 August 2026 are not counted yet: ")
    assert file.name in str(not_counted.args["why"])
    file.write_bytes(content)
    assert advance() == TAKEN
    assert figures(late_one) == figures(prompt)


def test_late_rows_of_a_day_with_deleted_files_are_shown_but_not_counted(
    old: Rows, archive: Path, twins, settings
) -> None:
    late_one, _ = twins
    settings.ARCHIVE_KEPT = timedelta(days=95)
    advance()
    before = figures(late_one)
    come_late(old, late_one)
    assert advance() == NOTHING
    assert figures(late_one) == before
    assert not due.anything_late()
    assert late_one.checkpoints.filter(checkpoint_id=5001).exists()
