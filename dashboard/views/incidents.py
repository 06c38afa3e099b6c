"""Incidents: the list, unresolved ones first, and one incident with its steps, evidence and notifications."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at, require_on_any
from dashboard.access.roles import Role
from dashboard.forms.note import NoteForm, SeveralForm, SnoozeForm
from dashboard.language import rendered
from dashboard.queries.incidents import (
    UNRESOLVED,
    IncidentFilter,
    find_incidents,
    hidden_by,
    hidden_now,
    steps_of,
)
from dashboard.views.access import action
from monitoring.alerts import lifecycle
from monitoring.diagnosis.diagnoses import of_incident
from monitoring.models import Incident, IncidentState, Severity

PAGE_SIZE = 50
HIDDEN_SHOWN = 20
STATES = [(UNRESOLVED, gettext_noop("Unresolved")), *IncidentState.choices]


def incidents(request: HttpRequest) -> HttpResponse:
    chosen = IncidentFilter.read(request.GET.dict())
    reach = reach_at(request)
    page = Paginator(reach.narrow_either(find_incidents(chosen)), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "chosen": chosen,
        "states": STATES,
        "severities": Severity.choices,
        "hidden": hidden_now(reach) if chosen.hidden_by is None else 0,
        "choosing": any(_may_acknowledge(request, each) for each in page),
        "section": "incidents",
    }
    live = request.headers.get("HX-Target") == "incidents-live"
    return render(request, "incidents/live.html" if live else "incidents/page.html", context)


def incident(request: HttpRequest, pk: int) -> HttpResponse:
    live = request.headers.get("HX-Target") == "incident-live"
    return _show(request, pk, SnoozeForm(label_suffix=""), "incident_live" if live else "incident")


def _may_acknowledge(request: HttpRequest, found: Incident) -> bool:
    may = access_of(request).may_on(Role.OPERATOR, found.job_id, found.cluster_id)
    return may and found.state in (IncidentState.OPEN, IncidentState.SNOOZED)


@require_POST
def acknowledge_several(request: HttpRequest) -> HttpResponse:
    """Acknowledge the selected incidents, as far as the reader may operate their jobs."""
    require_on_any(request, Role.OPERATOR)
    form = SeveralForm(request.POST)
    if not form.is_valid():
        none = "incident" in form.errors
        messages.error(request, _("Select at least one incident. Nothing was changed.") if none else _long_note())
        return redirect(_back(request))
    named = Incident.objects.filter(pk__in=form.cleaned_data["incident"]).select_related("job", "cluster")
    access = access_of(request)
    found = [each for each in named if access.may_on(Role.OPERATOR, each.job_id, each.cluster_id)]
    by, note = actor_of(request), form.cleaned_data["note"]
    done = lifecycle.acknowledge_all(found, by, note, timezone.now())
    left = len(form.cleaned_data["incident"]) - done
    text = messages.success if done else messages.warning
    lines = [ngettext("%(done)s incident acknowledged.", "%(done)s incidents acknowledged.", done) % {"done": done}]
    if left:
        unchanged = ngettext("%(left)s incident had already changed.", "%(left)s incidents had already changed.", left)
        lines.append(unchanged % {"left": left})
    text(request, " ".join(lines))
    return redirect(_back(request))


@action
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    def act(found: Incident, by: str, cleaned: dict[str, str], now: datetime) -> str:
        lifecycle.acknowledge(found, by, cleaned["note"], now)
        return _("Incident acknowledged.")

    return _move(request, pk, NoteForm(request.POST), act)


@action
def resolve(request: HttpRequest, pk: int) -> HttpResponse:
    def act(found: Incident, by: str, cleaned: dict[str, str], now: datetime) -> str:
        lifecycle.resolve(found, by, cleaned["note"], now)
        return _("Incident resolved.")

    return _move(request, pk, NoteForm(request.POST), act)


@action
def snooze(request: HttpRequest, pk: int) -> HttpResponse:
    def act(found: Incident, by: str, cleaned: dict[str, int | str], now: datetime) -> str:
        until = now + timedelta(seconds=int(cleaned["snooze_for"]))
        lifecycle.snooze(found, until, by, str(cleaned["note"]), now)
        return _("Incident snoozed until %(until)s.") % {"until": f"{timezone.localtime(until):%Y-%m-%d %H:%M %Z}"}

    return _move(request, pk, SnoozeForm(request.POST, label_suffix=""), act)


def _long_note() -> str:
    return _("The note has more than 2000 characters. Nothing was changed.")


def _move(request: HttpRequest, pk: int, form: forms.Form, act: Callable[..., str]) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster", "rule"), pk=pk)
    if not form.is_valid():
        if isinstance(form, SnoozeForm):
            return _show(request, pk, form, "incident", 422)
        messages.error(request, _long_note())
        return redirect("incident", pk)
    try:
        messages.success(request, act(found, actor_of(request), form.cleaned_data, timezone.now()))
    except lifecycle.IncidentMovedOn as moved:
        messages.warning(request, rendered(moved.reason))
    return redirect("incident", pk)


def _show(request: HttpRequest, pk: int, form: SnoozeForm, template: str, status: int = 200) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster", "rule", "inhibited_by"), pk=pk)
    count, hidden = hidden_by(found, HIDDEN_SHOWN)
    context = {
        "incident": found,
        "steps": steps_of(found),
        "causes": of_incident(found, timezone.now()),
        "hidden": hidden,
        "hidden_count": count,
        "form": form,
        "section": "incidents",
    }
    return render(request, f"incidents/{template}.html", context, status=status)


def _back(request: HttpRequest) -> str:
    """Return the URL of the filtered list from which the request came."""
    to = request.POST.get("back", "")
    own = url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return to if own and to.startswith("/incidents/") else "incidents"
