"""Answers about jobs that ended under an earlier job manager. They are the stored answers of that job manager."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from checkpointing.coordinator import stats_json
from checkpointing.jobs.archive import OVERVIEW, Answers
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.job_master import JobMaster
from checkpointing.rest.checkpoints import configuration_json
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
from checkpointing.rest.jobs import MAX_EXCEPTIONS
from checkpointing.rest.requests import path_id


def describe(job: JobMaster) -> Answers:
    """Return the answers to store for a job.

    Figures of single subtasks are left out, because there may be very many.
    """
    record, snapshot = job.record, job.checkpoints.stats.snapshot()
    now_ms = record.state.last_modified_ms
    answers: dict[str, Any] = {
        OVERVIEW: job_overview(record, now_ms),
        "": job_details(record, now_ms),
        "/status": {"status": job.status.value},
        "/plan": {"plan": job_plan(record)},
        "/config": job_config(job),
        "/launch": job_launch(job),
        "/exceptions": job_exceptions(record, MAX_EXCEPTIONS),
        "/execution-result": execution_result(record),
        "/checkpoints": stats_json.checkpoints(snapshot),
        "/checkpoints/config": configuration_json(job),
    }
    for entry in answers["/checkpoints"]["history"]:
        found = snapshot.find(entry["id"])
        if found is not None:
            answers[f"/checkpoints/details/{entry['id']}"] = stats_json.checkpoint_details(found)
    return answers


def or_archived(dispatcher: Dispatcher, routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """Return `routes` that answer requests for archived jobs from the archive, where it has an answer."""
    return [_with_archive(dispatcher, route) for route in routes]


def _with_archive(dispatcher: Dispatcher, route: BaseRoute) -> BaseRoute:
    if not isinstance(route, Route) or not route.path.startswith("/jobs/{jobid}") or "GET" not in (route.methods or ()):
        return route

    async def answer(request: Request) -> Response:
        job_id = path_id(request, "jobid")
        archived = dispatcher.archived(job_id)
        path = request.url.path.rstrip("/").partition(f"/jobs/{job_id}")[2]
        if archived is not None and (kept := archived.answers.get(path)) is not None:
            is_launch = path == "/launch"
            return JSONResponse(opened_launch(kept, dispatcher.services.secret_keys) if is_launch else kept)
        found: Response = await route.endpoint(request)
        return found

    return Route(route.path, answer, methods=["GET"])
