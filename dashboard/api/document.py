"""The API object with its routers, its OpenAPI document and its exception handlers."""

from __future__ import annotations

from functools import cache
from http.client import responses
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI, Swagger
from ninja.errors import HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema, get_schema

from dashboard.api import (
    agent,
    automation,
    channels,
    checkpoints,
    clusters,
    diagnosis,
    discoveries,
    fleet,
    incidents,
    jobs,
    maintenance,
    objectives,
    restarts,
    rules,
    runbooks,
    savepoints,
    states,
    submitting,
    system,
)
from dashboard.api.errors import Refused, answer_of, fields_of
from dashboard.api.operations import REFUSALS, Session, Token

DESCRIPTION = """The API provides everything that the pages show and do. Times are ISO 8601 with a time zone.
Durations are milliseconds, or seconds if the name ends in `_s`. Sizes are bytes. `null` means unknown.

**Authentication.** Send one of your tokens (menu → API tokens) as `Authorization: Bearer wmk_…`. A read token has
the rights of a viewer. A write token has your rights. Objects that you may not see return 404.

**Lists** return `items` and `next`. Send `next` as `cursor` to get the next page.

**Errors** have one format: `{"error": {"code", "message", "reason", "fields": [{"field", "value", "message"}]}}`.

**Changes** accept an `Idempotency-Key` header. Within a day, Waymark carries out requests with the same key once."""


class Api(NinjaAPI):
    """Makes its OpenAPI document once, because that takes a second of processor time."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        return _made(self.get_root_path(path_params or {}) if path_prefix is None else path_prefix)


@cache
def _made(root: str) -> OpenAPISchema:
    made = get_schema(api, root)
    for operations in made["paths"].values():
        for operation in operations.values():
            refusal = operation["responses"][REFUSALS[0]]
            operation["responses"] |= {each: refusal | {"description": responses[each]} for each in REFUSALS}
    return made


api = Api(
    title="Waymark",
    version="1",
    description=DESCRIPTION,
    urls_namespace="api",
    auth=[Token(), Session()],
    docs=Swagger(settings={"persistAuthorization": False, "defaultModelsExpandDepth": -1, "docExpansion": "list"}),
)
for each in (
    *(fleet, jobs, checkpoints, savepoints, restarts, incidents, rules, runbooks, objectives, channels, maintenance),
    *(automation, clusters, discoveries, submitting, diagnosis, states, system, agent),
):
    api.add_router("", each.routes)


@api.exception_handler(Refused)
def refused(request: HttpRequest, error: Refused) -> HttpResponse:
    return answer_of(error.status, error.message, error.fields, error.reason)


@api.exception_handler(ValidationError)
def not_valid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return answer_of(422, fields=fields_of(error))


@api.exception_handler(PermissionDenied)
def forbidden(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    return answer_of(403, str(error))


@api.exception_handler(Http404)
def not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return answer_of(404)


@api.exception_handler(HttpError)
def refused_by_ninja(request: HttpRequest, error: HttpError) -> HttpResponse:
    return answer_of(error.status_code, "The body is not JSON." if error.status_code == 400 else str(error))


def document() -> dict[str, Any]:
    return dict(api.get_openapi_schema())
