"""Exactly the old partitions are moved to the archive. If the process is killed at any moment, no row is lost."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.db import connection

from checkpointing.storage.layout import temporary_name
from monitoring.history.archive import archiving, cycle, due, spans
from monitoring.history.archive.moving import ChangedMeanwhile, Mover
from monitoring.history.forgetting import forget
from monitoring.history.partitions import TABLES, partitions_of
from monitoring.history.quantiles import NotRolledUp, figures_of_ranges, series
from monitoring.history.stretches import Stretch
from monitoring.models import (
    ArchivedFile,
    ArchivedKind,
    ArchivedState,
    Checkpoint,
    CounterSample,
    OperatorCheckpoint,
    Rollup,
    RollupProgress,
    Savepoint,
)
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.reason import from_text
from monitoring.reasons.work import WorkReason
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import MOVED, NOW, OLD, advance, everything, fill
from tests.monitoring.history.conftest import Pipeline, differences
from tests.monitoring.reported import NOTHING, done

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
ROOT = Path(__file__).resolve().parents[3]


def first_span() -> spans.Span:
    return spans.due(NOW)[0]


def test_old_rows_are_moved_unchanged_and_keep_their_roll_ups(old: Rows, pipeline: Pipeline, archive: Path) -> None:
    fill(old)
    pipeline.run()
    before, rolled = everything(), list(Rollup.objects.order_by("seconds", "start").values_list())

    assert advance() == MOVED

    assert everything() == before
    assert Checkpoint.objects.count() == CounterSample.objects.count() == 100
    assert OperatorCheckpoint.objects.count() == 200
    assert {each.name for each in archive.rglob("cluster=*/month=2026-08/*.json")} == {"manifest.json"}
    assert advance() == NOTHING
    # A change in an archived day must not recompute its roll-ups from its few rows in PostgreSQL.
    late = old.checkpoint(Checkpoint.objects.first().run, 5000, triggered_at=OLD + timedelta(seconds=1))
    late.delete()
    pipeline.run()
    pipeline.offset = pipeline.reader.initialOffset()
    pipeline.run()
    days = [row for row in rolled if row[1] != 60]
    assert [row for row in Rollup.objects.order_by("seconds", "start").values_list() if row[1] != 60] == days
    assert not [line for line in differences(86_400) if "2026, 11" in line]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_kill_before_any_step_neither_loses_nor_duplicates_rows(old: Rows, pipeline: Pipeline, archive: Path) -> None:
    fill(old, 12, timedelta(minutes=55))
    pipeline.run()
    before = hashlib.sha256(repr(everything()).encode()).hexdigest()
    command = [sys.executable, "-m", "tests.monitoring.history.kill_archiving", str(archive)]
    environ = os.environ | {"DATABASE_URL": database_url()}

    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=800)

    assert done.returncode == 0, done.stderr
    figures_of_ranges = [line.split("|") for line in done.stdout.splitlines()]
    assert [step for step, digest in figures_of_ranges if digest != before] == []
    assert figures_of_ranges[-1][0] == "ended 0", done.stderr
    seen = {step.split(": ")[-1].split()[0] for step, _ in figures_of_ranges}
    assert seen >= {"watch", "plan", "move", "manifests", "close", "read", "write", "replace", "manifest"}
    assert not Checkpoint.objects.filter(triggered_at__lt=NOW - timedelta(days=60)).exists()
    known = {each.path for each in ArchivedFile.objects.filter(state=ArchivedState.LIVE)}
    assert {str(each.relative_to(archive)) for each in archive.rglob("*.parquet")} == known
    assert len(known) == ArchivedFile.objects.count() == 3


def database_url() -> str:
    known = {name: quote(str(connection.settings_dict[name]), safe="") for name in ("USER", "PASSWORD", "HOST", "NAME")}
    user, password, host, name = known.values()
    return f"postgresql://{user}:{password}@{host}:{connection.settings_dict['PORT']}/{name}"


def test_a_row_that_changes_during_archiving_is_archived_with_its_new_values(
    old: Rows, pipeline: Pipeline, mover: Mover
) -> None:
    run = fill(old, 12, timedelta(minutes=55))
    pipeline.run()
    steps = archiving.steps(first_span(), mover)
    while next(steps) != "close":
        pass
    changed = run.checkpoints.get(checkpoint_id=3)
    Checkpoint.objects.filter(pk=changed.pk).update(external_path="file:/elsewhere")
    before = everything()
    with pytest.raises(ChangedMeanwhile, match="changed while it was archived"):
        next(steps)
    assert everything() == before
    assert advance() == MOVED
    assert everything() == before
    assert advance() == NOTHING


def test_rows_that_live_jobs_and_savepoints_need_are_archived_but_not_deleted(old: Rows, pipeline: Pipeline) -> None:
    """An engine lists its newest failed checkpoint at any age, and a poll would store a missing row again."""
    run = fill(old, 30, timedelta(minutes=55))
    idle = fill(old, 5, cluster=run.job.cluster)
    idle.checkpoints.filter(triggered_at__gte=NOW - timedelta(days=1)).delete()
    saved = run.checkpoints.get(checkpoint_id=7)
    Savepoint.objects.create(job=run.job, run=run, checkpoint=saved, state="completed", requested_at=OLD)
    run.checkpoints.filter(triggered_at__gte=NOW - timedelta(days=1)).update(status="COMPLETED")
    pipeline.run()
    advance()
    stay = Checkpoint.objects.filter(triggered_at__lt=NOW - timedelta(days=60))
    assert set(stay.filter(run=run).values_list("checkpoint_id", flat=True)) == {7, 30}
    assert stay.filter(run=idle).count() == 5
    assert OperatorCheckpoint.objects.filter(checkpoint__in=stay).count() == 2 * 7
    archived = ArchivedFile.objects.filter(kind=ArchivedKind.CHECKPOINTS)
    assert sum(each.rows for each in archived) == 35
    assert CounterSample.objects.filter(run=idle).count() == 100


def test_a_partition_without_complete_roll_ups_is_not_dropped(old: Rows, pipeline: Pipeline) -> None:
    fill(old, 12)
    assert spans.holds(first_span()) == WorkReason.ROLLUPS_NEVER_MADE()
    pipeline.run()
    assert spans.holds(first_span()) is None
    Checkpoint.objects.filter(checkpoint_id=3).update(state_size=1)
    assert spans.holds(first_span()) == WorkReason.ROLLUPS_BEHIND()
    pipeline.run()
    Rollup.objects.filter(seconds=86_400, start__lt=OLD).delete()
    assert spans.holds(first_span()) == WorkReason.ROLLUPS_DIFFER(count=1)
    RollupProgress.objects.update(done=2**60)
    assert spans.holds(first_span()) == WorkReason.ROLLUPS_OF_ANOTHER_SERVER()
    Checkpoint.objects.filter(checkpoint_id=4).update(status="IN_PROGRESS", final=False)
    assert str(spans.holds(first_span())).startswith("1 of its checkpoints may still change, for example of job job-")
    report = str(advance())
    assert report.startswith(
        "Checkpoints and operators of 10 August to 16 August 2026 cannot be archived yet. 1 of its"
    )
    assert Checkpoint.objects.count() == 112


def test_recent_rows_are_not_archived(old: Rows, pipeline: Pipeline, settings) -> None:
    fill(old, 12)
    pipeline.run()
    settings.HISTORY_KEPT = timedelta(days=100)
    assert spans.due(NOW) == []
    assert advance() == due.look(NOW) == NOTHING


def test_a_missing_partition_is_reported_and_the_others_are_archived(old: Rows, pipeline: Pipeline) -> None:
    fill(old, 12)
    pipeline.run()
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE monitoring_operatorcheckpoint_20260810")
    assert str(advance()).startswith(
        "Archived checkpoints of 10 August to 16 August 2026. There was no partition of operators."
    )
    assert partitions_of(TABLES[1])[0].end == partitions_of(TABLES[0])[0].end


@pytest.mark.nightly
def test_archiving_on_a_full_disk_loses_no_rows_and_succeeds_once_there_is_space(
    old: Rows, pipeline: Pipeline, small_disk: Path, settings
) -> None:
    fill(old, 12)
    pipeline.run()
    before = everything()
    settings.ARCHIVE = str(small_disk / "archive")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 8192))  # free space for the beginning of a file only
    with pytest.raises(OSError, match="No space left"):
        advance()
    assert everything() == before
    known = {each.path for each in ArchivedFile.objects.all()}
    assert {str(each.relative_to(settings.ARCHIVE)) for each in small_disk.rglob("*.parquet")} <= known
    filler.unlink()
    assert advance() == MOVED
    assert everything() == before


@pytest.fixture
def unusable(old: Rows, pipeline: Pipeline, tmp_path: Path) -> str:
    """Return a location that cannot be written, and have rows that are due."""
    fill(old, 12, checkpoints_only=True)
    pipeline.run()
    (tmp_path / "file").touch()
    return str(tmp_path / "file" / "archive")


def test_the_command_ends_with_a_reason_if_the_location_cannot_be_written(
    unusable: str, settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.ARCHIVE = unusable
    with pytest.raises(SystemExit) as ended:
        call_command("archive", "advance", "--json")
    reason = from_text(capsys.readouterr().out)
    assert (ended.value.code, reason.code) == (1, ArchiveReason.UNUSABLE)
    assert unusable.removesuffix("/archive") in reason.args["problem"]
    assert Checkpoint.objects.count() == 112


@pytest.mark.nightly
def test_the_task_fails_with_the_reason_of_its_process(unusable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url())
    monkeypatch.setenv("WAYMARK_ARCHIVE", unusable)
    with pytest.raises(due.NotArchived) as failed:
        due.look(NOW)
    assert failed.value.reason.code is ArchiveReason.UNUSABLE
    assert unusable.removesuffix("/archive") in failed.value.reason.args["problem"]
    assert Checkpoint.objects.count() == 112


@pytest.mark.nightly
def test_expired_files_are_deleted_and_roll_ups_of_their_days_do_not_change(
    old: Rows, pipeline: Pipeline, archive: Path, settings
) -> None:
    fill(old, 12)
    pipeline.run()
    advance()
    days = Rollup.objects.filter(seconds=86_400).count()
    settings.ARCHIVE_KEPT = timedelta(days=95)
    files = ArchivedFile.objects.count()
    assert advance() == done(WorkReason.FILES_REMOVED(count=files, days=95))
    assert not [*archive.rglob("*.parquet"), *archive.rglob("*.json")]
    assert {each.state for each in ArchivedFile.objects.all()} == {ArchivedState.REMOVED}
    pipeline.offset = pipeline.reader.initialOffset()
    pipeline.run()
    assert Rollup.objects.filter(seconds=86_400).count() == days
    assert advance() == NOTHING


@pytest.mark.nightly
def test_quantiles_and_series_are_the_same_before_and_after_archiving(
    old: Rows, pipeline: Pipeline, archive: Path, settings
) -> None:
    run = fill(old, 60)
    pipeline.run()
    job, minutes = run.job, timedelta(minutes=1)
    asked = [
        Stretch(OLD - timedelta(hours=1), OLD + timedelta(days=3)),
        Stretch(OLD + 130 * minutes, OLD + 610 * minutes),
        Stretch(OLD + 130 * minutes, OLD + 140 * minutes, run.pk),
        Stretch(OLD + 13 * timedelta(hours=1), NOW),
    ]
    wanted = (0.5, 0.99)
    before = figures_of_ranges(job, asked, ["duration", "state_size"], wanted)
    by_hour = series(job, OLD, OLD + timedelta(hours=30), seconds=3600)
    settings.HOURS_KEPT = timedelta(days=95)
    assert "Hour roll-ups before 2026-08-18 deleted: 20." in str(forget(NOW))
    assert figures_of_ranges(job, asked, ["duration", "state_size"], wanted) == before
    assert series(job, OLD, OLD + timedelta(hours=30), seconds=3600) == by_hour
    advance()
    assert figures_of_ranges(job, asked, ["duration", "state_size"], wanted) == before
    assert series(job, OLD, OLD + timedelta(hours=30), seconds=3600) == by_hour
    done = RollupProgress.objects.get()
    RollupProgress.objects.all().delete()
    assert figures_of_ranges(job, asked, ["duration", "state_size"], wanted) == before
    done.save(force_insert=True)
    for file in archive.glob("checkpoints/*/month=2026-08/*.parquet"):
        file.unlink()
    days = figures_of_ranges(job, [Stretch(OLD - timedelta(hours=12), OLD + timedelta(days=3))], ["duration"], wanted)[
        0
    ]["duration"]
    assert (days.counts, days.quantiles) == (before[0]["duration"].counts, before[0]["duration"].quantiles)
    with pytest.raises(NotRolledUp, match="it is missing"):
        figures_of_ranges(job, asked[1:2], ["duration"], wanted)


def test_an_unfinished_file_of_a_killed_process_is_removed(db: None, archive: Path) -> None:
    path = "checkpoints/cluster=1/month=2026-08/a-0.parquet"
    ArchivedFile.objects.create(
        kind=ArchivedKind.CHECKPOINTS, cluster_id=1, month=OLD.date().replace(day=1), since=OLD, until=OLD, path=path,
        rows=0, size=0, least_id=0, greatest_id=0, state=ArchivedState.GOING,
    )  # fmt: skip
    place = archive / path
    place.parent.mkdir(parents=True)
    place.with_name(temporary_name(place.name)).touch()
    cycle.forget(NOW)
    assert not place.parent.exists()
    assert not ArchivedFile.objects.exists()
