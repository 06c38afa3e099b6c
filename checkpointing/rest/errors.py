"""Flink's error answers: `{"errors": ["<class>: <text for people>"]}` with a status code."""

from __future__ import annotations

from starlette.responses import JSONResponse

REST_HANDLER = "org.apache.flink.runtime.rest.handler.RestHandlerException"
NOT_FOUND = "org.apache.flink.runtime.rest.NotFoundException"
NO_LEADER = "Service temporarily unavailable due to an ongoing leader election. Please refresh."


class RestError(Exception):
    """An error answer with `status` and `message`. `kind` is the class name at its start in Flink ("" for none)."""

    def __init__(self, status: int, message: str, kind: str = REST_HANDLER) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def response(self) -> JSONResponse:
        text = f"{self.kind}: {self}" if self.kind else str(self)
        return error_response(self.status, text)


def error_response(status: int, *texts: str) -> JSONResponse:
    return JSONResponse({"errors": list(texts)}, status)


def bad_request(message: str) -> RestError:
    return RestError(400, message)


def job_not_found(job_id: str) -> RestError:
    return RestError(404, f"Job {job_id} not found", NOT_FOUND)
