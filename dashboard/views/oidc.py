"""Single sign-on: redirect to the OpenID Connect provider, and log in when the provider redirects back."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_GET

from dashboard.access import oidc
from dashboard.access.log_in import client_address
from dashboard.access.same_site import own_path
from monitoring import audit

_NEXT = "after_log_in"
BACKEND = "django.contrib.auth.backends.ModelBackend"


@require_GET
@login_not_required
def begin(request: HttpRequest) -> HttpResponse:
    _require_configured()
    request.session[_NEXT] = own_path(request, request.GET.get("next", ""))
    try:
        return oidc.to_provider(request, settings.PUBLIC_URL.rstrip("/") + reverse("oidc-back"))
    except oidc.NotLoggedIn as problem:
        return _refused(request, problem)


@require_GET
@login_not_required
def back(request: HttpRequest) -> HttpResponse:
    _require_configured()
    try:
        user = oidc.user_of(oidc.from_provider(request))
    except oidc.NotLoggedIn as problem:
        return _refused(request, problem)
    to = str(request.session.get(_NEXT) or reverse(settings.LOGIN_REDIRECT_URL))
    login(request, user, backend=BACKEND)
    name, address = user.get_username(), client_address(request)
    audit.record(name, "user.log-in", f"user {name}", settings.OIDC_NAME, address=address)
    return redirect(to)


def _refused(request: HttpRequest, problem: oidc.NotLoggedIn) -> HttpResponse:
    messages.error(request, str(problem))
    return redirect(settings.LOGIN_URL)


def _require_configured() -> None:
    if not settings.OIDC_ISSUER:
        raise Http404
