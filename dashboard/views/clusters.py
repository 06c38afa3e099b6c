"""Clusters: the list, the page of one cluster, and the actions of administrators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of, reach_at
from dashboard.forms.cluster import ClusterForm
from dashboard.forms.editing import for_editing, unchecked
from dashboard.forms.note import ReasonForm
from dashboard.language import rendered
from dashboard.queries.clusters import ClusterCard, read_cluster, read_clusters
from dashboard.queries.discoveries import resources_of
from dashboard.views.access import admin_action, admin_required
from monitoring.engine import registration
from monitoring.engine.examination import Problem, examine, remarks_on
from monitoring.models import AuditEntry, Cluster

RECENT = 12


def clusters(request: HttpRequest) -> HttpResponse:
    live = request.headers.get("HX-Target") == "clusters-live"
    template = "clusters/list_live.html" if live else "clusters/list.html"
    return render(request, template, {"fleet": read_clusters(timezone.now(), reach_at(request)), "section": "clusters"})


def cluster(request: HttpRequest, pk: int) -> HttpResponse:
    live = request.headers.get("HX-Target") == "cluster-live"
    context = _context(find_cluster(pk))
    return render(request, "clusters/cluster_live.html" if live else "clusters/cluster.html", context)


@admin_required
def add(request: HttpRequest) -> HttpResponse:
    form = ClusterForm(request.POST or None, label_suffix="")
    if request.method == "POST" and form.is_valid() and form.examine(timezone.now):
        registration.add(form.instance, actor_of(request))
        messages.success(request, _welcome(form))
        _warn(request, form.instance)
        return redirect("cluster", form.instance.pk)
    return _form(request, form)


@admin_required
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    form = ClusterForm(request.POST or None, instance=find_cluster(pk), label_suffix="")
    if request.method == "POST" and form.is_valid() and form.examine(timezone.now) and _change(request, form):
        return redirect("cluster", pk)
    return _form(request, form, Cluster.objects.get(pk=pk))


@transaction.atomic
def _change(request: HttpRequest, form: ClusterForm) -> bool:
    """Save the settings, unless somebody else has saved others during the test of the connection."""
    stored = ClusterForm(instance=for_editing(Cluster.objects.all()).get(pk=form.instance.pk))
    if changes := stored.changes_since(request.POST):
        form.shown_values = stored.shown_values
        form.add_error(None, changes)
        return False
    changed = registration.change(form.instance, actor_of(request))
    text = _("Saved. Waymark now polls the cluster with these settings.") if changed else _("No change.")
    messages.success(request, text)
    _warn(request, form.instance)
    return True


@admin_action
def try_typed(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Test the connection with the values of the form. Nothing is stored, and the form does not change."""
    typed = unchecked(request.POST)
    form = ClusterForm(typed, instance=None if pk is None else find_cluster(pk), label_suffix="")
    if form.is_valid():
        form.examine(timezone.now)
    wrong = [Wrong(_label(form, name), " ".join(map(str, errors))) for name, errors in form.errors.items()]
    return render(request, "clusters/tested.html", {"found": form.found, "wrong": wrong})


@admin_action
def try_stored(request: HttpRequest, pk: int) -> HttpResponse:
    tested = find_cluster(pk)
    outcome = examine(Cluster.objects.get(pk=pk), timezone.now)
    if isinstance(outcome, Problem):
        label = ClusterForm(instance=tested).fields[outcome.field].label
        return render(request, "clusters/tested.html", {"wrong": [Wrong(str(label), rendered(outcome.reason))]})
    return render(request, "clusters/tested.html", {"found": outcome})


@admin_action
def watch(request: HttpRequest, pk: int) -> HttpResponse:
    """Start or stop monitoring a cluster, by the parameter `watched` ("yes" or "no"). A stop requires a reason."""
    found = find_cluster(pk)
    actor = actor_of(request)
    if found.enabled == (request.POST.get("watched") == "yes"):
        messages.warning(request, _unchanged(found))
        return redirect("cluster", pk)
    if request.POST.get("watched") == "yes":
        registration.watch(found, watched=True, actor=actor)
        messages.success(request, _("Waymark monitors %(name)s again.") % {"name": found.name})
        return redirect("cluster", pk)
    form = ReasonForm(request.POST, label_suffix="")
    if not form.is_valid():
        return render(request, "clusters/cluster.html", _context(found) | {"reason_form": form}, status=422)
    registration.watch(found, watched=False, actor=actor, reason=form.cleaned_data["reason"])
    messages.success(
        request,
        _("Waymark no longer monitors %(name)s. Its jobs and their history do not change.") % {"name": found.name},
    )
    return redirect("cluster", pk)


@admin_required
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    found = find_cluster(pk)
    form = ReasonForm(request.POST or None, label_suffix="")
    if request.method == "POST" and found.archived_at is not None:
        messages.warning(request, _unchanged(found))
        return redirect("cluster", pk)
    if request.method == "POST" and form.is_valid():
        name, actor = found.name, actor_of(request)
        gone = registration.remove(found, actor=actor, reason=form.cleaned_data["reason"], now=timezone.now())
        text = (
            _("%(name)s is removed.")
            if gone
            else _("%(name)s is removed. The history of its jobs is kept, and its secrets are deleted.")
        )
        messages.success(request, text % {"name": name})
        return redirect("clusters")
    status = 422 if form.is_bound else 200
    return render(request, "clusters/remove.html", _context(found) | {"form": form}, status=status)


@admin_action
def same(request: HttpRequest, pk: int) -> HttpResponse:
    found = find_cluster(pk)
    if found.stranger is None:
        messages.warning(request, _("The identity of %(name)s is already confirmed.") % {"name": found.name})
        return redirect("cluster", pk)
    registration.confirm_same(found, actor_of(request))
    messages.success(
        request,
        _("%(name)s is accepted as the same cluster. Waymark polls it immediately.") % {"name": found.name},
    )
    return redirect("cluster", pk)


def _unchanged(found: Cluster) -> str:
    """Return the text for an action that somebody else has already carried out."""
    if found.enabled:
        text = _("Waymark already monitors %(name)s.")
    elif found.archived_at is not None:
        text = _("%(name)s is already removed.")
    else:
        text = _("The monitoring of %(name)s is already stopped.")
    return text % {"name": found.name}


@dataclass(frozen=True)
class Wrong:
    label: str
    sentence: str


def find_cluster(pk: int) -> Cluster:
    return get_object_or_404(Cluster, pk=pk)


def _context(found: Cluster) -> dict[str, Any]:
    now: datetime = timezone.now()
    card: ClusterCard = read_cluster(found, now)
    return {
        "section": "clusters",
        "card": card,
        "cluster": found,
        "now": now,
        "reason_form": ReasonForm(label_suffix=""),
        "found": resources_of(found, now),
        "entries": AuditEntry.objects.filter(target=f"cluster {found.name}")[:RECENT],
    }


def _form(request: HttpRequest, form: ClusterForm, stored: Cluster | None = None) -> HttpResponse:
    """Render the form. `stored` is the cluster in the database; the form's instance has the submitted values."""
    test_url = reverse("cluster-test-new") if stored is None else reverse("cluster-test-typed", args=[stored.pk])
    context = {"section": "clusters", "form": form, "cluster": stored, "test_url": test_url}
    return render(request, "clusters/form.html", context, status=422 if form.is_bound else 200)


def _warn(request: HttpRequest, saved: Cluster) -> None:
    for remark in remarks_on(saved):
        messages.warning(request, rendered(remark))


def _label(form: ClusterForm, name: str) -> str:
    return str(form.fields[name].label) if name in form.fields else ""


def _welcome(form: ClusterForm) -> str:
    name = form.instance.name
    if form.found is None:
        return _("Waymark monitors %(name)s. The cluster has not responded yet.") % {"name": name}
    return _("Waymark monitors %(name)s: %(found)s.") % {"name": name, "found": rendered(form.found.reason)}
