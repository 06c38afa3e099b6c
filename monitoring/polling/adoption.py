"""Adopt savepoints that Flink's command line or another tool took, so that Waymark can restore from them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from django.db import connection

from monitoring import bulk
from monitoring.models import (
    Checkpoint,
    CheckpointType,
    Cluster,
    Run,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.savepoints.history import plain_path, spellings


def adopt_savepoints(cluster: Cluster, just_read: Collection[int]) -> list[Savepoint]:
    """Store a row for each completed savepoint without one, of runs that live or were `just_read` (their keys).

    While a savepoint of the run is in progress, a new path may belong to it: adoption waits until that savepoint ends.
    """
    columns = bulk.columns_of(Checkpoint)
    statement = _FOUND.format(columns=", ".join(f"found.{column}" for column in columns))
    with connection.cursor() as cursor:
        cursor.execute(statement, {"cluster": cluster.pk, "open": _OPEN, "just_read": list(just_read)})
        return _adopt([(row[-1], bulk.loaded(Checkpoint, columns, row), row[-2] or "") for row in cursor.fetchall()])


def mark_final(runs: Collection[Run]) -> None:
    """Mark the final savepoints of these runs: they may have been adopted before the end of the run was known."""
    for run in runs:
        if run.outcome.get("savepoint"):
            adopted = Savepoint.objects.filter(run=run, origin=SavepointOrigin.ADOPTED)
            adopted.filter(path__in=spellings(run.outcome["savepoint"])).update(origin=SavepointOrigin.FINAL)


# The query as SQL: Django would take too long to build it at every poll.
_FOUND = """
SELECT {columns}, run.outcome ->> 'savepoint', run.job_id
FROM monitoring_checkpoint found
JOIN monitoring_run run ON run.id = found.run_id
JOIN monitoring_job job ON job.id = run.job_id
WHERE job.cluster_id = %(cluster)s AND (NOT run.final_read_done OR run.id = ANY(%(just_read)s))
  AND found.is_savepoint AND found.status = 'COMPLETED' AND NOT found.discarded AND found.external_path <> ''
  AND NOT EXISTS (SELECT FROM monitoring_savepoint WHERE job_id = run.job_id AND path = found.external_path)
  AND NOT EXISTS (SELECT FROM monitoring_savepoint WHERE checkpoint_id = found.id)
  AND NOT EXISTS (SELECT FROM monitoring_savepoint WHERE run_id = run.id AND state = ANY(%(open)s))
"""
_OPEN = [state.value for state in SavepointState if state.open]


def _adopt(found: Sequence[tuple[int, Checkpoint, str]]) -> list[Savepoint]:
    """Adopt these checkpoints. Each comes with the key of its job and the path of its run's final savepoint."""
    if not found:
        return []
    explained = _explained({job_id for job_id, *_ in found})
    adopted = [
        _adopted(key, one, is_final=plain_path(one.external_path) == plain_path(final))
        for key, one, final in found
        if (key, plain_path(one.external_path)) not in explained
    ]
    Savepoint.objects.bulk_create(adopted, ignore_conflicts=True)
    return adopted


def _explained(jobs: Collection[int]) -> set[tuple[int, str]]:
    """Return job and plain path of every savepoint with a row."""
    paths = Savepoint.objects.filter(job__in=jobs).exclude(path="").values_list("job_id", "path")
    return {(job_id, plain_path(path)) for job_id, path in paths}


def _adopted(job_id: int, checkpoint: Checkpoint, *, is_final: bool) -> Savepoint:
    return Savepoint(
        job_id=job_id,
        run_id=checkpoint.run_id,
        checkpoint=checkpoint,
        origin=SavepointOrigin.FINAL if is_final else SavepointOrigin.ADOPTED,
        state=SavepointState.COMPLETED,
        stops_job=checkpoint.checkpoint_type == CheckpointType.SYNC_SAVEPOINT,
        path=checkpoint.external_path,
        size=checkpoint.state_size,
        requested_at=checkpoint.triggered_at,
        completed_at=checkpoint.latest_ack_at or checkpoint.triggered_at,
        next_check_at=checkpoint.latest_ack_at or checkpoint.triggered_at,
    )
