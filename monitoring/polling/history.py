"""Store checkpoints and their operators: one upsert per table. A finished row never becomes unfinished again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monitoring import bulk
from monitoring.engine.answers import Checkpoints
from monitoring.models import Checkpoint, CheckpointGap, CheckpointStatus, OperatorCheckpoint, Run
from monitoring.polling.gaps import rolled_over, unseen
from monitoring.polling.observation import CheckpointReading, RunObservation
from monitoring.polling.rows import (
    CHECKPOINT_COLUMNS,
    OPERATOR_COLUMNS,
    SLOWEST,
    SUBTASK_COLUMNS,
    checkpoint_columns,
    operator_rows,
)
from monitoring.polling.runs import StoredRun

# If the trigger times of one ID differ by more than this, they belong to two checkpoints.
_SAME_TRIGGER = timedelta(seconds=1)
# After a failure, late tasks may still report their figures. Checkpoints are read again for this long to get them.
LATE_REPORTS = timedelta(minutes=2)
_REPLACED = "The job manager was replaced while this checkpoint was pending."
_ENDED = "The job ended while this checkpoint was pending."


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """The stored row of a checkpoint that an answer mentions."""

    pk: int
    run_id: int
    checkpoint_id: int
    status: str
    final: bool
    discarded: bool
    triggered_at: datetime
    latest_ack_at: datetime | None

    @property
    def pending(self) -> bool:
        return self.status == CheckpointStatus.IN_PROGRESS


Stored = Mapping[tuple[int, int], StoredCheckpoint]


@dataclass
class HistoryChanges:
    """Changes to store, collected over all runs. Lists of integers are keys of checkpoints."""

    upserts: list[bulk.Row] = field(default_factory=list)
    readings: list[tuple[Run, int, CheckpointReading]] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    unseen_ends: list[int] = field(default_factory=list)
    gaps: list[CheckpointGap] = field(default_factory=list)
    failed: int = 0


_MENTIONED = """
SELECT c.id, c.run_id, c.checkpoint_id, c.status, c.final, c.discarded, c.triggered_at, c.latest_ack_at
FROM jsonb_to_recordset(%(rows)s::jsonb) AS mentioned (run_id bigint, checkpoint_id bigint)
JOIN monitoring_checkpoint c ON c.run_id = mentioned.run_id AND c.checkpoint_id = mentioned.checkpoint_id
"""


def stored_checkpoints(runs: Iterable[StoredRun]) -> Stored:
    """Return the rows of all checkpoints that the answers mention. IDs above a run's newest one have no row yet."""
    mentioned = [
        {"run_id": each.run.pk, "checkpoint_id": checkpoint_id}
        for each in runs
        if each.newest_checkpoint is not None and each.observed is not None
        for checkpoint_id in _ids(each.observed)
        if checkpoint_id <= each.newest_checkpoint
    ]
    if not mentioned:
        return {}
    rows = [StoredCheckpoint(*row) for row in bulk.read(_MENTIONED, mentioned)]
    return {(row.run_id, row.checkpoint_id): row for row in rows}


def reused(runs: Iterable[StoredRun], stored: Stored, ends_within: timedelta | None = None) -> set[int]:
    """Return the keys of the runs whose checkpoint IDs started again: their engine job ID belongs to a new run now.

    `ends_within`: sources with different clocks report one checkpoint, whose ends differ by at most this.
    """
    return {
        each.run.pk
        for each in runs
        if each.observed is not None
        for checkpoint_id, stats in each.observed.listed.items()
        if (row := stored.get((each.run.pk, checkpoint_id))) is not None
        and abs(row.triggered_at - stats.triggered_at) > _SAME_TRIGGER
        and not (ends_within and _end_together(row.latest_ack_at, stats.totals.latest_ack_at, ends_within))
    }


def _end_together(first: datetime | None, second: datetime | None, within: timedelta) -> bool:
    return first is not None and second is not None and abs(first - second) <= within


def write(runs: Iterable[StoredRun], stored: Stored, now: datetime) -> HistoryChanges:
    changes = HistoryChanges()
    for each in runs:
        if each.observed is not None:
            _collect(changes, each, each.observed, stored, now)
    _save(changes, now)
    return changes


def _collect(
    changes: HistoryChanges,
    each: StoredRun,
    observed: RunObservation,
    stored: Stored,
    now: datetime,
) -> None:
    settled_before = now - LATE_REPORTS if each.run.live else now
    lost = {}
    for checkpoint_id in sorted(_ids(observed)):
        row = stored.get((each.run.pk, checkpoint_id))
        listed, reading = observed.listed.get(checkpoint_id), observed.readings.get(checkpoint_id)
        if row is not None and row.final:
            if listed is not None and listed.discarded and not row.discarded:
                changes.discarded.append(row.pk)
            continue
        columns = checkpoint_columns(listed, reading, settled_before=settled_before)
        if columns is not None:
            _merge(changes, each.run, checkpoint_id, row, columns, reading)
        elif row is not None and row.pending:
            lost[checkpoint_id] = row
        elif row is not None:
            # The engine forgot a finished checkpoint before its figures were read: they are lost.
            changes.finished.append(row.pk)
    if observed.checkpoints is not None:
        _conclude(changes, each, observed.checkpoints, lost, now)


def _merge(
    changes: HistoryChanges,
    run: Run,
    checkpoint_id: int,
    row: StoredCheckpoint | None,
    columns: dict[str, object],
    reading: CheckpointReading | None,
) -> None:
    if row is not None and not row.pending and columns["status"] != row.status:
        return
    if columns["status"] == CheckpointStatus.FAILED and (row is None or row.pending):
        changes.failed += 1
    if row is not None:
        columns["triggered_at"] = row.triggered_at
    changes.upserts.append({"run_id": run.pk, "checkpoint_id": checkpoint_id, **columns})
    if reading is not None and reading.stats is not None:
        changes.readings.append((run, checkpoint_id, reading))


def _conclude(
    changes: HistoryChanges,
    each: StoredRun,
    answer: Checkpoints,
    lost: Mapping[int, StoredCheckpoint],
    now: datetime,
) -> None:
    """Conclude pending checkpoints that the engine forgot.

    They have failed if the job manager was replaced, and otherwise are part of a gap.
    """
    oldest = min((entry.id for entry in answer.history), default=0)
    rolled = {
        checkpoint_id: row
        for checkpoint_id, row in lost.items()
        if not each.replaced and rolled_over(answer) and checkpoint_id < oldest
    }
    changes.unseen_ends += [row.pk for row in rolled.values()]
    replaced = [row.pk for checkpoint_id, row in lost.items() if checkpoint_id not in rolled]
    changes.replaced += replaced
    changes.failed += len(replaced)
    # A job manager lists all its checkpoints until its history rolls over. An older row is of a previous job manager.
    # It may have been replaced at an earlier poll, when the new one had no checkpoint yet.
    may_forget = each.replaced or each.newest_checkpoint is not None
    for ids in unseen(answer, _newest_seen(each, answer), rolled, replaced=may_forget):
        changes.gaps.append(CheckpointGap(run=each.run, first_id=ids.first, last_id=ids.last, noticed_at=now))


def _newest_seen(each: StoredRun, answer: Checkpoints) -> int | None:
    if each.newest_checkpoint is not None:
        return each.newest_checkpoint
    if not each.started_unobserved:
        return None  # the run began before it was monitored, or has no checkpoint yet
    return answer.restored.id if answer.restored is not None else 0


def _save(changes: HistoryChanges, now: datetime) -> None:
    """Store the changes with one statement per kind, and none for kinds without changes."""
    if changes.unseen_ends:
        Checkpoint.objects.filter(pk__in=changes.unseen_ends).delete()
    if changes.replaced:
        Checkpoint.objects.filter(pk__in=changes.replaced).update(
            status=CheckpointStatus.FAILED, failed_at=now, failure_message=_REPLACED, final=True
        )
    if changes.finished:
        Checkpoint.objects.filter(pk__in=changes.finished).update(final=True)
    if changes.discarded:
        Checkpoint.objects.filter(pk__in=changes.discarded).update(discarded=True)
    keys = bulk.upsert(
        Checkpoint,
        [{**row, "first_seen_at": now} for row in changes.upserts],
        ("run_id", "checkpoint_id", "triggered_at"),
        CHECKPOINT_COLUMNS,
        kept=SLOWEST,
        once=("first_seen_at",),
    )
    places = {(run, number): (key, at) for (run, number, at), key in keys.items()}
    _save_operators([(*places[run.pk, number], run, reading) for run, number, reading in changes.readings])
    if changes.gaps:
        CheckpointGap.objects.bulk_create(changes.gaps, ignore_conflicts=True)


def _save_operators(readings: Iterable[tuple[int, datetime, Run, CheckpointReading]]) -> None:
    """Store the operators of these readings, which come with the key and the trigger time of their checkpoints.

    If the engine has forgotten the subtasks, stored figures of an earlier reading stay.
    """
    read: list[bulk.Row] = []
    forgotten: list[bulk.Row] = []
    for key, triggered_at, run, reading in readings:
        for row in operator_rows(key, triggered_at, run, reading):
            (read if row["vertex_id"] in reading.operators else forgotten).append(row)
    unique = ("checkpoint_id", "vertex_id", "triggered_at")
    bulk.upsert(OperatorCheckpoint, read, unique, OPERATOR_COLUMNS, returns=False)
    totals = [column for column in OPERATOR_COLUMNS if column not in SUBTASK_COLUMNS]
    bulk.upsert(OperatorCheckpoint, forgotten, unique, totals, once=SUBTASK_COLUMNS, returns=False)


def end_pending(ended: Iterable[Run], now: datetime) -> None:
    """Mark pending checkpoints of these ended runs as failed, and all their checkpoints as final."""
    keys = [run.pk for run in ended]
    if not keys:
        return
    open_rows = Checkpoint.objects.filter(run__in=keys, final=False)
    open_rows.filter(status=CheckpointStatus.IN_PROGRESS).update(
        status=CheckpointStatus.FAILED, failed_at=now, failure_message=_ENDED
    )
    open_rows.update(final=True)


def unfinished_runs(runs: Iterable[Run]) -> set[int]:
    """Return the keys of the runs that still have checkpoints to read."""
    keys = [run.pk for run in runs]
    if not keys:
        return set()
    return set(Checkpoint.objects.filter(run__in=keys, final=False).values_list("run_id", flat=True).distinct())


def _ids(observed: RunObservation) -> set[int]:
    return observed.listed.keys() | observed.readings.keys()
