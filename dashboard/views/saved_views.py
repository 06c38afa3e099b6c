"""Saved views of the fleet page. Each account sees only its views."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.forms.view import ViewForm, filters_of
from monitoring.models import SavedView


@require_POST
def save_view(request: HttpRequest) -> HttpResponse:
    form = ViewForm(request.POST, user=request.user)
    if form.is_valid():
        view = form.save()
        messages.success(request, _("View “%(name)s” saved.") % {"name": view.name})
        return _fleet(view.query)
    for name, errors in form.errors.items():
        label = "" if name == "__all__" else f"{form.fields[name].label or 'Filter'}: "
        messages.error(request, _("%(label)s%(join)s") % {"label": label, "join": " ".join(map(str, errors))})
    return _fleet(filters_of(request.POST.get("query", "")))


@require_POST
def forget_view(request: HttpRequest, pk: int) -> HttpResponse:
    view = get_object_or_404(SavedView, pk=pk, user=request.user)
    view.delete()
    messages.success(request, _("View “%(name)s” deleted.") % {"name": view.name})
    return redirect("fleet")


def _fleet(query: str) -> HttpResponse:
    return redirect(f"{reverse('fleet')}?{query}" if query else reverse("fleet"))
