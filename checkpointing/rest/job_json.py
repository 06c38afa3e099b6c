"""A job as Flink's JSON: the answers of `/jobs/overview`, `/jobs/:id` and most paths below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from checkpointing.coordinator.stats_json import external_path
from checkpointing.jobs.attempt import Attempt
from checkpointing.jobs.attempts import AttemptRecord
from checkpointing.jobs.job_master import JobMaster
from checkpointing.jobs.job_record import ExceptionEntry, JobRecord, first_line
from checkpointing.jobs.launching.admission import LaunchWait
from checkpointing.jobs.secret_keys import SecretKeys
from checkpointing.masking import mask_arguments, mask_values
from checkpointing.model.messages import DriverState, ExceptionInfo, Vertex, VertexKind
from checkpointing.model.status import JobStatus
from checkpointing.rest.java_throwable import java_failure
from checkpointing.rest.launch_wait import environment_wait_json, launch_wait_json
from checkpointing.rest.rows_written_again import sinks_json
from checkpointing.rest.vertex_json import EXECUTION_STATES, TASK_STATE, counts, vertex_json


def job_overview(job: JobRecord, now_ms: int) -> dict[str, Any]:
    tasks = Counter({TASK_STATE[job.status]: sum(vertex.parallelism for vertex in job.vertices)})
    return {
        "jid": job.graph.job_id,
        "name": job.graph.name,
        "jobType": "STREAMING",
        "schedulerType": "Default",
        **_times(job, now_ms),
        "state": job.status.value,
        "last-modification": job.state.last_modified_ms,
        "tasks": {"total": tasks.total(), **{state.lower(): tasks[state] for state in EXECUTION_STATES}},
        "pending-operators": 0,
    }


def job_details(job: JobRecord, now_ms: int, wait: tuple[LaunchWait, int] | None = None) -> dict[str, Any]:
    """Return the details of a job. `wait`: why its driver may not start yet, and since when."""
    return {
        "jid": job.graph.job_id,
        "name": job.graph.name,
        "isStoppable": False,
        "state": job.status.value,
        "job-type": "STREAMING",
        "schedulerType": "Default",
        **_times(job, now_ms),
        "maxParallelism": -1,
        "now": now_ms,
        "timestamps": {status.value: at_ms for status, at_ms in job.state.timestamps.items()},
        "vertices": [vertex_json(job, vertex, now_ms) for vertex in job.vertices],
        "status-counts": counts(Counter({TASK_STATE[job.status]: len(job.vertices)})),
        "plan": job_plan(job),
        "pending-operators": 0,
        "attempts": [_attempt(attempt) for attempt in reversed(job.attempts)],
        "queries": _queries(job.attempt),
        "python-environment": _python_environment(job),
        "ended-by-itself": _ended_by_itself(job),
        "launch-wait": launch_wait_json(wait) or _environment_wait(job),
        "restarts": job.num_restarts,
        "status-history": [
            {"status": move.target.value, "timestamp": move.at_ms, "cause": move.cause} for move in job.state.moves
        ],
    }


def job_plan(job: JobRecord) -> dict[str, Any]:
    return {
        "jid": job.graph.job_id,
        "name": job.graph.name,
        "type": "STREAMING",
        "nodes": [_node(vertex, _inputs(vertex, job.vertices)) for vertex in reversed(job.vertices)],
    }


def job_config(job: JobMaster) -> dict[str, Any]:
    """Return a job's configuration as Flink does.

    Waymark adds `launch`: how to start the job again, secrets hidden. `imported-queries`: Spark's IDs of the queries
    whose checkpoint locations the job continues.
    """
    graph = job.graph
    return {
        "jid": graph.job_id,
        "name": graph.name,
        "execution-config": {
            "restart-strategy": job.strategy.describe(),
            "job-parallelism": graph.parallelism or 1,
            "object-reuse-mode": False,
            "user-config": {},
        },
        "launch": masked_launch(job_launch(job)),
        "imported-queries": list(graph.imported_queries),
    }


def job_launch(job: JobMaster) -> dict[str, Any]:
    """Return the body of `/jars/:id/run` that starts the job again, with encrypted secrets."""
    graph = job.graph
    return {
        "jarId": graph.jar_id,
        "entryClass": graph.entry_class,
        "programArgsList": list(graph.program_args),
        "parallelism": graph.parallelism,
        "savepointPath": graph.savepoint_path,
        "allowNonRestoredState": graph.allow_non_restored_state,
        "claimMode": graph.claim_mode,
        "flinkConfiguration": dict(graph.configuration),
    }


def opened_launch(launch: Mapping[str, Any], keys: SecretKeys) -> dict[str, Any]:
    """Return the record with plain secrets. A secret that no key decrypts is hidden, so that no job starts with it."""
    return {**launch, "flinkConfiguration": keys.opened_or_hidden(launch["flinkConfiguration"])}


def masked_launch(launch: Mapping[str, Any]) -> dict[str, Any]:
    hidden = {
        "programArgsList": mask_arguments(launch["programArgsList"]),
        "flinkConfiguration": mask_values(launch["flinkConfiguration"]),
    }
    return {**launch, **hidden}


def job_exceptions(job: JobRecord, max_exceptions: int) -> dict[str, Any]:
    entries = job.exceptions.entries
    return {
        "exceptionHistory": {
            "entries": [_exception(entry) for entry in entries[:max_exceptions]],
            "truncated": job.exceptions.truncated or len(entries) > max_exceptions,
        }
    }


_APPLICATION_STATUS = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.CANCELED: "CANCELED", JobStatus.FAILED: "FAILED"}


def execution_result(job: JobRecord) -> dict[str, Any]:
    """Return the answer of `/jobs/:id/execution-result`: IN_PROGRESS until the job has ended everywhere."""
    if job.status not in _APPLICATION_STATUS:
        return {"status": {"id": "IN_PROGRESS"}}
    result: dict[str, Any] = {
        "id": job.graph.job_id,
        "application-status": _APPLICATION_STATUS[job.status],
        "accumulator-results": {},
        "net-runtime": job.state.last_modified_ms - job.state.started_ms,
    }
    if job.failure is not None:
        name, text = job.failure.name, first_line(job.failure.message)
        result["failure-cause"] = java_failure(name, text, exception_text(job.failure))
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


def exception_text(info: ExceptionInfo) -> str:
    """Return the stack trace as Flink shows it, after a line that says what failed."""
    headline = f"{info.name}: {first_line(info.message)}"
    return info.stacktrace if info.stacktrace.startswith(headline) else f"{headline}\n{info.stacktrace}".rstrip()


def _times(job: JobRecord, now_ms: int) -> dict[str, int]:
    start, end = job.state.started_ms, job.state.ended_ms
    return {
        "start-time": start,
        "end-time": -1 if end is None else end,
        "duration": (now_ms if end is None else end) - start,
    }


def _node(vertex: Vertex, inputs: Sequence[Vertex]) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": vertex.id,
        "operator": "",
        "parallelism": vertex.parallelism,
        "operator_strategy": "",
        "description": f"{vertex.name}<br/>",
        "optimizer_properties": {},
    }
    if inputs:
        node["inputs"] = [
            {"id": source.id, "num": number, "exchange": "blocking", "ship_strategy": _ship_strategy(source, vertex)}
            for number, source in enumerate(inputs)
        ]
    return node


def _ship_strategy(source: Vertex, target: Vertex) -> str:
    if target.kind is VertexKind.STATEFUL:
        return "HASH"
    return "FORWARD" if source.parallelism == target.parallelism else "REBALANCE"


def _inputs(vertex: Vertex, vertices: Sequence[Vertex]) -> list[Vertex]:
    """Return the inputs of a vertex: the nearest kind before it in its query, or the stateful operator before it."""
    query = [other for other in vertices if other.query == vertex.query]
    sources = [other for other in query if other.kind is VertexKind.SOURCE]
    stateful = [other for other in query if other.kind is VertexKind.STATEFUL]
    match vertex.kind:
        case VertexKind.SOURCE:
            return []
        case VertexKind.STATEFUL:
            position = stateful.index(vertex)
            return [stateful[position - 1]] if position else sources
        case VertexKind.SINK:
            return stateful[-1:] or sources


def _attempt(attempt: Attempt) -> dict[str, Any]:
    end = attempt.ended.result() if attempt.ended.done() else None
    record = attempt.record
    return {
        "attempt": attempt.number,
        "start-time": record.started_ms,
        "end-time": attempt.ended_ms if attempt.ended_ms is not None else -1,
        "state": end.state.value if end else attempt.state.value,
        "cause": first_line(end.exception.message) if end and end.exception else None,
        "pid": record.pid,
        "pod": record.pod,
        "restored-checkpoint-id": record.restored_checkpoint_id if record.local_directory is None else None,
        "restored-path": record.restored_location or record.local_directory,
        "restored-from": _restored_from(record),
        "restored-batches": record.restored_batches,
        "connected": attempt.channel is not None and not attempt.channel.gone.done(),
    }


def _restored_from(record: AttemptRecord) -> str | None:
    if record.local_directory is not None:
        return "local"
    if record.restored_location is None:
        return None
    return "savepoint" if record.restored_is_savepoint else "checkpoint"


def _python_environment(job: JobRecord) -> dict[str, Any] | None:
    """Return the environment that is prepared for the job, or None for a job that runs in an existing Python.

    For an adopted driver only the environment's name is known.
    """
    python, used = job.python, None if job.attempt is None else job.attempt.record.python_environment
    if python is None:
        return None if used is None else {"status": "READY", "name": used, "kind": None, "step": None, "since": None}
    return {
        "status": python.status,
        "name": None if python.prepared is None else python.prepared.name,
        "kind": python.kind.value,
        "step": python.step.value,
        "since": python.started_ms,
    }


def _environment_wait(job: JobRecord) -> dict[str, Any] | None:
    if job.status is not JobStatus.CREATED or job.python is None or job.python.status != "PREPARING":
        return None
    return environment_wait_json(job.python)


def _queries(attempt: Attempt | None) -> list[dict[str, Any]]:
    """Return the last micro-batch of each query from its heartbeats, or the last committed one before any heartbeat."""
    if attempt is None:
        return []
    sinks = {sink["name"]: sink for sink in sinks_json(attempt.vertices or attempt.record.sinks)}
    names = sorted({*attempt.queries, *attempt.last_batches, *sinks})
    answer = []
    for name in names:
        progress = attempt.queries.get(name)
        answer.append(
            {
                "name": name,
                "last-batch-id": progress.batch_id if progress else attempt.last_batches.get(name),
                "last-batch-rows": progress.input_rows if progress else None,
                "last-batch-duration": progress.batch_duration_ms if progress else None,
                "watermark": progress.watermark if progress else None,
                "batches": progress.batches if progress else None,
                **sinks.get(name, {"sink": None, "after-restore": None}),
            }
        )
    return answer


def _ended_by_itself(job: JobRecord) -> dict[str, Any] | None:
    """Return how the state of a job that ended by itself was kept, or None for every other job.

    `is-saved` is False if checkpoints stay instead of a savepoint. `state-path` is the snapshot for the next run: the
    final savepoint, or the savepoint that a run without a new batch started from. It is None without state.
    """
    attempt = job.attempt
    if attempt is None or not attempt.ended_by_itself:
        return None
    savepoint = attempt.stopped_with
    taken = None if savepoint is None else external_path(savepoint.location)
    return {
        "is-saved": job.is_saved,
        "final-savepoint": taken,
        "state-path": taken or _started_from(attempt),
    }


def _started_from(attempt: Attempt) -> str | None:
    location = attempt.record.restored_location if attempt.has_nothing_to_save else None
    return None if location is None else external_path(location)


def _exception(entry: ExceptionEntry) -> dict[str, Any]:
    info = entry.info
    return {
        "exceptionName": info.name,
        "message": first_line(info.message),
        "stacktrace": exception_text(info),
        "timestamp": info.timestamp,
        "taskName": info.task_name,
        "endpoint": None,
        "taskManagerId": None,
        "failureLabels": {},
        "concurrentExceptions": [],
        "attempt": entry.attempt,
    }


def is_running(job: JobRecord) -> bool:
    runs = job.attempt is not None and job.attempt.state in (DriverState.RUNNING, DriverState.ENDED)
    return runs and not job.status.terminal
