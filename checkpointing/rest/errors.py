"""Flink's error answers: `{"errors": ["<class>: <text for people>"]}` with a status code."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from checkpointing.model.refusals import Refused

REST_HANDLER = "org.apache.flink.runtime.rest.handler.RestHandlerException"
NOT_FOUND = "org.apache.flink.runtime.rest.NotFoundException"
NO_LEADER_TEXT = "Service temporarily unavailable due to an ongoing leader election. Please refresh."


class RestError(Exception):
    """An error answer with `status` and `message`. `kind` is the class name at its start in Flink ("" for none).

    `cause`: the error that the answer reports. A `Refused` is in the answer as a code with arguments, too.
    """

    def __init__(self, status: int, message: str, kind: str = REST_HANDLER, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.cause = cause

    def response(self) -> JSONResponse:
        text = f"{self.kind}: {self}" if self.kind else str(self)
        return JSONResponse({"errors": [text], **refusal_json(self.cause)}, self.status)


def refusal_json(error: BaseException | None) -> dict[str, Any]:
    """Return the code and the arguments that Waymark translates, if `error` is a `Refused`."""
    return {"refusal": error.as_json()} if isinstance(error, Refused) else {}


def error_response(status: int, *texts: str) -> JSONResponse:
    return JSONResponse({"errors": list(texts)}, status)


def bad_request(message: str) -> RestError:
    return RestError(400, message)


def refused(field: str, error: Exception) -> RestError:
    """Return the answer 400 for a value of `field` that cannot be used."""
    return RestError(400, f"{field}: {error}", cause=error)


def job_not_found(job_id: str) -> RestError:
    return RestError(404, f"Job {job_id} not found", NOT_FOUND)
