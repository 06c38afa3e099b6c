"""Flink's REST API over the dispatcher, under `/` and under `/v1`, and the drivers' WebSocket."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from checkpointing.jobs.dispatcher import Dispatcher, NotLeading
from checkpointing.rest.archive import or_archived
from checkpointing.rest.checkpoints import CheckpointHandlers
from checkpointing.rest.client import NO_LEADER
from checkpointing.rest.cluster import ClusterHandlers
from checkpointing.rest.driver_logs import DriverLogHandlers
from checkpointing.rest.drivers import DriverHandler
from checkpointing.rest.errors import NO_LEADER_TEXT, RestError, error_response
from checkpointing.rest.imports import ImportHandlers
from checkpointing.rest.jars import JarHandlers
from checkpointing.rest.job_manager import JobManagerHandlers, RecentLog
from checkpointing.rest.jobs import JobHandlers
from checkpointing.rest.known_hosts import KnownHosts, known_hosts
from checkpointing.rest.metrics import MetricHandlers
from checkpointing.rest.requests import discard_body
from checkpointing.rest.resource_requirements import ResourceRequirementsHandlers
from checkpointing.rest.savepoints import SavepointHandlers
from checkpointing.rest.task_managers import TaskManagerHandlers

logger = logging.getLogger(__name__)


def make_app(dispatcher: Dispatcher, token: str | None, log: RecentLog) -> Starlette:
    """Return the app. Every request must carry `token` as its bearer token; None admits everyone who reaches the port.

    `log` has this process's log lines. No CORS headers are sent.
    """
    services = dispatcher.services
    api = [*or_archived(dispatcher, _job_routes(dispatcher)), *_other_routes(dispatcher, log)]
    names, origins = known_hosts(services.settings, services.address), services.settings.more_hosts
    middleware = [Middleware(KnownHosts, names=names, origins=origins)]
    if token:
        middleware.append(Middleware(BearerToken, token=token))
    return Starlette(
        routes=[Mount("/v1", routes=api), *api, WebSocketRoute("/drivers", DriverHandler(dispatcher).connect)],
        middleware=middleware,
        exception_handlers={
            RestError: _rest_error,
            NotLeading: _not_leading,
            HTTPException: _answer_http_errors(services.settings.max_upload_bytes),
            Exception: _unexpected,
        },
    )


def _job_routes(dispatcher: Dispatcher) -> Sequence[BaseRoute]:
    jobs, checkpoints, savepoints = (
        JobHandlers(dispatcher),
        CheckpointHandlers(dispatcher),
        SavepointHandlers(dispatcher),
    )
    requirements, metrics = ResourceRequirementsHandlers(dispatcher), MetricHandlers(dispatcher)
    logs, drivers = DriverLogHandlers(dispatcher), DriverHandler(dispatcher)
    job = "/jobs/{jobid}"
    return [
        Route("/jobs", jobs.list, methods=["GET"]),
        Route("/jobs", jobs.refuse_graph, methods=["POST"]),
        Route("/jobs/overview", jobs.overview),
        Route("/jobs/metrics", metrics.jobs),
        Route(job, jobs.details, methods=["GET"]),
        Route(job, jobs.cancel, methods=["PATCH"]),
        Route(f"{job}/status", jobs.status),
        Route(f"{job}/plan", jobs.plan),
        Route(f"{job}/config", jobs.config),
        Route(f"{job}/launch", jobs.launch),
        Route(f"{job}/exceptions", jobs.exceptions),
        Route(f"{job}/attempts/{{attempt}}/program", drivers.program),
        Route(f"{job}/logs", logs.list),
        Route(f"{job}/logs/{{name}}", logs.log),
        Route(f"{job}/logs/{{name}}/search", logs.search),
        Route(f"{job}/logs/{{name}}/position", logs.position),
        Route(f"{job}/resource-requirements", requirements.get, methods=["GET"]),
        Route(f"{job}/resource-requirements", requirements.put, methods=["PUT"]),
        Route(f"{job}/execution-result", jobs.execution_result),
        Route(f"{job}/jobmanager/config", jobs.configuration),
        Route(f"{job}/vertices/{{vertexid}}", jobs.vertex),
        Route(f"{job}/metrics", metrics.job),
        Route(f"{job}/checkpoints", checkpoints.statistics, methods=["GET"]),
        Route(f"{job}/checkpoints", checkpoints.trigger, methods=["POST"]),
        Route(f"{job}/checkpoints/config", checkpoints.configuration),
        Route(f"{job}/checkpoints/details/{{checkpointid}}", checkpoints.details),
        Route(f"{job}/checkpoints/details/{{checkpointid}}/subtasks/{{vertexid}}", checkpoints.subtasks),
        Route(f"{job}/checkpoints/{{triggerid}}", checkpoints.trigger_status),
        Route(f"{job}/savepoints", savepoints.trigger, methods=["POST"]),
        Route(f"{job}/savepoints/{{triggerid}}", savepoints.status),
        Route(f"{job}/stop", savepoints.stop, methods=["POST"]),
    ]


def _other_routes(dispatcher: Dispatcher, log: RecentLog) -> Sequence[BaseRoute]:
    cluster, savepoints, jars = ClusterHandlers(dispatcher), SavepointHandlers(dispatcher), JarHandlers(dispatcher)
    manager, tasks = JobManagerHandlers(dispatcher.services.settings, log), TaskManagerHandlers(dispatcher)
    imports = ImportHandlers(dispatcher)
    return [
        Route("/overview", cluster.overview),
        Route("/config", cluster.config),
        Route("/jobmanager/config", manager.config),
        Route("/jobmanager/log", manager.log),
        Route("/jobmanager/logs", manager.logs),
        Route("/jobmanager/logs/{name}", manager.log_by_name),
        Route("/taskmanagers", tasks.list),
        Route("/taskmanagers/{taskmanagerid}", tasks.details),
        Route("/taskmanagers/{taskmanagerid}/log", tasks.log),
        Route("/savepoint-disposal", savepoints.dispose, methods=["POST"]),
        Route("/savepoint-disposal/{triggerid}", savepoints.disposal_status),
        Route("/savepoints/validate", savepoints.validate, methods=["POST"]),
        Route("/savepoints/import", imports.begin, methods=["POST"]),
        Route("/savepoints/import/validate", imports.validate, methods=["POST"]),
        Route("/savepoints/import/{triggerid}", imports.status),
        Route("/jars", jars.list),
        Route("/jars/upload", jars.upload, methods=["POST"]),
        Route("/jars/{jarid}", jars.delete, methods=["DELETE"]),
        Route("/jars/{jarid}/content", jars.content),
        Route("/jars/{jarid}/run", jars.run, methods=["POST"]),
    ]


async def _rest_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)  # noqa: S101  (Starlette's signature is wider)
    return error.response()


async def _not_leading(request: Request, error: Exception) -> Response:
    return error_response(NO_LEADER, str(error) or NO_LEADER_TEXT)


def _answer_http_errors(most_discarded: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101
        await discard_body(request, most_discarded)
        text = "Not found." if error.status_code == 404 else str(error.detail)
        response = error_response(error.status_code, f"{text} {request.method} {request.url.path}")
        response.headers.update(error.headers or {})
        return response

    return answer


async def _unexpected(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(500, "Internal server error.", f"<Exception on server side:\n{type(error).__name__}: {error}")


class BearerToken:
    """ASGI middleware that checks the token of the API and of the drivers' connections.

    It answers 401 (a refused handshake for a WebSocket) unless `Authorization: Bearer <token>` is right.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_authorized(Headers(scope=scope).get("authorization", "")):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(code=1008, reason="a bearer token is needed")(scope, receive, send)
        else:
            response = error_response(401, "A bearer token is needed, or the one sent is wrong.")
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)

    def _is_authorized(self, header: str) -> bool:
        scheme, _, token = header.partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)
