"""How an operation of the API is declared, so that all of them refuse alike and the document says so."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.security import HttpBearer
from ninja.security.apikey import APIKeyCookie

from dashboard.api.errors import ErrorOut

REFUSALS = frozenset({400, 401, 403, 404, 409, 413, 415, 422, 429})


class Token(HttpBearer):
    """The door has looked at the token already; this puts it into the document."""

    def __call__(self, request: HttpRequest) -> bool:
        return bool(request.user.is_authenticated)

    def authenticate(self, request: HttpRequest, token: str) -> bool:
        raise NotImplementedError  # never called: see above


class Session(APIKeyCookie):
    """The log-in of the pages; a change needs their CSRF token, too."""

    param_name = "sessionid"

    def __call__(self, request: HttpRequest) -> bool:
        return bool(request.user.is_authenticated)

    def authenticate(self, request: HttpRequest, key: str | None) -> bool:
        raise NotImplementedError  # never called: see above


def answers(model: Any, status: int = 200) -> dict[Any, Any]:
    """The `response` of an operation: what success gives, and the one shape of every refusal."""
    return {status: model, REFUSALS: ErrorOut}


def router(tag: str) -> Router:
    return Router(tags=[tag])
