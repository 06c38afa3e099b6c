"""Authenticate the user again before the user creates something that outlives the session, such as an API token.

A user with a password enters it. The log-in of a user with single sign-on must be recent.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.translation import gettext as _

from dashboard.access import log_in, sessions

RECENT = timedelta(minutes=15)


class NotConfirmed(Exception):
    """The user is not authenticated again. The message for the user says why."""


def logged_in_recently(request: HttpRequest, now: datetime) -> bool:
    started = sessions.session_started_at(request)
    return started is not None and now - started <= RECENT


def confirm(request: HttpRequest, user: User, password: str, now: datetime) -> None:
    """Raise NotConfirmed if the password is wrong or, for single sign-on, the log-in is not recent."""
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
