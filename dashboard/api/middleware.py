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

from dashboard.access.guard import CHANGING, Access, access_of, set_access
from dashboard.access.limits import Limit, seconds_to_wait
from dashboard.access.reach import reach_of
from dashboard.access.tokens import find_token
from dashboard.api.errors import answer_of, with_standard_errors
from dashboard.api.idempotency import handle_once

Answer = Callable[[HttpRequest], HttpResponse]

PREFIX = "/api/"
DOCUMENTATION = "/api/v1/docs"
AGENT = "/api/v1/agent/"
FILES = "/programs"  # the end of URLs that accept a file


def api_middleware(get_response: Answer) -> Answer:
    def answer(request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(PREFIX) or request.path_info == DOCUMENTATION:
            return get_response(request)
        rejection = _authenticate(request) or _check_rate(request) or _check_content_type(request)
        response = with_standard_errors(rejection or handle_once(request, get_response))
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return answer


def _authenticate(request: HttpRequest) -> HttpResponse | None:
    """Return an error response if the client is not authenticated, else None."""
    authorization = request.headers.get("Authorization", "")
    if authorization:
        return _authenticate_token(request, authorization)
    if not request.user.is_authenticated:
        return answer_of(401)
    if request.method in CHANGING and check_csrf(request, _no_view):
        return answer_of(403, "A change without an API token needs the page's CSRF token in the header X-CSRFToken.")
    return None


def _authenticate_token(request: HttpRequest, authorization: str) -> HttpResponse | None:
    scheme, _, secret = authorization.partition(" ")
    token = find_token(secret.strip(), timezone.now()) if scheme.lower() == "bearer" else None
    if token is None:
        return answer_of(401, "This token is not valid: it does not exist, was revoked, or has expired.")
    if token.reports_for is not None and not request.path_info.startswith(AGENT):
        return answer_of(403, f"This token can only report queries for the cluster {token.reports_for}.")
    request.user = token.user
    set_access(request, Access(reach_of(token.user), token=token))
    return None


def _check_rate(request: HttpRequest) -> HttpResponse | None:
    limit = Limit("api", settings.API_CALLS_PER_MINUTE, 60)
    token = access_of(request).token
    # The reports of programs must not use up what the account's own requests may need.
    who = f"token-{token.pk}" if token is not None and token.reports_for is not None else str(request.user.pk)
    wait = seconds_to_wait(limit, who, wall=time.time)
    if not wait:
        return None
    rejection = answer_of(429, f"More than {limit.most} requests in a minute. Wait {wait} s.")
    rejection.headers["Retry-After"] = str(wait)
    return rejection


def _check_content_type(request: HttpRequest) -> HttpResponse | None:
    if request.method not in CHANGING or not request.headers.get("Content-Length", "0").strip("0"):
        return None
    takes_file = request.path_info.endswith(FILES) and request.content_type == "multipart/form-data"
    return None if takes_file or request.content_type == "application/json" else answer_of(415)


def _no_view(request: HttpRequest) -> HttpResponse:
    """Do nothing: the CSRF check requires a view as an argument."""
    return HttpResponse()
