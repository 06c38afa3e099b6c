"""`/taskmanagers`: each executor of each running job, because executors run the jobs' tasks.

With a local master the driver's own JVM is the job's one executor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from checkpointing.jobs.attempt import Attempt
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.model.messages import Executor
from checkpointing.rest.errors import NOT_FOUND, RestError
from checkpointing.rest.job_json import is_running

_MIB = 1 << 20


class TaskManagerHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def list(self, request: Request) -> JSONResponse:
        self._dispatcher.require_leading()
        found = [_described(attempt, executor, job_id) for job_id, attempt, executor in self._running()]
        return JSONResponse({"taskmanagers": found})

    async def details(self, request: Request) -> JSONResponse:
        job_id, attempt, executor = self._found(request)
        return JSONResponse(_described(attempt, executor, job_id))

    async def log(self, request: Request) -> PlainTextResponse:
        """Return the end of the driver's log. The log of an executor on another machine is there."""
        _, attempt, executor = self._found(request)
        if executor.id != "driver" or attempt.process is None:
            raise RestError(
                404,
                f"The log of {request.path_params['taskmanagerid']} is not available here: it is on the machine of "
                "the executor.",
            )
        return PlainTextResponse(await attempt.last_log_lines())

    def _running(self) -> Iterator[tuple[str, Attempt, Executor]]:
        for job in self._dispatcher.jobs:
            attempt = job.record.attempt
            if attempt is not None and is_running(job.record):
                for executor in attempt.executors:
                    yield job.graph.job_id, attempt, executor

    def _found(self, request: Request) -> tuple[str, Attempt, Executor]:
        self._dispatcher.require_leading()
        wanted = str(request.path_params["taskmanagerid"])
        for job_id, attempt, executor in self._running():
            if task_manager_id(job_id, attempt, executor) == wanted:
                return job_id, attempt, executor
        raise RestError(404, f"Could not find TaskExecutor {wanted}.", NOT_FOUND)


def task_manager_id(job_id: str, attempt: Attempt, executor: Executor) -> str:
    return f"{job_id}-{attempt.number}-{executor.id}"


def _described(attempt: Attempt, executor: Executor, job_id: str) -> dict[str, Any]:
    """Return Flink's form, null if Spark has no such figure. Memory is in MiB in Flink's resources, else in bytes."""
    free = max(0, executor.cores - executor.active_tasks)
    return {
        "id": task_manager_id(job_id, attempt, executor),
        "path": executor.address,
        "dataPort": _port(executor.address),
        "jmxPort": -1,
        "timeSinceLastHeartbeat": attempt.last_contact_ms,
        "slotsNumber": executor.cores,
        "freeSlots": free,
        "totalResource": _resource(executor.cores, executor.max_memory),
        "freeResource": _resource(free, max(0, executor.max_memory - executor.used_memory)),
        "hardware": {
            "cpuCores": executor.cores,
            "physicalMemory": None,
            "freeMemory": None,
            "managedMemory": executor.max_memory,
        },
        "memoryConfiguration": None,
        "blocked": False,
        "jobId": job_id,
        "attempt": attempt.number,
    }


def _resource(cores: int, memory: int) -> dict[str, Any]:
    return {
        "cpuCores": float(cores),
        "taskHeapMemory": memory // _MIB,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() else -1
