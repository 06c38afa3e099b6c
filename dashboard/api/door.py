"""Middleware of the REST API: authentication, rate limit, content type, and one format for all errors.

Only this middleware accepts tokens. A client with a session of the pages may also call the API, with the CSRF token of
a page for changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja.utils import check_csrf

from dashboard.access.guard import CHANGING, Access, set_access
from dashboard.access.limits import Limit, seconds_to_wait
from dashboard.access.reach import reach_of
from dashboard.access.tokens import find
from dashboard.api.errors import answer_of, in_our_shape
from dashboard.api.idempotency import once

Answer = Callable[[HttpRequest], HttpResponse]

PREFIX = "/api/"
DOCUMENTATION = "/api/v1/docs"
FILES = "/programs"  # the end of URLs that accept a file


def door(get_response: Answer) -> Answer:
    def answer(request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(PREFIX) or request.path_info == DOCUMENTATION:
            return get_response(request)
        refused = _admit(request) or _limit(request) or _form(request)
        response = in_our_shape(refused or once(request, get_response))
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return answer


def _admit(request: HttpRequest) -> HttpResponse | None:
    """Return an error response if the client is not authenticated, else None."""
    given = request.headers.get("Authorization", "")
    if given:
        return _with_token(request, given)
    if not request.user.is_authenticated:
        return answer_of(401)
    if request.method in CHANGING and check_csrf(request, _unguarded):
        return answer_of(403, "A change without an API token needs the page's CSRF token in the header X-CSRFToken.")
    return None


def _with_token(request: HttpRequest, given: str) -> HttpResponse | None:
    scheme, _, secret = given.partition(" ")
    token = find(secret.strip(), timezone.now()) if scheme.lower() == "bearer" else None
    if token is None:
        return answer_of(401, "This token is not valid: it does not exist, was revoked, or has expired.")
    request.user = token.user
    set_access(request, Access(reach_of(token.user), token=token))
    return None


def _limit(request: HttpRequest) -> HttpResponse | None:
    limit = Limit("api", settings.API_CALLS_PER_MINUTE, 60)
    wait = seconds_to_wait(limit, str(request.user.pk), wall=time.time)
    if not wait:
        return None
    refused = answer_of(429, f"More than {limit.most} requests in a minute. Wait {wait} s.")
    refused.headers["Retry-After"] = str(wait)
    return refused


def _form(request: HttpRequest) -> HttpResponse | None:
    if request.method not in CHANGING or not request.headers.get("Content-Length", "0").strip("0"):
        return None
    takes_file = request.path_info.endswith(FILES) and request.content_type == "multipart/form-data"
    return None if takes_file or request.content_type == "application/json" else answer_of(415)


def _unguarded(request: HttpRequest) -> HttpResponse:
    """Do nothing: the CSRF check requires a view as an argument."""
    return HttpResponse()
