"""A vertex as Flink's JSON: in `/jobs/:id`, and with its subtasks in `/jobs/:id/vertices/:vertexid`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.status import JobStatus
from checkpointing.messages import Executor, Vertex

EXECUTION_STATES = (
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
)  # fmt: skip

# A task's state follows from the job's: a Spark driver starts and ends all its tasks together.
TASK_STATE = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "DEPLOYING",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.FAILING: "CANCELING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
    JobStatus.RESTARTING: "CANCELED",
    JobStatus.SUSPENDED: "CANCELED",
    JobStatus.RECONCILING: "RECONCILING",
}


_COUNTERS = ("read-bytes", "write-bytes", "read-records", "write-records")
# Flink's counters, of which Spark has no like per operator: marked as not complete.
_NO_METRICS: dict[str, Any] = {
    **dict.fromkeys(_COUNTERS, 0),
    **{f"{name}-complete": False for name in _COUNTERS},
    "accumulated-backpressured-time": 0,
    "accumulated-idle-time": 0,
    "accumulated-busy-time": "NaN",
}


def counts(states: Counter[str]) -> dict[str, int]:
    return {state: states[state] for state in EXECUTION_STATES}


def vertex_json(job: JobRecord, vertex: Vertex, now_ms: int) -> dict[str, Any]:
    state = TASK_STATE[job.status]
    return {
        "id": vertex.id,
        "slotSharingGroupId": job.graph.job_id,
        "name": vertex.name,
        "maxParallelism": vertex.parallelism,
        "parallelism": vertex.parallelism,
        "status": state,
        **_times(job, now_ms),
        "tasks": counts(Counter({state: vertex.parallelism})),
        "metrics": _NO_METRICS,
        "query": vertex.query,
        "kind": vertex.kind.value,
    }


def vertex_details(job: JobRecord, vertex: Vertex, now_ms: int) -> dict[str, Any]:
    """Spark places each batch's tasks anew: a subtask has an `endpoint` only where there is no other choice."""
    times = _times(job, now_ms)
    executors: tuple[Executor, ...] = job.attempt.executors if job.attempt else ()
    endpoint = executors[0].address if len(executors) == 1 else None
    state = TASK_STATE[job.status]
    subtasks = [
        {
            "subtask": index,
            "status": state,
            "attempt": job.attempt.number if job.attempt else 0,
            "endpoint": endpoint,
            **times,
            "metrics": _NO_METRICS,
            "taskmanager-id": None,
            "status-duration": {},
        }
        for index in range(vertex.parallelism)
    ]
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.parallelism,
        "now": now_ms,
        "subtasks": subtasks,
    }


def _times(job: JobRecord, now_ms: int) -> dict[str, int]:
    """-1 for what has not come about."""
    attempt = job.attempt
    start = attempt.running_since_ms if attempt and attempt.running_since_ms is not None else -1
    end = attempt.ended_ms if attempt and attempt.ended_ms is not None else -1
    duration = (now_ms if end == -1 else end) - start if start != -1 else -1
    return {"start-time": start, "end-time": end, "duration": duration}
