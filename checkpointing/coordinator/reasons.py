"""Why a checkpoint failed: Flink's CheckpointFailureReason, with its texts.

The REST API shows only the text, so `CheckpointException` always starts with the reason's message: a reader can map a
`failure_message` back to its reason by prefix.
"""

from __future__ import annotations

from enum import Enum


class CheckpointFailureReason(Enum):
    """The reasons. `counts`: the failure counts against the tolerable failures of the job."""

    message: str
    counts: bool

    PERIODIC_SCHEDULER_SHUTDOWN = ("Periodic checkpoint scheduler is shut down.", False)
    TOO_MANY_CHECKPOINT_REQUESTS = ("The maximum number of queued checkpoint requests exceeded", False)
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = (
        "The minimum time between checkpoints is still pending. Checkpoint will be triggered after the minimum time.",
        False,
    )
    NOT_ALL_REQUIRED_TASKS_RUNNING = ("Not all required tasks are currently running.", False)
    IO_EXCEPTION = ("An Exception occurred while triggering the checkpoint. IO-problem detected.", True)
    BLOCKING_OUTPUT_EXIST = ("Blocking output edge exists in running tasks.", False)
    CHECKPOINT_ASYNC_EXCEPTION = ("Asynchronous task checkpoint failed.", True)
    CHANNEL_STATE_SHARED_STREAM_EXCEPTION = (
        "The checkpoint was aborted due to exception of other subtasks sharing the ChannelState file.",
        False,
    )
    CHECKPOINT_EXPIRED = ("Checkpoint expired before completing.", True)
    CHECKPOINT_SUBSUMED = ("Checkpoint has been subsumed.", False)
    CHECKPOINT_DECLINED = ("Checkpoint was declined.", True)
    CHECKPOINT_DECLINED_TASK_NOT_READY = ("Checkpoint was declined (tasks not ready)", False)
    CHECKPOINT_DECLINED_TASK_CLOSING = ("Checkpoint was declined (task is closing)", False)
    CHECKPOINT_DECLINED_SUBSUMED = (
        "Checkpoint was canceled because a barrier from newer checkpoint was received.",
        False,
    )
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = ("Task received cancellation from one of its inputs", False)
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = (
        "Checkpoint was declined because one input stream is finished",
        False,
    )
    CHECKPOINT_COORDINATOR_SHUTDOWN = ("CheckpointCoordinator shutdown.", False)
    CHECKPOINT_COORDINATOR_SUSPEND = ("Checkpoint Coordinator is suspending.", False)
    JOB_FAILOVER_REGION = ("FailoverRegion is restarting.", False)
    TASK_FAILURE = ("Task has failed.", False)
    TASK_CHECKPOINT_FAILURE = ("Task local checkpoint failure.", False)
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = (
        "Unknown task for the checkpoint to notify.",
        False,
    )
    FINALIZE_CHECKPOINT_FAILURE = ("Failure to finalize checkpoint.", True)
    TRIGGER_CHECKPOINT_FAILURE = ("Trigger checkpoint failure.", False)

    def __init__(self, message: str, counts: bool) -> None:
        self.message = message
        self.counts = counts

    @classmethod
    def of_decline(cls, name: str) -> CheckpointFailureReason:
        """Return the reason that a driver named. A name that this version does not know is a plain decline."""
        return cls.__members__.get(name, cls.CHECKPOINT_DECLINED)


class CheckpointException(Exception):
    """A checkpoint failed. The text is the reason's message, then the cause in one sentence, if any."""

    def __init__(self, reason: CheckpointFailureReason, cause: str = "") -> None:
        super().__init__(f"{reason.message} {cause}" if cause else reason.message)
        self.reason = reason
        self.cause = cause

    @classmethod
    def of_trigger_error(cls, error: Exception) -> CheckpointException:
        """Map an error between the request and the tasks' trigger to a reason, as Flink does."""
        if isinstance(error, CheckpointException):
            return error
        reason = (
            CheckpointFailureReason.IO_EXCEPTION
            if _has_io_error(error)
            else CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
        )
        return cls._with_cause(reason, error)

    @classmethod
    def of_finalize_error(cls, error: Exception) -> CheckpointException:
        return cls._with_cause(CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE, error)

    @classmethod
    def _with_cause(cls, reason: CheckpointFailureReason, error: Exception) -> CheckpointException:
        exception = cls(reason, f"{type(error).__name__}: {error}")
        exception.__cause__ = error
        return exception


def _has_io_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError):
            return True
        error = error.__cause__
    return False
