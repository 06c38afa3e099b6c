"""`/jobs`: the jobs of this job manager, and canceling them."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import JSONResponse

from checkpointing.jobs.dispatcher import Dispatcher, JobNotFound
from checkpointing.jobs.job_master import JobMaster
from checkpointing.jobs.job_requests import already_ended
from checkpointing.jobs.long_action import OperationRefused
from checkpointing.masking import mask_values
from checkpointing.model.status import JobStatus
from checkpointing.rest.errors import NOT_FOUND, RestError, bad_request, job_not_found
from checkpointing.rest.job_json import (
    execution_result,
    job_config,
    job_details,
    job_exceptions,
    job_launch,
    job_overview,
    job_plan,
    opened_launch,
)
from checkpointing.rest.requests import discard_body, path_id
from checkpointing.rest.vertex_json import vertex_details

logger = logging.getLogger(__name__)

MAX_EXCEPTIONS = 20


def job_of(dispatcher: Dispatcher, request: Request) -> JobMaster:
    """Return the job that the path names. Answer 404 if there is none."""
    job_id = path_id(request, "jobid")
    try:
        return dispatcher.job(job_id)
    except JobNotFound:
        raise job_not_found(job_id) from None


class JobHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def list(self, request: Request) -> JSONResponse:
        archived = self._dispatcher.archived_jobs
        ids = [*((job.graph.job_id, job.status) for job in self._dispatcher.jobs)]
        ids += [(job.job_id, job.status) for job in archived]
        return JSONResponse({"jobs": [{"id": job_id, "status": status.value} for job_id, status in ids]})

    async def overview(self, request: Request) -> JSONResponse:
        archived = [job.overview for job in self._dispatcher.archived_jobs]
        known = [job_overview(job.record, self._now()) for job in self._dispatcher.jobs]
        return JSONResponse({"jobs": known + archived})

    async def details(self, request: Request) -> JSONResponse:
        record = self._job(request).record
        wait = self._dispatcher.services.launch_queue.wait_of(record.graph.job_id)
        return JSONResponse(job_details(record, self._now(), wait))

    async def status(self, request: Request) -> JSONResponse:
        return JSONResponse({"status": self._job(request).status.value})

    async def plan(self, request: Request) -> JSONResponse:
        return JSONResponse({"plan": job_plan(self._job(request).record)})

    async def vertex(self, request: Request) -> JSONResponse:
        record, vertex_id = self._job(request).record, path_id(request, "vertexid")
        for vertex in record.vertices:
            if vertex.id == vertex_id:
                return JSONResponse(vertex_details(record, vertex, self._now()))
        raise RestError(404, f"JobVertex {vertex_id} not found", NOT_FOUND)

    async def execution_result(self, request: Request) -> JSONResponse:
        return JSONResponse(execution_result(self._job(request).record))

    async def refuse_graph(self, request: Request) -> JSONResponse:
        """Refuse the compiled job graph that `flink run` sends, with an error that its client does not retry."""
        await discard_body(request, self._dispatcher.services.settings.max_upload_bytes)
        self._dispatcher.require_leading()
        logger.info("refused a Flink job graph")
        raise bad_request(
            "This job manager runs PySpark programs, not Flink jobs: submit a program with "
            "`manage.py submit PROGRAM.py:FUNCTION`, or upload it to /jars/upload and start it with /jars/:id/run."
        )

    async def configuration(self, request: Request) -> JSONResponse:
        """Return the keys that the job was submitted with. Secrets are hidden."""
        settings = mask_values(self._job(request).graph.configuration)
        return JSONResponse([{"key": key, "value": value} for key, value in sorted(settings.items())])

    async def config(self, request: Request) -> JSONResponse:
        return JSONResponse(job_config(self._job(request)))

    async def launch(self, request: Request) -> JSONResponse:
        """Return all that is needed to start the job again, with plain secrets: callers may run programs anyway."""
        keys = self._dispatcher.services.secret_keys
        return JSONResponse(opened_launch(job_launch(self._job(request)), keys))

    async def exceptions(self, request: Request) -> JSONResponse:
        text = request.query_params.get("maxExceptions", str(MAX_EXCEPTIONS))
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise bad_request(f"maxExceptions: {text!r} is not allowed; a whole number, at least 1")
        return JSONResponse(job_exceptions(self._job(request).record, int(text)))

    async def cancel(self, request: Request) -> JSONResponse:
        """Cancel the job. The request is PATCH with mode=cancel, Flink's default."""
        mode = request.query_params.get("mode", "cancel")
        if mode == "stop":
            raise RestError(308, 'The termination mode "stop" has been removed. Use the stop endpoint instead.')
        if mode != "cancel":
            raise bad_request(f"mode: {mode!r} is not allowed; cancel is expected")
        archived = self._dispatcher.archived(path_id(request, "jobid"))
        if archived is not None and archived.status is JobStatus.CANCELED:
            return JSONResponse({}, 202)
        if archived is not None:
            raise RestError(409, already_ended(archived.status))
        try:
            self._job(request).requests.cancel()
        except OperationRefused as error:
            raise RestError(409, str(error)) from error
        return JSONResponse({}, 202)

    def _job(self, request: Request) -> JobMaster:
        return job_of(self._dispatcher, request)

    def _now(self) -> int:
        return self._dispatcher.services.clock.now_ms()
