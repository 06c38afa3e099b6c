"""What every answer carries."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.utils.cache import patch_vary_headers

Answer = Callable[[HttpRequest], HttpResponse]

# No inline script and no inline style sheet, nothing from elsewhere. `data:` images: the arrow of a select.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'"
)


# What Django does not send by itself.
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
    """The language that was chosen in the page's head, by its cookie; English until somebody chooses. What programs
    read has one language, English: the API, whoever calls it."""

    def answer(request: HttpRequest) -> HttpResponse:
        chosen = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
        known = chosen in dict(settings.LANGUAGES) and not request.path.startswith("/api/")
        with translation.override(chosen if known else settings.LANGUAGE_CODE):
            response = get_response(request)
        patch_vary_headers(response, ("Cookie",))
        return response

    return answer


def whole_page_for_login(get_response: Answer) -> Answer:
    """A fragment's request whose session ended reloads the page, which then asks to log in, instead of swapping the
    log-in form into a table."""

    def answer(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        to_login = response.status_code == 302 and response.headers["Location"].startswith(reverse(settings.LOGIN_URL))
        if to_login and request.headers.get("HX-Request") == "true":
            refresh = HttpResponse(status=204)
            refresh.headers["HX-Refresh"] = "true"
            return refresh
        return response

    return answer
