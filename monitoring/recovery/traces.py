"""Removes empty directories of refused starts: Flink creates them before it checks the snapshot."""

from __future__ import annotations

from monitoring.models import RefusedStart
from monitoring.recovery.unseen import checkpoint_directory
from monitoring.savepoints.storage_threads import StorageSilent, TimeLimit
from monitoring.savepoints.stored import LISTED_WITHIN_S, remove_empty

# The directories that Flink creates in the checkpoint directory of a job before its first checkpoint.
MADE_BY_FLINK = ("shared", "taskowned")
BATCH = 20


def remove_traces() -> None:
    """Remove empty directories, and store which ones stay. Call this outside transactions."""
    new = RefusedStart.objects.filter(left_directory=None).select_related("attempt__job")[:BATCH]
    time_limit = TimeLimit(LISTED_WITHIN_S)
    for start in new:
        left = _left(start, time_limit)
        RefusedStart.objects.filter(pk=start.pk).update(left_directory=left)


def _left(start: RefusedStart, time_limit: TimeLimit) -> str:
    directory = checkpoint_directory(start.attempt.job, start.engine_job_id)
    if not directory:
        return ""
    try:
        return "" if remove_empty(directory, MADE_BY_FLINK, time_limit) else directory
    except StorageSilent:
        return directory
