"""Asynchronous operations as Flink's JSON. COMPLETED means ended: a failed operation has a `failure-cause`."""

from __future__ import annotations

import traceback
from typing import Any

from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.jobs.dispatcher import JobNotFound
from checkpointing.jobs.job_requests import StopWithSavepointStopping
from checkpointing.jobs.operations import InProgress, OperationFailed, Outcome, Succeeded
from checkpointing.rest.errors import refusal_json
from checkpointing.rest.java_throwable import java_failure

# The class names by which Flink's and Waymark's clients recognise these failures.
_FLINK_CLASS: dict[type[BaseException], str] = {
    CheckpointException: "org.apache.flink.runtime.checkpoint.CheckpointException",
    JobNotFound: "org.apache.flink.runtime.messages.FlinkJobNotFoundException",
    StopWithSavepointStopping: (
        "org.apache.flink.runtime.scheduler.stopwithsavepoint.StopWithSavepointStoppingException"
    ),
}


def operation_json(outcome: Outcome, failure_key: str = "failure-cause") -> dict[str, Any]:
    match outcome:
        case InProgress():
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        case Succeeded(result):
            return {"status": {"id": "COMPLETED"}, "operation": result}
        case OperationFailed(error):
            cause = {**failure_cause(error), **refusal_json(error)}
            return {"status": {"id": "COMPLETED"}, "operation": {failure_key: cause}}


def failure_cause(error: BaseException) -> dict[str, str]:
    name = _FLINK_CLASS.get(type(error), type(error).__name__)
    causes = "".join(f"\nCaused by: {line}" for line in _causes(error))
    return java_failure(name, str(error), f"{name}: {error}{causes}")


def _causes(error: BaseException) -> list[str]:
    lines = []
    while (cause := error.__cause__) is not None:
        lines += [line.rstrip() for line in traceback.format_exception_only(cause)]
        error = cause
    return lines
