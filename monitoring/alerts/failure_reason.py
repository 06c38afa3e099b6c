"""Recognize Flink's checkpoint failure reasons by their messages, because the REST API gives only the message.

The messages are those of Flink's CheckpointFailureReason, the same from 1.15 to 2.4. Waymark's job manager sends them,
too.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import Reason, ReasonCode


class CheckpointFailureReason(ReasonCode):
    """The text that follows "checkpoint 41" in a sentence, for a failure that Flink lists."""

    EXPIRED = "alerts.checkpoint-expired", _("expired before completing")
    DECLINED = "alerts.checkpoint-declined", _("was declined")
    ASYNC_EXCEPTION = "alerts.checkpoint-async-exception", _("failed in a task's asynchronous part")
    FINALIZE_FAILURE = "alerts.checkpoint-finalize-failure", _("could not be finalized")
    IO_EXCEPTION = "alerts.checkpoint-io-exception", _("could not be triggered: I/O problem")
    TRIGGER_FAILURE = "alerts.checkpoint-trigger-failure", _("could not be triggered")
    SUBSUMED = "alerts.checkpoint-subsumed", _("was overtaken by a newer one")
    TASKS_NOT_RUNNING = "alerts.checkpoint-tasks-not-running", _("found tasks that were not running")
    TASK_FAILURE = "alerts.checkpoint-task-failure", _("was aborted because a task failed")
    TASK_CHECKPOINT_FAILURE = "alerts.checkpoint-failed-in-task", _("failed in a task")
    FAILOVER_REGION = "alerts.checkpoint-failover", _("was aborted by a restart of the job")
    COORDINATOR_SUSPEND = "alerts.checkpoint-suspended", _("was aborted because the job stopped or restarted")
    COORDINATOR_SHUTDOWN = "alerts.checkpoint-shutdown", _("was aborted because the job ended")


class UnlistedFailure(ReasonCode):
    """The text that follows "checkpoint 41", for a message that no known Flink version writes."""

    WITH_MESSAGE = "alerts.checkpoint-failed", _("failed: {message}")
    WITHOUT_MESSAGE = "alerts.checkpoint-failed-unknown", _("failed for a reason the engine did not give")


# The start of the engine's message for each reason.
PREFIXES = {
    CheckpointFailureReason.EXPIRED: "Checkpoint expired before completing",
    CheckpointFailureReason.DECLINED: "Checkpoint was declined",
    CheckpointFailureReason.ASYNC_EXCEPTION: "Asynchronous task checkpoint failed",
    CheckpointFailureReason.FINALIZE_FAILURE: "Failure to finalize checkpoint",
    CheckpointFailureReason.IO_EXCEPTION: "An Exception occurred while triggering the checkpoint",
    CheckpointFailureReason.TRIGGER_FAILURE: "Trigger checkpoint failure",
    CheckpointFailureReason.SUBSUMED: "Checkpoint has been subsumed",
    CheckpointFailureReason.TASKS_NOT_RUNNING: "Not all required tasks are currently running",
    CheckpointFailureReason.TASK_FAILURE: "Task has failed",
    CheckpointFailureReason.TASK_CHECKPOINT_FAILURE: "Task local checkpoint failure",
    CheckpointFailureReason.FAILOVER_REGION: "FailoverRegion is restarting",
    CheckpointFailureReason.COORDINATOR_SUSPEND: "Checkpoint Coordinator is suspending",
    CheckpointFailureReason.COORDINATOR_SHUTDOWN: "CheckpointCoordinator shutdown",
}


def reason_of(message: str) -> CheckpointFailureReason | None:
    """Return the reason of a failure message, or None if no known Flink version writes it."""
    return next((code for code, prefix in PREFIXES.items() if message.startswith(prefix)), None)


def checkpoint_failure(message: str) -> Reason:
    """Return the text that follows "checkpoint 41". For an unknown message, it contains the shortened first line."""
    code = reason_of(message)
    if code is not None:
        return code()
    first_line = message.strip().partition("\n")[0].strip()
    if not first_line:
        return UnlistedFailure.WITHOUT_MESSAGE()
    return UnlistedFailure.WITH_MESSAGE(message=first_line[:200].rstrip("."))
