"""Saved views of the fleet page. Each account sees only its views."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.forms.view import ViewForm, filters_of
from dashboard.views.confirmation import Confirmation, ask
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


def forget_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the view on POST."""
    view = get_object_or_404(SavedView, pk=pk, user=request.user)
    if request.method != "POST":
        question = _("Delete the view “%(name)s”?") % {"name": view.name}
        consequences = [_("The fleet page no longer lists the view. No job changes.")]
        back = f"{reverse('fleet')}?{view.query}"
        return ask(request, Confirmation(question, consequences, _("Delete view"), back, _("Fleet"), "fleet"))
    view.delete()
    messages.success(request, _("View “%(name)s” deleted.") % {"name": view.name})
    return redirect("fleet")


def _fleet(query: str) -> HttpResponse:
    return redirect(f"{reverse('fleet')}?{query}" if query else reverse("fleet"))
