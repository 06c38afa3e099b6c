"""Find checkpoints that failed because the job restarted or stopped, or because not all tasks were running."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import CheckpointFailureReason, reason_of
from monitoring.diagnosis.diagnosis_facts import DiagnosisFacts
from monitoring.diagnosis.finding import Confidence, Finding
from monitoring.diagnosis.signs.base import Sign
from monitoring.reasons.reason import ReasonCode


class InterruptedReason(ReasonCode):
    INTERRUPTED = "diagnosis.interrupted", _("Interrupted")
    WHILE_UNDER_WAY = (
        "diagnosis.while-under-way",
        _("Checkpoint {number} did not fail by itself: {what} while it was under way."),
    )
    JOB_RESTARTED = "diagnosis.job-restarted", _("the job restarted")
    JOB_STOPPED = "diagnosis.job-stopped", _("the job stopped or restarted")
    JOB_ENDED = "diagnosis.job-ended", _("the job ended")
    TASKS_NOT_RUNNING = "diagnosis.tasks-not-running", _("not all tasks were running")
    TASK_FAILED = "diagnosis.task-failed", _("a task failed")
    OVERTAKEN = "diagnosis.overtaken", _("a newer checkpoint completed before it")


_SAYS = {
    CheckpointFailureReason.FAILOVER_REGION: InterruptedReason.JOB_RESTARTED,
    CheckpointFailureReason.COORDINATOR_SUSPEND: InterruptedReason.JOB_STOPPED,
    CheckpointFailureReason.COORDINATOR_SHUTDOWN: InterruptedReason.JOB_ENDED,
    CheckpointFailureReason.TASKS_NOT_RUNNING: InterruptedReason.TASKS_NOT_RUNNING,
    CheckpointFailureReason.TASK_FAILURE: InterruptedReason.TASK_FAILED,
    CheckpointFailureReason.SUBSUMED: InterruptedReason.OVERTAKEN,
}


class Interrupted(Sign):
    name = "interrupted"
    title = InterruptedReason.INTERRUPTED()

    def find(self, facts: DiagnosisFacts) -> Finding | None:
        checkpoint = facts.checkpoint
        reason = reason_of(checkpoint.failure) if checkpoint and checkpoint.has_failed else None
        if checkpoint is None or reason not in _SAYS:
            return None
        return Finding(
            self.name,
            self.title,
            InterruptedReason.WHILE_UNDER_WAY(number=checkpoint.number, what=_SAYS[reason]()),
            confidence=Confidence.CERTAIN,
            weight=-1.0,  # below a finding about the exception, which explains more
        )


SIGNS = (Interrupted(),)
