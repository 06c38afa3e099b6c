"""Read the snapshots from which a job may be restored, for `candidates`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.db.models import QuerySet

from monitoring.models import (
    Checkpoint,
    Job,
    RestoreFrom,
    Run,
    RunState,
    Savepoint,
    SavepointState,
)
from monitoring.recovery.candidates import RestoredRun, State, candidates, retains
from monitoring.recovery.unseen import unseen_checkpoints
from monitoring.savepoints.history import plain_path

# An engine retains only a few checkpoints, so older rows are of deleted ones.
CHECKPOINTS = 20
SAVEPOINTS = 50


def restore_candidates(job: Job, unseen: Sequence[State] | None = None) -> list[State]:
    """Return the snapshots from which `job` may be restored, the best first, as its `restore_from` says.

    `unseen`: checkpoints that no poll saw, if the caller has searched for them.
    """
    unseen = unseen_checkpoints(job).states if unseen is None else unseen
    rows = job.runs.values_list("number", "restored_path").order_by("-number")
    runs = [RestoredRun(number, path) for number, path in rows]
    found = candidates([*unseen, *known_states(job)], runs, RestoreFrom(job.restore_from))
    return sorted(found, key=lambda state: state.gone)  # missing ones are last: their storage may be available again


def known_states(job: Job) -> list[State]:
    """Return all snapshots that should still exist, including those that a restore from an older one left behind."""
    gone = {plain_path(path) for path in job.savepoints.filter(gone_at__isnull=False).values_list("path", flat=True)}
    known = (*_savepoints(job), *_checkpoints(job))
    return [replace(state, gone=plain_path(state.path) in gone) for state in known]


def _savepoints(job: Job) -> list[State]:
    rows = (
        Savepoint.objects.filter(job=job, state=SavepointState.COMPLETED)
        .exclude(path="")
        .exclude(checkpoint__discarded=True)
        .select_related("run", "checkpoint")[:SAVEPOINTS]
    )
    return [
        State(
            path=row.path,
            taken_at=row.checkpoint.triggered_at if row.checkpoint else row.requested_at,
            is_savepoint=True,
            run_number=row.run.number,
            checkpoint_id=row.checkpoint.checkpoint_id if row.checkpoint else None,
            savepoint_row=row.pk,
        )
        for row in rows
    ]


def retained_checkpoints(job: Job) -> QuerySet[Checkpoint]:
    """Return completed checkpoints that remain after their run and are not known to be gone, newest first."""
    return _kept(job).filter(is_savepoint=False, run__in=_retaining_runs(job))


def _kept(job: Job) -> QuerySet[Checkpoint]:
    return (
        Checkpoint.objects.filter(run__job=job)
        .there()
        .exclude(external_path__startswith="<")  # such as Flink's "<checkpoint-not-externally-addressable>"
        .select_related("run")
        .order_by("-triggered_at")
    )


def _checkpoints(job: Job) -> list[State]:
    # The two limits are separate, so that many checkpoints do not displace all savepoints.
    newest = [*retained_checkpoints(job)[:CHECKPOINTS], *_kept(job).filter(is_savepoint=True)[:SAVEPOINTS]]
    return [
        State(row.external_path, row.triggered_at, row.is_savepoint, row.run.number, row.checkpoint_id)
        for row in newest
    ]


def _retaining_runs(job: Job) -> list[int]:
    """Return the runs whose checkpoints remain after their end."""
    rows = Run.objects.filter(job=job).values_list("pk", "state", "checkpoint_config", "outcome")
    return [pk for pk, state, config, outcome in rows if retains(RunState(state), config, outcome)]
