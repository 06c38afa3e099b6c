"""Checkpoints and their operators: upserted in one statement per table; a finished row never turns back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Q

from monitoring.engine.answers import Checkpoints, CheckpointStats
from monitoring.models import Checkpoint, CheckpointGap, CheckpointStatus, OperatorCheckpoint, Run
from monitoring.polling.gaps import rolled_over, unseen
from monitoring.polling.observation import CheckpointReading, RunObservation
from monitoring.polling.rows import CHECKPOINT_COLUMNS, OPERATOR_COLUMNS, checkpoint_columns, operator_rows
from monitoring.polling.runs import StoredRun

# Two checkpoints of one id, triggered further apart than this, are two checkpoints.
_SAME_TRIGGER = timedelta(seconds=1)
_REPLACED = "The job manager was replaced while this checkpoint was pending."
_ENDED = "The job ended while this checkpoint was pending."

Stored = Mapping[tuple[int, int], Checkpoint]


@dataclass
class HistoryChanges:
    """What is to be written, collected over all runs."""

    upserts: list[Checkpoint] = field(default_factory=list)
    readings: list[tuple[Checkpoint, Run, CheckpointReading]] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    unseen_ends: list[int] = field(default_factory=list)
    gaps: list[CheckpointGap] = field(default_factory=list)
    new: int = 0
    completed: int = 0
    failed: int = 0


def stored_checkpoints(runs: Iterable[StoredRun]) -> Stored:
    """The rows of every checkpoint that the answers mention."""
    mentioned = Q(pk__in=())
    for each in runs:
        if each.newest_checkpoint is not None and each.observed is not None:
            mentioned |= Q(run=each.run, checkpoint_id__in=_ids(each.observed))
    return {(row.run_id, row.checkpoint_id): row for row in Checkpoint.objects.filter(mentioned)}


def reused(runs: Iterable[StoredRun], stored: Stored) -> set[int]:
    """Keys of the runs whose checkpoint ids began again: the engine id leads another life (an application cluster
    redeployed under its fixed job id)."""
    return {
        each.run.pk
        for each in runs
        for checkpoint_id, stats in _entries(each.observed).items()
        if (row := stored.get((each.run.pk, checkpoint_id))) is not None
        and abs(row.triggered_at - stats.triggered_at) > _SAME_TRIGGER
    }


def write(runs: Iterable[StoredRun], stored: Stored, now: datetime) -> HistoryChanges:
    changes = HistoryChanges()
    for each in runs:
        if each.observed is not None and each.observed.checkpoints is not None:
            _collect(changes, each, each.observed, each.observed.checkpoints, stored, now)
    _save(changes)
    return changes


def _collect(
    changes: HistoryChanges,
    each: StoredRun,
    observed: RunObservation,
    answer: Checkpoints,
    stored: Stored,
    now: datetime,
) -> None:
    entries = _entries(observed)
    lost = {}
    for checkpoint_id in sorted(_ids(observed)):
        row = stored.get((each.run.pk, checkpoint_id))
        listed, reading = entries.get(checkpoint_id), observed.readings.get(checkpoint_id)
        columns = checkpoint_columns(listed, reading)
        if columns is not None:
            _merge(changes, each.run, checkpoint_id, row, columns, reading)
        elif row is not None and row.status == CheckpointStatus.IN_PROGRESS:
            lost[checkpoint_id] = row
        elif row is not None:
            _finish(changes, row)
    _conclude(changes, each, answer, lost, now)


def _merge(
    changes: HistoryChanges,
    run: Run,
    checkpoint_id: int,
    row: Checkpoint | None,
    columns: dict[str, object],
    reading: CheckpointReading | None,
) -> None:
    if row is not None and row.status != CheckpointStatus.IN_PROGRESS and columns["status"] != row.status:
        return
    if row is not None and row.final:
        if columns["discarded"] and not row.discarded:
            changes.discarded.append(row.pk)
        return
    if row is None:
        row = Checkpoint(run=run, checkpoint_id=checkpoint_id)
        changes.new += 1
    before = [getattr(row, column) for column in CHECKPOINT_COLUMNS] if row.pk else None
    was_pending = row.pk is None or row.status == CheckpointStatus.IN_PROGRESS
    for column, value in columns.items():
        setattr(row, column, value)
    changes.completed += was_pending and row.status == CheckpointStatus.COMPLETED
    changes.failed += was_pending and row.status == CheckpointStatus.FAILED
    if before != [getattr(row, column) for column in CHECKPOINT_COLUMNS]:
        changes.upserts.append(row)
    if reading is not None and reading.stats is not None:
        changes.readings.append((row, run, reading))


def _finish(changes: HistoryChanges, row: Checkpoint) -> None:
    """The engine forgot a finished checkpoint before its figures were read: there is nothing more to ask."""
    if not row.final:
        row.final = True
        changes.upserts.append(row)


def _conclude(
    changes: HistoryChanges, each: StoredRun, answer: Checkpoints, lost: Mapping[int, Checkpoint], now: datetime
) -> None:
    """Pending checkpoints that the engine forgot failed if their job manager went; else nobody saw how they ended."""
    oldest = min((entry.id for entry in answer.history), default=0)
    rolled = {
        checkpoint_id: row
        for checkpoint_id, row in lost.items()
        if not each.replaced and rolled_over(answer) and checkpoint_id < oldest
    }
    for checkpoint_id, row in lost.items():
        if checkpoint_id in rolled:
            changes.unseen_ends.append(row.pk)
        else:
            row.status, row.failed_at, row.failure_message, row.final = CheckpointStatus.FAILED, now, _REPLACED, True
            changes.upserts.append(row)
            changes.failed += 1
    for ids in unseen(answer, _newest_seen(each, answer), rolled, replaced=each.replaced):
        changes.gaps.append(CheckpointGap(run=each.run, first_id=ids.first, last_id=ids.last, noticed_at=now))


def _newest_seen(each: StoredRun, answer: Checkpoints) -> int | None:
    if each.newest_checkpoint is not None:
        return each.newest_checkpoint
    if not each.began_unseen:
        return None  # the run is older than our watch, or has no checkpoint yet
    return answer.restored.id if answer.restored is not None else 0


def _save(changes: HistoryChanges) -> None:
    Checkpoint.objects.filter(pk__in=changes.unseen_ends).delete()
    Checkpoint.objects.bulk_create(
        changes.upserts,
        update_conflicts=True,
        unique_fields=["run", "checkpoint_id"],
        update_fields=list(CHECKPOINT_COLUMNS),
    )
    Checkpoint.objects.filter(pk__in=changes.discarded).update(discarded=True)
    OperatorCheckpoint.objects.bulk_create(
        [row for reading in changes.readings for row in operator_rows(*reading)],
        update_conflicts=True,
        unique_fields=["checkpoint", "vertex_id"],
        update_fields=list(OPERATOR_COLUMNS),
    )
    CheckpointGap.objects.bulk_create(changes.gaps, ignore_conflicts=True)


def end_pending(ended: Iterable[Run], now: datetime) -> None:
    """No checkpoint outlives its run."""
    keys = [run.pk for run in ended]
    if not keys:
        return
    open_rows = Checkpoint.objects.filter(run__in=keys, final=False)
    open_rows.filter(status=CheckpointStatus.IN_PROGRESS).update(
        status=CheckpointStatus.FAILED, failed_at=now, failure_message=_ENDED
    )
    open_rows.update(final=True)


def unfinished_runs(runs: Iterable[Run]) -> set[int]:
    """Keys of those that still have checkpoints to be read."""
    keys = [run.pk for run in runs]
    if not keys:
        return set()
    return set(Checkpoint.objects.filter(run__in=keys, final=False).values_list("run_id", flat=True).distinct())


def _entries(observed: RunObservation | None) -> dict[int, CheckpointStats]:
    if observed is None or observed.checkpoints is None:
        return {}
    return {entry.id: entry for entry in (*observed.checkpoints.history, *observed.checkpoints.latest)}


def _ids(observed: RunObservation) -> set[int]:
    return set(_entries(observed)) | set(observed.readings)
