"""Limit failed log-ins per user and per address, so that an attacker cannot lock out a user.

A browser in which a user has logged in before has a signed cookie. Its failures are counted separately, so failures of
other browsers never block it. Failures are rows in the database, because all web processes count together.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, ip_address, ip_network

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import salted_hmac

from monitoring import audit
from monitoring.models import LogInFailure

WINDOW = timedelta(minutes=15)
MOST_PER_USER = 10
MOST_PER_ADDRESS = 50
COOKIE = "known_device"
COOKIE_AGE = timedelta(days=365)
_SALT = "waymark.known-device"
_LONGEST = 150


@dataclass(frozen=True)
class Attempt:
    """An attempt to log in with a password.

    `username` is normalized, so all spellings that Django accepts for one account are equal. `account` is the name of
    the account, or "" if no account has this name.
    """

    username: str
    account: str
    address: str
    known_device: bool

    @property
    def target(self) -> str:
        """Return the target of the entry in the audit log."""
        return f"user {self.account}" if self.account else "an unknown user"

    @property
    def counted_name(self) -> str:
        """Return the digest by which failures are counted. The typed name may be a password in the wrong field."""
        return salted_hmac(_SALT, self.username, algorithm="sha256").hexdigest()

    @property
    def counted_address(self) -> str:
        """Return the address, or the /64 network of an IPv6 address, which belongs to one customer of a provider."""
        try:
            address = ip_address(self.address.partition("%")[0])
        except ValueError:
            return self.address
        if isinstance(address, IPv4Address):
            return str(address)
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))


def attempt_of(request: HttpRequest, typed: str) -> Attempt:
    name = _normalized(typed)
    account = User.objects.filter(username__iexact=name).values_list("username", flat=True).first() or ""
    return Attempt(name, account, client_address(request), _known(request, name))


def minutes_to_wait(attempt: Attempt, now: datetime) -> int:
    """Return 0 if the attempt is allowed. Over a limit, even a right password is not checked."""
    recent = LogInFailure.objects.filter(at__gt=now - WINDOW)
    of_user = recent.filter(name_digest=attempt.counted_name, known_device=attempt.known_device)
    if attempt.known_device:  # count only this address: a copy of the cookie would be used at another address
        of_user = of_user.filter(address=attempt.counted_address)
    of_address = recent.filter(address=attempt.counted_address, known_device=False)
    waits = [_wait(of_user, MOST_PER_USER, now)]
    if not attempt.known_device:
        waits.append(_wait(of_address, MOST_PER_ADDRESS, now))
    return max(waits)


@transaction.atomic
def failed(attempt: Attempt, now: datetime, action: str = "user.log-in-failed") -> None:
    """Count a failure and write it into the audit log.

    The audit log has only names of accounts: any other name may be a password that was typed into the wrong field.
    Attackers can invent any number of names, so failures without an account are one entry per address and window.
    """
    LogInFailure.objects.filter(at__lt=now - WINDOW).delete()
    earlier = LogInFailure.objects.filter(address=attempt.counted_address, has_account=False)
    if attempt.account or not earlier.exists():
        audit.record(audit.ANONYMOUS, action, attempt.target, address=attempt.address)
    LogInFailure.objects.create(
        name_digest=attempt.counted_name,
        has_account=bool(attempt.account),
        address=attempt.counted_address,
        known_device=attempt.known_device,
        at=now,
    )
    counted = LogInFailure.objects.filter(name_digest=attempt.counted_name, known_device=attempt.known_device)
    if counted.count() == MOST_PER_USER:
        text = (
            f"{MOST_PER_USER} log-ins failed in {WINDOW.total_seconds() / 60:.0f} min; the last from {attempt.address}"
        )
        audit.record(audit.AUTOMATION, "user.log-in-limited", attempt.target, text)


def succeeded(attempt: Attempt, response: HttpResponse, *, secure: bool) -> None:
    """Delete the counted failures of the browser, and set the cookie that marks it as known."""
    LogInFailure.objects.filter(
        name_digest=attempt.counted_name, address=attempt.counted_address, known_device=attempt.known_device
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
    """Return the address of the connection, or behind trusted proxies the address that the first of them reported."""
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()]
    hops = settings.TRUSTED_PROXIES
    if hops and len(forwarded) >= hops:
        return str(forwarded[-hops])[:64]
    return str(request.META.get("REMOTE_ADDR", ""))[:64]


def _known(request: HttpRequest, username: str) -> bool:
    try:
        text = signing.loads(request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=COOKIE_AGE)
    except signing.BadSignature:
        return False
    return bool(text == username)


def _normalized(typed: str) -> str:
    """Return one text for all spellings of a name: Django's field applies NFKC, and names match without case.

    The form refuses names that are too long, so their end is ignored.
    """
    name = unicodedata.normalize("NFKC", typed.strip()[:_LONGEST]).casefold()
    return unicodedata.normalize("NFKC", name).replace("\0", "")


def _wait(failures: QuerySet[LogInFailure], most: int, now: datetime) -> int:
    last = list(failures.order_by("-at").values_list("at", flat=True)[:most])
    if len(last) < most:
        return 0
    left = last[-1] + WINDOW - now
    return max(1, -(-int(left.total_seconds()) // 60))
