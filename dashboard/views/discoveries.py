"""Sources that find clusters: the list, what each has found, and the actions of administrators."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of
from dashboard.forms.discovery import DiscoveryForm
from dashboard.forms.editing import for_editing, unchecked
from dashboard.language import rendered
from dashboard.queries.discoveries import kind_name, read_resources, read_sources
from dashboard.views.access import admin_action, admin_required
from dashboard.views.clusters import Wrong
from dashboard.views.confirmation import Confirmation, ask
from monitoring.discovery import sources
from monitoring.discovery.examination import examine, remarks_on
from monitoring.models import DiscoverySource
from monitoring.reasons.reason import Reason


def discoveries(request: HttpRequest) -> HttpResponse:
    return render(request, "discoveries/list.html", {"cards": read_sources(), "section": "clusters"})


def discovery(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(DiscoverySource, pk=pk)
    [card] = read_sources([found])
    context = {"card": card, "source": found, "rows": read_resources(found), "section": "clusters"}
    live = request.headers.get("HX-Target") == "discovery-live"
    return render(request, "discoveries/source_live.html" if live else "discoveries/source.html", context)


@admin_required
def add(request: HttpRequest) -> HttpResponse:
    return _edit(request, DiscoverySource())


@admin_required
@transaction.atomic
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    rows = DiscoverySource.objects.all()
    return _edit(request, get_object_or_404(for_editing(rows) if request.method == "POST" else rows, pk=pk))


@admin_action
def try_typed(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Read the source with the values of the form. Nothing is stored, and the form does not change."""
    stored = DiscoverySource() if pk is None else get_object_or_404(DiscoverySource, pk=pk)
    form = DiscoveryForm(unchecked(request.POST), instance=stored, label_suffix="")
    if not form.is_valid():
        wrong = [Wrong(form.label_of(name), " ".join(map(str, errors))) for name, errors in form.errors.items()]
        return render(request, "discoveries/tested.html", {"wrong": wrong})
    found = examine(form.instance)
    if isinstance(found, Reason | str):
        return render(request, "discoveries/tested.html", {"wrong": [Wrong("", rendered(found))]})
    missing = sorted({kind_name(each.kind) for each in found if each.is_missing})
    rows = [(kind_name(each.kind), each) for each in found if not each.is_missing]
    is_whole = not any(each.problem for _kind, each in rows)
    context = {"rows": rows, "missing": missing, "is_whole": is_whole, "remarks": remarks_on(form.instance)}
    return render(request, "discoveries/tested.html", context)


@admin_required
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the source on POST."""
    found = get_object_or_404(DiscoverySource, pk=pk)
    if request.method == "POST":
        sources.remove(found, actor_of(request))
        messages.success(request, _("%(name)s is removed. Its clusters stay.") % {"name": found.name})
        return redirect("discoveries")
    consequences = [
        _("Waymark finds no more clusters there, and does not remove those whose deployment is deleted."),
        _("The clusters that it has found, their jobs and their history stay. Only the credentials are deleted."),
    ]
    question = _("Remove the source %(name)s?") % {"name": found.name}
    back = reverse("discovery", args=[pk])
    return ask(request, Confirmation(question, consequences, _("Remove the source"), back, found.name, "clusters"))


def _edit(request: HttpRequest, found: DiscoverySource) -> HttpResponse:
    form = DiscoveryForm(request.POST or None, instance=found, label_suffix="")
    if request.method == "POST" and form.is_valid():
        changed = sources.save(form.instance, actor_of(request))
        text = _("Saved. Waymark reads the source within half a minute.") if changed else _("No change.")
        messages.success(request, text)
        for remark in remarks_on(form.instance):
            messages.warning(request, rendered(remark))
        return redirect("discovery", form.instance.pk)
    stored = DiscoverySource.objects.filter(pk=found.pk).first()
    test_url = reverse("discovery-test-new") if stored is None else reverse("discovery-test-typed", args=[stored.pk])
    context = {"form": form, "source": stored, "test_url": test_url, "section": "clusters"}
    return render(request, "discoveries/form.html", context, status=422 if form.is_bound else 200)
