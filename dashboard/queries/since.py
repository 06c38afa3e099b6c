"""What happened to a job after a state of it was taken: what going back to it would undo or do again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q

from monitoring.launches import what_changed
from monitoring.models import Checkpoint, CheckpointStatus, Job, LaunchVersion, Run


@dataclass(frozen=True)
class Since:
    """`version`: of the program that took the state, None where that is not known; `changed`: what is another in the
    one that would be started now; `settings`: keys of the engine's configuration that became another."""

    completed: int
    failed: int
    runs: int
    version: LaunchVersion | None
    changed: list[str]
    settings: list[str]


def happened_since(job: Job, run: Run | None, taken_at: datetime) -> Since:
    """`run`: the one that took the state."""
    counted = Checkpoint.objects.filter(run__job=job, is_savepoint=False, triggered_at__gt=taken_at).aggregate(
        completed=Count("pk", filter=Q(status=CheckpointStatus.COMPLETED)),
        failed=Count("pk", filter=Q(status=CheckpointStatus.FAILED)),
    )
    version = run.launch_version if run else None
    changes = job.configuration_changes.filter(at__gt=taken_at).order_by("key")
    return Since(
        completed=counted["completed"],
        failed=counted["failed"],
        runs=job.runs.filter(started_at__gt=taken_at).count(),
        version=version,
        changed=what_changed(version.spec, job.launch) if version and job.launch else [],
        settings=list(dict.fromkeys(changes.values_list("key", flat=True)[:50])),
    )
