"""Logging in, and the pages for what a reader may not see, what is not there, and what broke."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.api.door import PREFIX
from dashboard.api.errors import answer_of


class Login(LoginView):
    template_name = "session/login.html"
    redirect_authenticated_user = True


@login_not_required
def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    reason = str(exception) if exception and str(exception) else ""
    if request.path_info.startswith(PREFIX):
        return answer_of(403, reason)
    return render(request, "errors/403.html", {"reason": reason}, status=403)


@login_not_required
def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return render(request, "errors/404.html", status=404)


@login_not_required
def broken(request: HttpRequest) -> HttpResponse:
    """Renders without the database: it may be what is broken."""
    return render(request, "errors/500.html", status=500)
