"""`/jobs/:jobid/checkpoints`: statistics, configuration, and triggering a checkpoint."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.coordinator import stats_json
from checkpointing.coordinator.stats_model import CheckpointStatistics
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.job_master import JobMaster
from checkpointing.jobs.operations import UnknownOperation
from checkpointing.model.checkpoint import RetentionPolicy
from checkpointing.model.configuration import CheckpointStorageKind
from checkpointing.rest.errors import NOT_FOUND, RestError, error_response
from checkpointing.rest.jobs import job_of
from checkpointing.rest.operation_json import operation_json
from checkpointing.rest.requests import choice_field, id_field, json_body, path_id, path_number

OPERATION = "checkpoint"
STATE_STORE_KEY = "spark.sql.streaming.stateStore.providerClass"
# The default of drivers unless the job sets another one.
DEFAULT_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class CheckpointHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def statistics(self, request: Request) -> JSONResponse:
        job = job_of(self._dispatcher, request)
        return JSONResponse(stats_json.checkpoints(job.checkpoints.stats.snapshot()))

    async def configuration(self, request: Request) -> JSONResponse:
        return JSONResponse(configuration_json(job_of(self._dispatcher, request)))

    async def details(self, request: Request) -> JSONResponse:
        job = job_of(self._dispatcher, request)
        return JSONResponse(stats_json.checkpoint_details(_found(job, path_number(request, "checkpointid"))))

    async def subtasks(self, request: Request) -> JSONResponse:
        job = job_of(self._dispatcher, request)
        vertex_id = path_id(request, "vertexid")
        found = stats_json.checkpoint_subtasks(_found(job, path_number(request, "checkpointid")), vertex_id)
        if found is None:
            raise RestError(404, f"There is no checkpoint statistics for task {vertex_id}.", NOT_FOUND)
        return JSONResponse(found)

    async def trigger(self, request: Request) -> JSONResponse:
        """Trigger a checkpoint, CONFIGURED or FULL. An explicit INCREMENTAL fails, as in Flink."""
        job_id = path_id(request, "jobid")
        body = await json_body(request)
        kind = choice_field(body, "checkpointType", ("CONFIGURED", "FULL", "INCREMENTAL"), "CONFIGURED")
        if kind == "INCREMENTAL":
            text = "Triggering an incremental checkpoint explicitly is not supported."
            return error_response(500, "Internal server error.", f"<Exception on server side:\n{text}")
        trigger_id = id_field(body, "triggerId")

        async def begin(job: JobMaster) -> dict[str, Any]:
            return {"checkpointId": await job.requests.trigger_checkpoint(full=kind == "FULL")}

        self._dispatcher.trigger(job_id, trigger_id, OPERATION, begin)
        return JSONResponse({"request-id": trigger_id}, 202)

    async def trigger_status(self, request: Request) -> JSONResponse:
        job_id, trigger_id = path_id(request, "jobid"), path_id(request, "triggerid")
        try:
            outcome = self._dispatcher.outcome(job_id, trigger_id, OPERATION)
        except UnknownOperation:
            text = f"There is no checkpoint operation with triggerId={trigger_id} for job {job_id}."
            raise RestError(404, text) from None
        return JSONResponse(operation_json(outcome, "failureCause"))


def _found(job: JobMaster, checkpoint_id: int) -> CheckpointStatistics:
    found = job.checkpoints.stats.snapshot().find(checkpoint_id)
    if found is None:
        raise RestError(404, f"Could not find checkpointing statistics for checkpoint {checkpoint_id}.")
    return found


_STORAGE_CLASS = {
    CheckpointStorageKind.FILESYSTEM: "FileSystemCheckpointStorage",
    CheckpointStorageKind.JOBMANAGER: "JobManagerCheckpointStorage",
}


def configuration_json(job: JobMaster) -> dict[str, Any]:
    config = job.record.config
    attempt = job.record.attempt
    exactly_once = config.exactly_once and not (attempt is not None and attempt.at_least_once)
    return {
        "mode": "exactly_once" if exactly_once else "at_least_once",
        "interval": config.interval_ms,
        "timeout": config.timeout_ms,
        "min_pause": config.min_pause_ms,
        "max_concurrent": config.max_concurrent,
        "externalization": {
            "enabled": config.retention is not RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS or job.keeps_state,
            "delete_on_cancellation": config.retention is not RetentionPolicy.RETAIN_ON_CANCELLATION,
        },
        "state_backend": job.graph.configuration.get(STATE_STORE_KEY, DEFAULT_STATE_STORE).rpartition(".")[2],
        "checkpoint_storage": _STORAGE_CLASS[config.storage],
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": config.tolerable_failures,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": False,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "memory",
        "num_retained": config.num_retained,
    }
