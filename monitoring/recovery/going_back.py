"""Undo a changed start that failed: restart the job as it was before, from the same snapshot."""

from __future__ import annotations

from datetime import datetime

from monitoring.kubernetes.job_program import ProgramChange
from monitoring.kubernetes.job_resources import JobResource
from monitoring.models import Job, RestartAttempt, RestartTrigger
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.attempt import AttemptOpen, open_attempt


def undo_change(failed: RestartAttempt, now: datetime) -> RestartAttempt | None:
    """Create the restart attempt that undoes `failed`, which has just ended without a running job.

    Return None if `failed` has launched nothing, or if going back was not requested. The caller calls this in the
    transaction that ends the attempt, so that no other worker sees a dead job in between.
    """
    if not (failed.goes_back and failed.launches and (failed.restore_path or failed.resource)):
        return None
    job = Job.objects.select_for_update(of=("self",)).select_related("current_run").get(pk=failed.job_id)
    why = RecoveryReason.CHANGE_UNDONE(epoch=failed.epoch)
    resource = JobResource.from_json(failed.resource) if failed.resource else None
    undone = ProgramChange.from_json(failed.launch).undone.as_json() if resource else None
    try:
        attempt = open_attempt(
            job,
            RestartTrigger.MANUAL,
            why,
            failed.requested_by,
            now,
            restore_path=failed.restore_path,
            restore_is_savepoint=failed.restore_is_savepoint,
            restore_state_at=failed.restore_state_at,
            savepoint=failed.savepoint,
            stop_first=True,
            from_stop=failed.from_stop and resource is not None,
            launch=undone,
            resource=resource,
        )
    except AttemptOpen:
        return None
    RestartAttempt.objects.filter(pk=attempt.pk).update(back_from=failed)
    return attempt
