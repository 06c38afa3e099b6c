"""Removes empty directories of refused starts: Flink creates them before it checks the snapshot."""

from __future__ import annotations

from monitoring.models import RefusedStart
from monitoring.recovery.unseen import checkpoint_directory
from monitoring.savepoints.looking import Patience, StorageSilent
from monitoring.savepoints.stored import LISTED_WITHIN_S, remove_empty

# The directories that Flink creates in the checkpoint directory of a job before its first checkpoint.
MADE_BY_FLINK = ("shared", "taskowned")
BATCH = 20


def remove_traces() -> None:
    """Remove empty directories, and store which ones stay. Call this outside transactions."""
    new = RefusedStart.objects.filter(left_directory=None).select_related("attempt__job")[:BATCH]
    patience = Patience(LISTED_WITHIN_S)
    for start in new:
        left = _left(start, patience)
        RefusedStart.objects.filter(pk=start.pk).update(left_directory=left)


def _left(start: RefusedStart, patience: Patience) -> str:
    directory = checkpoint_directory(start.attempt.job, start.engine_job_id)
    if not directory:
        return ""
    try:
        return "" if remove_empty(directory, MADE_BY_FLINK, patience) else directory
    except StorageSilent:
        return directory
