"""The settings of the own account: the time zone, the password, and the end of all sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from dashboard.access import accounts, sessions
from dashboard.access.confirming import NotConfirmed, confirm_password
from dashboard.forms.account import PreferencesForm
from dashboard.forms.editing import for_editing
from monitoring.models import Account


@transaction.atomic
def me(request: HttpRequest) -> HttpResponse:
    """Show the settings, or save the preferences on POST."""
    if request.method != "POST":
        return _page(request)
    user = for_editing(User.objects.all()).get(pk=own_user(request).pk)
    form = PreferencesForm(user, request.POST, server=settings.TIME_ZONE)
    if not form.is_valid():
        return _page(request, 422, form=form)
    Account.objects.update_or_create(user=user, defaults={"time_zone": form.cleaned_data["time_zone"]})
    messages.success(request, _("Saved."))
    return redirect("me")


@require_POST
@sensitive_post_parameters()
def password(request: HttpRequest) -> HttpResponse:
    """Change the password. Every other session of the account ends, and its API tokens are revoked."""
    user, now = own_user(request), timezone.now()
    form = OwnPasswordForm(user, request.POST, request=request, now=now, label_suffix="")
    if not user.has_usable_password():
        messages.error(request, _("Your account uses single sign-on. Change the password at your provider."))
        return redirect("me")
    if not form.is_valid():
        return _page(request, 422, password_form=form)
    accounts.set_password(user, form.cleaned_data["new_password1"], user.get_username(), now)
    update_session_auth_hash(request, user)
    sessions.start_session(request, now)
    messages.success(request, _("Password changed. Your other sessions ended, and your API tokens are revoked."))
    return redirect("me")


@require_POST
def log_out_everywhere(request: HttpRequest) -> HttpResponse:
    user = own_user(request)
    accounts.log_out_everywhere(user, user.get_username(), timezone.now())
    return redirect("login")


class OwnPasswordForm(PasswordChangeForm):
    """A form for a new password. Wrong old passwords count like failed attempts of the log-in page."""

    def __init__(self, *args: Any, request: HttpRequest, now: datetime, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request, self._now = request, now

    def clean_old_password(self) -> str:
        typed: str = self.cleaned_data["old_password"]
        try:
            confirm_password(self._request, self.user, typed, self._now)
        except NotConfirmed as refused:
            raise ValidationError(str(refused)) from None
        return typed


def own_user(request: HttpRequest) -> User:
    return User.objects.get(pk=request.user.pk or 0)


def _page(request: HttpRequest, status: int = 200, **forms: Any) -> HttpResponse:
    user = own_user(request)
    context = {
        "form": PreferencesForm(user, server=settings.TIME_ZONE),
        "password_form": PasswordChangeForm(user, label_suffix="") if user.has_usable_password() else None,
        "began_at": sessions.session_started_at(request),
        "ends_after_days": settings.SESSION_LONGEST_S // 86_400,
        "section": "me",
    }
    return render(request, "me/me.html", context | forms, status=status)
