"""Flink's checkpoint failure reasons, read back from the message: the only thing its REST API gives.

The messages are those of Flink's CheckpointFailureReason, equal in 1.15 to 2.4 and sent by our job manager as well.
"""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """Value: how the engine's message starts, and how the sentence "checkpoint 41 …" goes on."""

    EXPIRED = ("Checkpoint expired before completing", "expired before completing")
    DECLINED = ("Checkpoint was declined", "was declined")
    ASYNC_EXCEPTION = ("Asynchronous task checkpoint failed", "failed in a task's asynchronous part")
    FINALIZE_FAILURE = ("Failure to finalize checkpoint", "could not be finalized")
    IO_EXCEPTION = ("An Exception occurred while triggering the checkpoint", "could not be triggered: I/O problem")
    TRIGGER_FAILURE = ("Trigger checkpoint failure", "could not be triggered")
    SUBSUMED = ("Checkpoint has been subsumed", "was overtaken by a newer one")
    TASKS_NOT_RUNNING = ("Not all required tasks are currently running", "found tasks that were not running")
    TASK_FAILURE = ("Task has failed", "was aborted because a task failed")
    TASK_CHECKPOINT_FAILURE = ("Task local checkpoint failure", "failed in a task")
    FAILOVER_REGION = ("FailoverRegion is restarting", "was aborted by a restart of the job")
    COORDINATOR_SUSPEND = ("Checkpoint Coordinator is suspending", "was aborted because the job stopped or restarted")
    COORDINATOR_SHUTDOWN = ("CheckpointCoordinator shutdown", "was aborted because the job ended")

    @property
    def prefix(self) -> str:
        return self.value[0]

    @property
    def in_words(self) -> str:
        return self.value[1]


def reason_of(message: str) -> CheckpointFailureReason | None:
    """None: a message that no Flink version is known to write."""
    return next((reason for reason in CheckpointFailureReason if message.startswith(reason.prefix)), None)


def failure_in_words(message: str) -> str:
    """How "checkpoint 41 …" goes on. An unknown message is shown as it came, its first line, shortened."""
    reason = reason_of(message)
    if reason is not None:
        return reason.in_words
    first_line = message.strip().partition("\n")[0].strip()
    return f"failed: {first_line[:200].rstrip('.')}" if first_line else "failed for a reason the engine did not give"
