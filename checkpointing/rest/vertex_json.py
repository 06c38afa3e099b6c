"""A vertex as Flink's JSON: in `/jobs/:id`, and with its subtasks in `/jobs/:id/vertices/:vertexid`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from checkpointing.jobs.job_record import JobRecord
from checkpointing.model.messages import Executor, Vertex, VertexRows
from checkpointing.model.status import JobStatus

EXECUTION_STATES = (
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
)  # fmt: skip

# A task's status follows from the job's, because a Spark driver starts and ends all its tasks together.
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


_UNKNOWN = VertexRows()
_NO_TIMES: dict[str, Any] = {
    "accumulated-backpressured-time": 0,
    "accumulated-idle-time": 0,
    "accumulated-busy-time": "NaN",
}


def _metrics(rows: VertexRows) -> dict[str, Any]:
    """Return Flink's counters. An uncounted one is 0 and marked as not complete. Only Waymark has `state-…`."""
    counted = {"read-bytes": None, "write-bytes": None, "read-records": rows.read, "write-records": rows.written}
    ours = {
        "state-rows": rows.state,
        "state-rows-updated": rows.updated,
        "state-rows-removed": rows.removed,
        "state-rows-late": rows.late,
    }
    return {
        **{name: count or 0 for name, count in counted.items()},
        **{f"{name}-complete": count is not None for name, count in counted.items()},
        **_NO_TIMES,
        **{name: count for name, count in ours.items() if count is not None},
    }


def _rows(job: JobRecord, vertex: Vertex) -> VertexRows:
    progress = job.attempt.queries.get(vertex.query) if job.attempt else None
    return progress.rows.get(vertex.id, _UNKNOWN) if progress else _UNKNOWN


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
        "metrics": _metrics(_rows(job, vertex)),
        "query": vertex.query,
        "kind": vertex.kind.value,
    }


def vertex_details(job: JobRecord, vertex: Vertex, now_ms: int) -> dict[str, Any]:
    """Return a vertex with its subtasks. `endpoint` is known only if there is one executor.

    Spark chooses the place of each batch's tasks. It counts rows by operator, so a subtask's rows are known only if
    there is just one.
    """
    times = _times(job, now_ms)
    executors: tuple[Executor, ...] = job.attempt.executors if job.attempt else ()
    endpoint = executors[0].address if len(executors) == 1 else None
    state = TASK_STATE[job.status]
    metrics = _metrics(_rows(job, vertex) if vertex.parallelism == 1 else _UNKNOWN)
    subtasks = [
        {
            "subtask": index,
            "status": state,
            "attempt": job.attempt.number if job.attempt else 0,
            "endpoint": endpoint,
            **times,
            "metrics": metrics,
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
    """Return the times, -1 for events that have not happened."""
    attempt = job.attempt
    start = attempt.running_since_ms if attempt and attempt.running_since_ms is not None else -1
    end = attempt.ended_ms if attempt and attempt.ended_ms is not None else -1
    duration = (now_ms if end == -1 else end) - start if start != -1 else -1
    return {"start-time": start, "end-time": end, "duration": duration}
