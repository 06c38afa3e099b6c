"""Decorators for views that require the role of an operator or administrator."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from dashboard.access.guard import require
from dashboard.access.roles import Role

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def operator_required(view: View[P]) -> View[P]:
    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        require(request, Role.OPERATOR)
        return view(request, *args, **kwargs)

    return guarded


def admin_required(view: View[P]) -> View[P]:
    """Restrict a view to administrators: settings of connections, secrets and accounts."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        require(request, Role.ADMIN)
        return view(request, *args, **kwargs)

    return guarded


def admin_action(view: View[P]) -> View[P]:
    return require_POST(admin_required(view))


def action(view: View[P]) -> View[P]:
    """Restrict a view that changes something to POST requests of operators."""
    return require_POST(operator_required(view))
