"""The log-in page and the error pages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access import log_in
from dashboard.api.errors import answer_of
from dashboard.api.middleware import PREFIX
from monitoring import audit


class Login(LoginView):
    template_name = "session/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Log in, unless there were too many failed attempts.

        Then the password is not checked, because the answer would show whether it is right.
        """
        attempt = log_in.attempt_of(request, request.POST.get("username", ""))
        if minutes := log_in.minutes_to_wait(attempt, timezone.now()):
            context = self.get_context_data(form=self.form_class(request), wait=minutes)
            refused = render(request, self.template_name, context, status=429)
            refused.headers["Retry-After"] = str(minutes * 60)
            return refused
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)
        attempt, name = self._attempt(), form.get_user().get_username()
        log_in.succeeded(attempt, response, secure=settings.SESSION_COOKIE_SECURE)
        audit.record(name, "user.log-in", f"user {name}", address=attempt.address)
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        if form.non_field_errors():
            log_in.failed(self._attempt(), timezone.now())
        return super().form_invalid(form)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | {"oidc": settings.OIDC_NAME if settings.OIDC_ISSUER else ""}

    def _attempt(self) -> log_in.Attempt:
        return log_in.attempt_of(self.request, self.request.POST.get("username", ""))


@login_not_required
def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    reason = str(exception) if exception and str(exception) else ""
    if request.path_info.startswith(PREFIX):
        return answer_of(403, reason)
    return render(request, "errors/403.html", {"reason": reason}, status=403)


@login_not_required
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Refuse a form with a wrong CSRF token, from a page older than the last log-in or from another site."""
    if request.path_info != reverse(settings.LOGIN_URL):
        return render(request, "errors/csrf.html", status=403)
    if not request.user.is_authenticated:
        messages.warning(request, _("The log-in page was too old. Log in again."))
    return redirect(request.get_full_path())  # the log-in page redirects an account that is logged in


@login_not_required
def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return render(request, "errors/404.html", status=404)


@login_not_required
def broken(request: HttpRequest) -> HttpResponse:
    """Render the error page without the database, which may be the cause of the error."""
    if request.path_info.startswith(PREFIX):
        return answer_of(500)
    return render(request, "errors/500.html", status=500)
