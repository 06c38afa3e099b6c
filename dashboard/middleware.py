"""Middleware for all responses: security headers, language, size of bodies, and expired sessions."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _

from dashboard.access.same_site import own_path
from dashboard.api.errors import answer_of
from dashboard.web_server import LARGEST_ANONYMOUS_BODY

Answer = Callable[[HttpRequest], HttpResponse]

# No inline scripts or styles, and nothing from other hosts. The arrow of select elements is a `data:` image.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'"
)


# Headers that Django does not set.
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=(), browsing-topics=()",
}


def content_security_policy(get_response: Answer) -> Answer:
    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return answer


def chosen_language(get_response: Answer) -> Answer:
    """Activate the language in the reader's cookie, else English. The API is always in English."""

    def answer(request: HttpRequest) -> HttpResponse:
        chosen = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
        known = chosen in dict(settings.LANGUAGES) and not request.path.startswith("/api/")
        with translation.override(chosen if known else settings.LANGUAGE_CODE):
            response = get_response(request)
        # The live part of a page has the URL of the page, and a browser that goes back must not show it as the page.
        patch_vary_headers(response, ("Cookie", "HX-Request", "HX-Target"))
        return response

    return answer


def bounded_body(get_response: Answer) -> Answer:
    """Refuse a body that is too large for its sender before it is read, because Django would write it to disk.

    The next middleware, that of the API, refuses callers without a valid token and does not read the body either.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        length = _length(request)
        if length <= LARGEST_ANONYMOUS_BODY:
            return get_response(request)
        is_api = request.path_info.startswith("/api/")
        most = settings.WAYMARK_MAX_PROGRAM_MB + 1 if is_api or request.user.is_authenticated else 0
        if length <= most << 20:
            return get_response(request)
        if is_api:
            return answer_of(413, f"The body is larger than {most} MB.")
        text = _("The request is larger than %(most)d MB.") % {"most": most} if most else _("Log in to upload files.")
        return HttpResponse(text, status=413, content_type="text/plain; charset=utf-8")

    return answer


def _length(request: HttpRequest) -> int:
    """Return the Content-Length of the request. Django reads no more than this."""
    text = request.META.get("CONTENT_LENGTH") or "0"
    return int(text) if text.isdecimal() else 0


def handle_expired_session(get_response: Answer) -> Answer:
    """Replace the redirect to the log-in page for requests of pages whose session has ended.

    A live part gets status 401, so that the page keeps the typed text (static/dashboard/js/session.js). A form gets a
    warning that nothing was done. After the log-in, the page of the form is shown, because the form's target may have
    no page.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        to_log_in = f"{reverse(settings.LOGIN_URL)}?{REDIRECT_FIELD_NAME}="
        if response.status_code != 302 or not response.headers["Location"].startswith(to_log_in):
            return response
        if request.headers.get("HX-Request") == "true":
            return HttpResponse(status=401)
        if request.method == "POST" and request.path_info != reverse(settings.LOGIN_URL):
            messages.warning(
                request, _("Your session has expired and no action was taken. Log in and repeat the action.")
            )
            return redirect_to_login(own_path(request, request.headers.get("Referer", "")) or "/")
        return response

    return answer
