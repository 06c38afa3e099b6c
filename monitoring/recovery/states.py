"""The stored rows behind `candidates`."""

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
from monitoring.recovery.candidates import Life, State, candidates, retains
from monitoring.recovery.unseen import unseen_checkpoints
from monitoring.savepoints.history import plain_path

# An engine keeps a handful of checkpoints; looking at more of the stored ones only finds those that are gone.
CHECKPOINTS = 20
SAVEPOINTS = 50


def restore_candidates(job: Job, unseen: Sequence[State] | None = None) -> list[State]:
    """What `job` may be restored from, the best first, by its own choice of `restore_from`. `unseen`: checkpoints that
    no poll saw, where the caller has looked for them."""
    unseen = unseen_checkpoints(job).states if unseen is None else unseen
    lives = [Life(number, path) for number, path in job.runs.values_list("number", "restored_path").order_by("-number")]
    found = candidates([*unseen, *known_states(job)], lives, RestoreFrom(job.restore_from))
    return sorted(found, key=lambda state: state.gone)  # what is gone comes last: it may be back


def known_states(job: Job) -> list[State]:
    """All that should still be there, also of lines of history that were left by going back."""
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
    """Completed checkpoints that outlive their run and are not known to be gone, newest first."""
    return _kept(job).filter(is_savepoint=False, run__in=_retaining_runs(job))


def _kept(job: Job) -> QuerySet[Checkpoint]:
    return (
        Checkpoint.objects.filter(run__job=job)
        .there()
        .exclude(external_path__startswith="<")  # Flink's "<checkpoint-not-externally-addressable>"
        .select_related("run")
        .order_by("-triggered_at")
    )


def _checkpoints(job: Job) -> list[State]:
    # Both kinds apart, so that many checkpoints cannot push every savepoint out of sight.
    newest = [*retained_checkpoints(job)[:CHECKPOINTS], *_kept(job).filter(is_savepoint=True)[:SAVEPOINTS]]
    return [
        State(row.external_path, row.triggered_at, row.is_savepoint, row.run.number, row.checkpoint_id)
        for row in newest
    ]


def _retaining_runs(job: Job) -> list[int]:
    """Runs whose checkpoints outlive them."""
    rows = Run.objects.filter(job=job).values_list("pk", "state", "checkpoint_config", "outcome")
    return [pk for pk, state, config, outcome in rows if retains(RunState(state), config, outcome)]
