"""`/jobs/:jobid/logs`: the drivers' logs of a job by attempt, also after the job has ended.

Flink has no such address. The list and the files have the form of Flink's `/taskmanagers/:taskmanagerid/logs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.jobs.driver_logs import MOST_MATCHES, DriverLog, DriverLogs, NoSuchLog
from checkpointing.rest.errors import NOT_FOUND, RestError, bad_request
from checkpointing.rest.jobs import job_of
from checkpointing.rest.requests import path_id, query_number

T = TypeVar("T")

MOST_BYTES = 4 << 20
_RANGE = re.compile(r"bytes=(?P<first>\d{0,18})-(?P<last>\d{0,18})")
_LONGEST_SEARCH = 500


class DriverLogHandlers:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def list(self, request: Request) -> JSONResponse:
        found = await self._read(request, DriverLogs.all)
        return JSONResponse({"logs": [_described(log) for log in found]})

    async def log(self, request: Request) -> Response:
        """Return one range of bytes of the log (RFC 9110), at most MOST_BYTES of it; without a range, the end."""
        name, requested = str(request.path_params["name"]), request.headers.get("range")

        def read(logs: DriverLogs) -> tuple[int, bytes, int]:
            size = logs.size(name)
            start, stop = _range(requested or f"bytes=-{MOST_BYTES}", size)
            return start, logs.read(name, start, stop - start) if start < stop else b"", size

        start, content, size = await self._read(request, read)
        headers = {"Accept-Ranges": "bytes"}
        if requested is not None and not content:
            return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{size}"})
        whole = len(content) == size
        if not whole or requested is not None:
            headers["Content-Range"] = f"bytes {start}-{start + len(content) - 1}/{size}"
        status = 200 if requested is None and whole else 206
        return Response(content, status, headers, media_type="text/plain")

    async def search(self, request: Request) -> JSONResponse:
        """Return the last lines that contain `text`, ignoring case."""
        name, text = str(request.path_params["name"]), request.query_params.get("text", "")
        if not 0 < len(text) <= _LONGEST_SEARCH:
            raise bad_request(f"text: {len(text)} characters are not allowed; 1 to {_LONGEST_SEARCH}")
        found = await self._read(request, lambda logs: logs.search(name, text))
        matches = [{"offset": match.offset, "line": match.line} for match in found[-MOST_MATCHES:]]
        return JSONResponse({"matches": matches, "truncated": len(found) > MOST_MATCHES})

    async def position(self, request: Request) -> JSONResponse:
        """Return the position of the first line that was written at `time` (milliseconds since 1970) or later."""
        name, time_ms = str(request.path_params["name"]), query_number(request, "time")
        return JSONResponse({"offset": await self._read(request, lambda logs: logs.position(name, time_ms))})

    async def _read(self, request: Request, read: Callable[[DriverLogs], T]) -> T:
        job_id, services = path_id(request, "jobid"), self._dispatcher.services
        if self._dispatcher.archived(job_id) is None:
            job_of(self._dispatcher, request)
        logs = DriverLogs(services.jobs_directory, job_id)
        try:
            return await services.io_of(job_id).read("the drivers' logs", lambda: read(logs))
        except NoSuchLog as error:
            raise RestError(404, f"Job {job_id} has no log {str(error)!r}.", NOT_FOUND) from error
        except OSError as error:
            raise RestError(500, f"The logs of job {job_id} cannot be read: {error}") from error


def _range(text: str, size: int) -> tuple[int, int]:
    """Return the first byte and the one after the last. They are equal if the log has no such bytes."""
    match = _RANGE.fullmatch(text.strip())
    if match is None or not (match["first"] or match["last"]):
        raise bad_request(f"Range: {text!r} is not allowed; one range such as bytes=0-999 or bytes=-1000 is expected")
    if not match["first"]:
        return max(size - min(int(match["last"]), MOST_BYTES), 0), size
    start = int(match["first"])
    stop = min(size, int(match["last"]) + 1) if match["last"] else size
    return start, min(stop, start + MOST_BYTES)


def _described(log: DriverLog) -> dict[str, Any]:
    return {
        "name": log.name,
        "size": log.size,
        "mtime": log.modified_ms,
        "attempt": log.attempt,
        "start-time": log.started_ms,
        "first-failure": log.is_first_failure,
        "elsewhere": log.elsewhere and log.elsewhere.text,
        "elsewhere-code": log.elsewhere and log.elsewhere.code,
    }
