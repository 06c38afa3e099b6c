"""Who may do what: everybody who is logged in sees everything, staff act, superusers administer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def operator_required(view: View[P]) -> View[P]:
    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not request.user.is_staff:
            raise PermissionDenied("Your account may look, not act. Ask an operator, or ask to become one.")
        return view(request, *args, **kwargs)

    return guarded


def admin_required(view: View[P]) -> View[P]:
    """For what decides where Waymark connects to, and with which secrets."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not request.user.is_superuser:
            raise PermissionDenied("Only an administrator may change clusters. Ask one.")
        return view(request, *args, **kwargs)

    return guarded


def admin_action(view: View[P]) -> View[P]:
    return require_POST(admin_required(view))


def action(view: View[P]) -> View[P]:
    """Something that changes the world: by POST only, by operators only."""
    return require_POST(operator_required(view))
