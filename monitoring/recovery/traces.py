"""Removes the directories that Flink makes for starts that it refuses: it makes them before it looks for the state."""

from __future__ import annotations

from monitoring.models import RefusedStart
from monitoring.recovery.unseen import checkpoint_directory
from monitoring.savepoints.looking import Patience, StorageSilent
from monitoring.savepoints.stored import LISTED_WITHIN_S, remove_empty

# What Flink makes in the checkpoint directory of a job before it has a checkpoint.
MADE_BY_FLINK = ("shared", "taskowned")
BATCH = 20


def remove_traces() -> None:
    """Remove what is empty, and note what stays. Called outside of transactions."""
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
