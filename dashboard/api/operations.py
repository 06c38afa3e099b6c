"""Declare operations of the API, so that all of them have the same errors in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.security import HttpBearer
from ninja.security.apikey import APIKeyCookie

from dashboard.api.errors import ErrorOut

REFUSALS = (400, 401, 403, 404, 409, 413, 415, 422, 429)


class Token(HttpBearer):
    """The bearer token for the OpenAPI document. The middleware has already checked it."""

    def __call__(self, request: HttpRequest) -> bool:
        return bool(request.user.is_authenticated)

    def authenticate(self, request: HttpRequest, token: str) -> bool:
        raise NotImplementedError  # never called, because __call__ is overridden


class Session(APIKeyCookie):
    """The session cookie of the pages. Changes also need the CSRF token."""

    param_name = "sessionid"

    def __call__(self, request: HttpRequest) -> bool:
        return bool(request.user.is_authenticated)

    def authenticate(self, request: HttpRequest, key: str | None) -> bool:
        raise NotImplementedError  # never called, because __call__ is overridden


def answers(model: Any, status: int = 200) -> dict[Any, Any]:
    """Return the `response` of an operation: the model of a success, and the format of every error.

    ninja generates the format again for each declared status, which is slow. So only the first refusal is
    declared, and `document` copies its description to the others.
    """
    return {status: model, REFUSALS[0]: ErrorOut}


def router(tag: str) -> Router:
    return Router(tags=[tag])
