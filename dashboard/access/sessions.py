"""End sessions: after a time without use, after a maximum duration, and when their user ends all sessions.

Django ends unused sessions (SESSION_COOKIE_AGE). The other rules need the start of the session, which is stored here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from monitoring.models import Account

_STARTED, _RENEWED = "began_at", "renewed_at"
ZONE_COOKIE = "zone"  # static/dashboard/js/zone.js stores the time zone of the browser in it
RENEW_EVERY = timedelta(minutes=10)  # sessions are not renewed at every request, as pages poll every few seconds
Answer = Callable[[HttpRequest], HttpResponse]


def start_session(request: HttpRequest, now: datetime) -> None:
    request.session[_STARTED] = request.session[_RENEWED] = now.isoformat()


def session_started_at(request: HttpRequest) -> datetime | None:
    return _moment(request, _STARTED)


def _on_log_in(sender: object, request: HttpRequest | None, **more: object) -> None:
    if request is not None and hasattr(request, "session"):
        start_session(request, timezone.now())


user_logged_in.connect(_on_log_in, dispatch_uid="sessions begin")


def enforce_session_rules(get_response: Answer) -> Answer:
    """Middleware that ends expired sessions, renews used ones, and activates the user's time zone."""

    def answer(request: HttpRequest) -> HttpResponse:
        account = _account(request)
        if request.user.is_authenticated and request.session.session_key and _is_over(request, account):
            logout(request)
        with timezone.override(_zone(request, account)):
            return get_response(request)

    return answer


def refuse_other_account(get_response: Answer) -> Answer:
    """Middleware that refuses requests of live parts if their page was opened by another user or before a log-out."""

    def answer(request: HttpRequest) -> HttpResponse:
        reader = request.headers.get("X-Reader")
        if reader is not None and reader != str(request.user.pk):
            return HttpResponse(status=401)
        return get_response(request)

    return answer


def _account(request: HttpRequest) -> Account | None:
    return Account.objects.filter(user=request.user.pk).first() if request.user.is_authenticated else None


def _is_over(request: HttpRequest, account: Account | None) -> bool:
    now, started = timezone.now(), session_started_at(request)
    if started is None:  # the session began under a version that did not store its start
        start_session(request, now)
        return account is not None and account.signed_out_at is not None
    if now - started > timedelta(seconds=settings.SESSION_LONGEST_S):
        return True
    if account is not None and account.signed_out_at is not None and started < account.signed_out_at:
        return True
    if now - (_moment(request, _RENEWED) or started) > RENEW_EVERY:
        request.session[_RENEWED] = now.isoformat()  # changing the session makes Django restart the idle time
    return False


def _moment(request: HttpRequest, name: str) -> datetime | None:
    text = request.session.get(name)
    return datetime.fromisoformat(text) if isinstance(text, str) else None


def _zone(request: HttpRequest, account: Account | None) -> ZoneInfo | None:
    """Return the account's time zone, else that of the browser, or None for the time zone of the server.

    The API does not depend on the browser.
    """
    if account is None or not account.time_zone:
        name = request.COOKIES.get(ZONE_COOKIE, "")
        return ZoneInfo(name) if name in _known_zones() and not request.path.startswith("/api/") else None
    try:
        return ZoneInfo(account.time_zone)
    except (ZoneInfoNotFoundError, ValueError):  # this machine no longer knows the time zone
        return None


@cache
def _known_zones() -> frozenset[str]:
    """Return the names of all time zones. They are cached, because each call reads the directories of the machine."""
    return frozenset(available_timezones())
