"""The way back from a change that did not start: the job as it was, from the state that the change began with."""

from __future__ import annotations

from datetime import datetime

from monitoring.models import Job, RestartAttempt, RestartTrigger
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.attempt import AttemptOpen, open_attempt


def bring_back(failed: RestartAttempt, now: datetime) -> RestartAttempt | None:
    """Decide the restart that undoes `failed`, which has just ended and of which nothing runs.

    None: it did not get so far as to start anything, so the job is as it was; or nobody wanted that. The caller holds
    the transaction that ended the attempt, so that no death is seen between the two.
    """
    if not (failed.goes_back and failed.launches and failed.restore_path):
        return None
    job = Job.objects.select_for_update(of=("self",)).select_related("current_run").get(pk=failed.job_id)
    why = RecoveryReason.CHANGE_UNDONE(epoch=failed.epoch)
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
        )
    except AttemptOpen:
        return None
    RestartAttempt.objects.filter(pk=attempt.pk).update(back_from=failed)
    return attempt
