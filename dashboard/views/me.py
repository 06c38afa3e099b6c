"""What each user sets for themselves: the time zone, the password, and an end to all sessions."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from dashboard.access import accounts, sessions
from dashboard.forms.account import PreferencesForm
from monitoring import audit
from monitoring.models import Account


def me(request: HttpRequest) -> HttpResponse:
    """GET shows it, POST saves the preferences."""
    if request.method != "POST":
        return _page(request)
    form = PreferencesForm(request.POST, server=settings.TIME_ZONE, label_suffix="")
    if not form.is_valid():
        return _page(request, 422, form=form)
    Account.objects.update_or_create(user=_user(request), defaults={"time_zone": form.cleaned_data["time_zone"]})
    messages.success(request, _("Saved."))
    return redirect("me")


@require_POST
@sensitive_post_parameters()
def password(request: HttpRequest) -> HttpResponse:
    """Ends every other session of the account."""
    user = _user(request)
    form = PasswordChangeForm(user, request.POST, label_suffix="")
    if not user.has_usable_password():
        messages.error(request, _("Your account logs in elsewhere: its password is changed there."))
        return redirect("me")
    if not form.is_valid():
        return _page(request, 422, password_form=form)
    form.save()
    now = timezone.now()
    accounts.end_sessions(user, now)
    update_session_auth_hash(request, user)
    sessions.begin(request, now)
    audit.record(user.get_username(), "user.password", f"user {user.get_username()}")
    messages.success(request, _("Your password is changed. Your other sessions are over."))
    return redirect("me")


@require_POST
def log_out_everywhere(request: HttpRequest) -> HttpResponse:
    user = _user(request)
    accounts.log_out_everywhere(user, user.get_username(), timezone.now())
    return redirect("login")


def _user(request: HttpRequest) -> User:
    return User.objects.get(pk=request.user.pk or 0)


def _page(request: HttpRequest, status: int = 200, **forms: Any) -> HttpResponse:
    user = _user(request)
    account = Account.objects.filter(user=user).first()
    zone = {"time_zone": account.time_zone if account else ""}
    context = {
        "form": PreferencesForm(server=settings.TIME_ZONE, initial=zone, label_suffix=""),
        "password_form": PasswordChangeForm(user, label_suffix="") if user.has_usable_password() else None,
        "began_at": sessions.began_at(request),
        "ends_after_days": settings.SESSION_LONGEST_S // 86_400,
        "section": "me",
    }
    return render(request, "me/me.html", context | forms, status=status)
