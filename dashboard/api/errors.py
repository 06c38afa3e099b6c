"""The format of all errors of the API, also of those from Django Ninja or Django."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.forms import BaseForm
from django.http import HttpResponse, JsonResponse
from ninja import Schema
from ninja.errors import ValidationError
from pydantic import Field

from dashboard.api.schemas.reasons import ReasonJson
from monitoring.history.rows import Unreadable
from monitoring.reasons.reason import Reason

CODES = {
    400: ("malformed", "The request is malformed."),
    401: ("unauthenticated", "Send a token: Authorization: Bearer wmk_…"),
    403: ("forbidden", "You do not have permission for this."),
    404: ("not_found", "The object does not exist, or you may not see it."),
    405: ("method_not_allowed", "The address does not accept this method."),
    409: ("conflict", "The request is not possible now."),
    413: ("too_large", "The body is too large."),
    415: ("unsupported_media_type", "Send JSON: Content-Type: application/json."),
    422: ("invalid", "A value is not allowed."),
    429: ("too_many_requests", "Too many requests. Wait as many seconds as Retry-After says."),
    500: ("broken", "Waymark failed. The log has the reason."),
    503: ("unavailable", "Waymark is unavailable now."),
    504: ("unknown", "The engine did not answer the request. The outcome is unknown."),
}
UNKNOWN = 504


class FieldError(Schema):
    field: str = Field(description="The name of a query parameter, or the path in the body.")
    value: Any = Field(None, description="The value that was sent. Never a secret.")
    message: str = Field(description="The problem, and the allowed values.")


class Problem(Schema):
    code: str = Field(description="The kind of error, for programs.", examples=["invalid"])
    message: str = Field(description="The error, for people.")
    reason: ReasonJson = Field(None, description="The reason in the message. null: it has no code.")
    fields: list[FieldError] = []


class ErrorOut(Schema):
    error: Problem


class Refused(Exception):
    """An error response of the API."""

    def __init__(
        self, status: int, message: str = "", fields: Iterable[FieldError] = (), reason: Reason | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.fields = list(fields)
        self.reason = reason


def conflict(why: object, before: str = "") -> Refused:
    """Return a 409 error.

    `why` is a text, or an exception that may have a reason. `before` is a sentence at the start of the message.
    """
    return _because(409, why, before)


def unavailable(why: object, before: str = "") -> Refused:
    """Return a 503 error. For the arguments, see `conflict`."""
    return _because(503, why, before)


def _because(status: int, why: object, before: str) -> Refused:
    reason = getattr(why, "reason", None)
    return Refused(status, f"{before} {why}".lstrip(), reason=reason if isinstance(reason, Reason) else None)


def invalid(field: str, value: object, message: str) -> Refused:
    return Refused(422, fields=[FieldError(field=field, value=value, message=message)])


def answer_of(
    status: int, message: str = "", fields: Iterable[FieldError] = (), reason: Reason | None = None
) -> JsonResponse:
    code, usual = CODES.get(status, ("refused" if status < 500 else "broken", "The request was refused."))
    listed = [field.model_dump(mode="json") for field in fields]
    text = message or (f"{listed[0]['field']}: {listed[0]['message']}" if listed else usual)
    sentence = reason.as_json() if reason else None
    response = JsonResponse(
        {"error": {"code": code, "message": text, "reason": sentence, "fields": listed}}, status=status
    )
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="Waymark"'
    return response


def with_standard_errors(response: HttpResponse) -> HttpResponse:
    """Return `response`, or an error in the format of the API if it is an error in another format."""
    if response.status_code < 400 or response.headers.get("Content-Type", "").startswith("application/json"):
        return response
    ours = answer_of(response.status_code)
    for name in ("Allow", "Retry-After"):
        if name in response.headers:
            ours.headers[name] = response.headers[name]
    return ours


def fields_of(error: ValidationError) -> list[FieldError]:
    """Return the errors of a request that does not match the types of an operation."""
    return [
        FieldError(field=_place(each["loc"]), value=_sent_value(each.get("input")), message=_sentence(str(each["msg"])))
        for each in error.errors
    ]


def errors_of(form: BaseForm, hidden: Iterable[str] = ()) -> list[FieldError]:
    """Return the errors of a form, without the values of the fields in `hidden`."""
    secret = {*hidden}
    return [
        FieldError(field="" if name == "__all__" else name, value=_typed(form, name, secret), message=str(message))
        for name, messages in form.errors.items()
        for message in messages
    ]


def _typed(form: BaseForm, name: str, secret: set[str]) -> Any:
    if name in secret or name not in form.fields:
        return None
    return _sent_value(form[name].data)


def _place(location: Iterable[str | int]) -> str:
    """Convert a location such as `("body", "body", "labels", "team")` to `labels.team`."""
    parts = [str(part) for part in location]
    while parts and parts[0] in ("body", "query", "path", "file", "params"):
        parts = parts[1:]
    return ".".join(parts)


def _sent_value(value: Any) -> Any:
    """Return the value, or a shortened text of it if it is long or not JSON."""
    text = json.dumps(value, default=str)
    return value if len(text) <= 500 and json.loads(text) == value else text[:500]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


@contextmanager
def readable() -> Iterator[None]:
    """Convert an error of the archive to status 503 with the name of the unreadable file."""
    try:
        yield
    except Unreadable as why:
        raise Refused(503, f"The archive cannot be read: {why}") from why
