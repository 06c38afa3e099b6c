"""Savepoints that somebody else took (Flink's command line, another tool) become ours to restore from."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q

from monitoring.models import (
    Checkpoint,
    CheckpointStatus,
    CheckpointType,
    Cluster,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.savepoints.history import plain_path


def adopt_savepoints(cluster: Cluster, just_read: Collection[int]) -> list[Savepoint]:
    """A row for each completed savepoint that no row explains, of runs that live or were `just_read` (their keys).

    While a savepoint of the run is under way, a new path may be its own: adoption waits until that row is closed.
    """
    same_path = Savepoint.objects.filter(job=OuterRef("run__job"), path=OuterRef("external_path"))
    linked = Savepoint.objects.filter(checkpoint=OuterRef("pk"))
    under_way = Savepoint.objects.filter(
        run=OuterRef("run"), state__in=[state for state in SavepointState if state.open]
    )
    found = list(
        Checkpoint.objects.filter(
            ~Exists(same_path),
            ~Exists(linked),
            ~Exists(under_way),
            Q(run__final_read_done=False) | Q(run__in=just_read),
            run__job__cluster=cluster,
            is_savepoint=True,
            status=CheckpointStatus.COMPLETED,
            discarded=False,
        )
        .exclude(external_path="")
        .select_related("run")
    )
    explained = _explained({checkpoint.run.job_id for checkpoint in found}) if found else set()
    adopted = [_adopted(one) for one in found if (one.run.job_id, plain_path(one.external_path)) not in explained]
    Savepoint.objects.bulk_create(adopted, ignore_conflicts=True)
    return adopted


def _explained(jobs: Collection[int]) -> set[tuple[int, str]]:
    """Job and place of every savepoint that has a row, however its path was spelled."""
    paths = Savepoint.objects.filter(job__in=jobs).exclude(path="").values_list("job_id", "path")
    return {(job_id, plain_path(path)) for job_id, path in paths}


def _adopted(checkpoint: Checkpoint) -> Savepoint:
    return Savepoint(
        job_id=checkpoint.run.job_id,
        run=checkpoint.run,
        checkpoint=checkpoint,
        origin=SavepointOrigin.ADOPTED,
        state=SavepointState.COMPLETED,
        stops_job=checkpoint.checkpoint_type == CheckpointType.SYNC_SAVEPOINT,
        path=checkpoint.external_path,
        size=checkpoint.state_size,
        requested_at=checkpoint.triggered_at,
        completed_at=checkpoint.latest_ack_at or checkpoint.triggered_at,
        next_check_at=checkpoint.latest_ack_at or checkpoint.triggered_at,
    )
