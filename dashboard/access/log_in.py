"""How often a log-in may fail, per user and per address, without strangers being able to lock anybody out.

A browser from which a user has logged in before carries a signed cookie that says so. Its failures are counted for
itself: what strangers try elsewhere never stops it. Rows, not memory: all web processes count together, and the
database is needed to log in anyhow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core import signing
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from monitoring import audit
from monitoring.models import LogInFailure

WINDOW = timedelta(minutes=15)
MOST_PER_USER = 10
MOST_PER_ADDRESS = 50
COOKIE = "known_device"
COOKIE_AGE = timedelta(days=365)
_SALT = "waymark.known-device"


@dataclass(frozen=True)
class Attempt:
    username: str
    address: str
    known_device: bool


def attempt_of(request: HttpRequest, username: str) -> Attempt:
    name = username.strip().lower()[:150].replace("\0", "")
    return Attempt(name, client_address(request), _known(request, name))


def minutes_to_wait(attempt: Attempt, now: datetime) -> int:
    """0: it may be tried. Beyond a limit not even a right password is looked at."""
    since = now - WINDOW
    recent = LogInFailure.objects.filter(at__gt=since)
    of_user = recent.filter(username=attempt.username, known_device=attempt.known_device)
    if attempt.known_device:  # and from there: whoever has copied a cookie is not elsewhere
        of_user = of_user.filter(address=attempt.address)
    of_address = recent.filter(address=attempt.address, known_device=False)
    waits = [_wait(of_user, MOST_PER_USER, now)]
    if not attempt.known_device:
        waits.append(_wait(of_address, MOST_PER_ADDRESS, now))
    return max(waits)


def failed(attempt: Attempt, now: datetime) -> None:
    """The one that reaches the limit is written into the audit, once."""
    LogInFailure.objects.filter(at__lt=now - WINDOW).delete()
    LogInFailure.objects.create(
        username=attempt.username, address=attempt.address, known_device=attempt.known_device, at=now
    )
    count = LogInFailure.objects.filter(username=attempt.username, known_device=attempt.known_device).count()
    if count == MOST_PER_USER:
        said = f"{count} log-ins failed in {WINDOW.total_seconds() / 60:.0f} min; the last from {attempt.address}"
        audit.record(audit.AUTOMATION, "user.log-in-limited", f"user {attempt.username}", said)


def succeeded(attempt: Attempt, response: HttpResponse, *, secure: bool) -> None:
    """The browser is a known one from now on, and what it mistyped is forgotten."""
    LogInFailure.objects.filter(
        username=attempt.username, address=attempt.address, known_device=attempt.known_device
    ).delete()
    response.set_cookie(
        COOKIE,
        signing.dumps(attempt.username, salt=_SALT),
        max_age=COOKIE_AGE,
        httponly=True,
        secure=secure,
        samesite="Lax",
    )


def client_address(request: HttpRequest) -> str:
    """As the connection says it; behind proxies that are named in the settings, as the last of them was told."""
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()]
    hops = settings.TRUSTED_PROXIES
    if hops and len(forwarded) >= hops:
        return str(forwarded[-hops])[:64]
    return str(request.META.get("REMOTE_ADDR", ""))[:64]


def _known(request: HttpRequest, username: str) -> bool:
    try:
        said = signing.loads(request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=COOKIE_AGE)
    except signing.BadSignature:
        return False
    return bool(said == username)


def _wait(failures: QuerySet[LogInFailure], most: int, now: datetime) -> int:
    last = list(failures.order_by("-at").values_list("at", flat=True)[:most])
    if len(last) < most:
        return 0
    left = last[-1] + WINDOW - now
    return max(1, -(-int(left.total_seconds()) // 60))
