"""Ask again who it is before something is made that outlasts the session, such as an API token.

An account with a password gives it. One that logs in through a provider has none: its log-in must be recent.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.translation import gettext as _

from dashboard.access import log_in, sessions

RECENT = timedelta(minutes=15)


class NotConfirmed(Exception):
    """The message says to the person why not."""


def logged_in_recently(request: HttpRequest, now: datetime) -> bool:
    began = sessions.began_at(request)
    return began is not None and now - began <= RECENT


def confirm(request: HttpRequest, user: User, password: str, now: datetime) -> None:
    """Raise NotConfirmed unless the sender of the request proved now that the account is theirs."""
    if user.has_usable_password():
        confirm_password(request, user, password, now)
    elif not logged_in_recently(request, now):
        raise NotConfirmed(_("Your log-in is too old for this. Log in again first."))


def confirm_password(request: HttpRequest, user: User, password: str, now: datetime) -> None:
    """Raise NotConfirmed for a wrong password. Failures count like those of the log-in page."""
    attempt = log_in.attempt_of(request, user.get_username())
    if minutes := log_in.minutes_to_wait(attempt, now):
        raise NotConfirmed(_("Too many wrong passwords. Try again in %(minutes)s min.") % {"minutes": minutes})
    if not user.check_password(password):
        log_in.failed(attempt, now, "user.confirm-failed")
        raise NotConfirmed(_("This is not your password."))
