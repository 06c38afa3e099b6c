"""Runbooks for jobs by label. The runbook of a rule is a field of the rule."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of, require
from dashboard.access.roles import Role
from dashboard.acts.runbooks import remove_runbook, save_runbook
from dashboard.forms.editing import for_editing
from dashboard.forms.runbook import RunbookForm
from dashboard.views.access import operator_required
from dashboard.views.confirmation import Confirmation, ask
from monitoring.models import Runbook


def runbooks(request: HttpRequest) -> HttpResponse:
    """List the runbooks, or add one on POST."""
    return _edit(request, Runbook(), _("Runbook added."))


@transaction.atomic
def runbook(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a runbook among the others, or change it on POST."""
    rows = Runbook.objects.all()
    found = get_object_or_404(for_editing(rows) if request.method == "POST" else rows, pk=pk)
    return _edit(request, found, _("Runbook saved."))


@operator_required
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the runbook on POST."""
    found = get_object_or_404(Runbook, pk=pk)
    if request.method == "POST":
        remove_runbook(found, actor_of(request))
        messages.success(request, _("Runbook deleted."))
        return redirect("runbooks")
    question = _("Delete the runbook for jobs with %(labels)s?") % {"labels": found.selector}
    consequences = [_("Incidents and messages of these jobs no longer show it.")]
    back = reverse("runbook", args=[pk])
    texts = Confirmation(question, consequences, _("Delete runbook"), back, _("Back to the runbook"), "rules")
    return ask(request, texts)


def _edit(request: HttpRequest, found: Runbook, saved: str) -> HttpResponse:
    if request.method != "POST":
        return _page(request, RunbookForm(found), found)
    require(request, Role.OPERATOR)
    form = RunbookForm(found, request.POST)
    if not form.is_valid():
        return _page(request, form, found, 422)
    save_runbook(form, actor_of(request))
    messages.success(request, saved)
    return redirect("runbooks")


def _page(request: HttpRequest, form: RunbookForm, chosen: Runbook, status: int = 200) -> HttpResponse:
    context = {"form": form, "chosen": chosen, "runbooks": Runbook.objects.all(), "section": "rules"}
    return render(request, "rules/runbooks.html", context, status=status)
