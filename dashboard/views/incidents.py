"""Incidents: the list, unresolved ones first, and one incident with its steps, evidence and notifications."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at, require_on_any
from dashboard.access.reach import operators_of
from dashboard.access.roles import Role
from dashboard.access.same_site import own_path
from dashboard.charts.backtest import backtest_figure
from dashboard.charts.figure import add_flags
from dashboard.forms.editing import newer_than_shown, newest_key
from dashboard.forms.note import (
    AssignForm,
    NoteForm,
    PresetForm,
    SeveralForm,
    SnoozeForm,
    SnoozeSeveralForm,
    WrittenNoteForm,
)
from dashboard.language import rendered
from dashboard.queries.changes import read_changes, with_comparisons
from dashboard.queries.correlation import read_correlations
from dashboard.queries.history import unreadable_text
from dashboard.queries.incidents import (
    BEFORE,
    UNRESOLVED,
    IncidentFilter,
    find_incidents,
    hidden_by,
    hidden_now,
    last_good_checkpoint,
    replay_of,
    rule_in_force,
    steps_of,
    visible_incidents,
)
from dashboard.queries.series import Span
from dashboard.views.access import action
from monitoring.alerts import lifecycle
from monitoring.alerts.kinds import kind_of
from monitoring.alerts.runbooks import runbooks_of
from monitoring.diagnosis.diagnoses import of_incident
from monitoring.history.rows import Unreadable
from monitoring.models import Incident, IncidentEvent, IncidentEventKind, IncidentState, Runbook, Severity
from monitoring.reasons.columns import stored

PAGE_SIZE = 50
HIDDEN_SHOWN = 20
STATES = [(UNRESOLVED, gettext_noop("Unresolved")), *IncidentState.choices]


def incidents(request: HttpRequest) -> HttpResponse:
    """List the unresolved incidents. `state=all` lists all, and so does the list of what an incident hides."""
    shown = {} if "hidden_by" in request.GET else {"state": UNRESOLVED}
    chosen = IncidentFilter.read(shown | request.GET.dict())
    reach = reach_at(request)
    page = Paginator(reach.narrow_either(find_incidents(chosen)), PAGE_SIZE).get_page(request.GET.get("page"))
    all_unresolved = chosen == IncidentFilter(state=UNRESOLVED)
    context = {
        "correlations": read_correlations(reach.narrow_either(visible_incidents())) if all_unresolved else [],
        "page": page,
        "chosen": chosen,
        "states": STATES,
        "severities": Severity.choices,
        "hidden": 0 if chosen.hidden_by or chosen.assignee else hidden_now(reach),
        "choosing": any(_may_act(request, each) for each in page),
        "newest": newest_key(IncidentEvent.objects.all()),
        "all_unresolved": all_unresolved,
        "me": request.user.get_username(),
        "section": "incidents",
    }
    live = request.headers.get("HX-Target") == "incidents-live"
    return render(request, "incidents/live.html" if live else "incidents/page.html", context)


def incident(request: HttpRequest, pk: int) -> HttpResponse:
    live = request.headers.get("HX-Target") == "incident-live"
    return _show(request, pk, SnoozeForm(label_suffix=""), "incident_live" if live else "incident")


def chart(request: HttpRequest, pk: int) -> JsonResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster", "rule"), pk=pk)
    rule = rule_in_force(found)
    if rule is None:
        raise Http404
    now = timezone.now()
    replayed = replay_of(found, rule, now)
    figure = backtest_figure(replayed, kind_of(rule.kind).unit)
    if found.job is not None and replayed.has_values:
        span = Span(replayed.since, replayed.until)
        add_flags(figure, with_comparisons(read_changes(found.job, span), found.job.pk, BEFORE, now), span)
    return JsonResponse({"figure": figure, "note": "", "empty": not replayed.has_values})


def _may_act(request: HttpRequest, found: Incident) -> bool:
    may = access_of(request).may_on(Role.OPERATOR, found.job_id, found.cluster_id)
    return may and found.state != IncidentState.RESOLVED


@require_POST
def acknowledge_several(request: HttpRequest) -> HttpResponse:
    def act(found: Incident, by: str, form: SeveralForm, now: datetime) -> None:
        lifecycle.acknowledge(found, by, form.cleaned_data["note"], now)

    def text(done: int) -> str:
        return ngettext("%(done)s incident acknowledged.", "%(done)s incidents acknowledged.", done)

    return _move_several(request, SeveralForm(request.POST), act, text)


@require_POST
def snooze_several(request: HttpRequest) -> HttpResponse:
    def act(found: Incident, by: str, form: SnoozeSeveralForm, now: datetime) -> None:
        if _snoozed_since(request, found.pk) is not None:
            raise lifecycle.IncidentMovedOn(found)
        lifecycle.snooze(found, form.until(now), by, form.cleaned_data["note"], now)

    def text(done: int) -> str:
        return ngettext("%(done)s incident snoozed.", "%(done)s incidents snoozed.", done)

    return _move_several(request, SnoozeSeveralForm(request.POST), act, text)


@require_POST
def resolve_several(request: HttpRequest) -> HttpResponse:
    def act(found: Incident, by: str, form: SeveralForm, now: datetime) -> None:
        lifecycle.resolve(found, by, form.cleaned_data["note"], now)

    def text(done: int) -> str:
        return ngettext("%(done)s incident resolved.", "%(done)s incidents resolved.", done)

    return _move_several(request, SeveralForm(request.POST), act, text)


def _move_several(
    request: HttpRequest, form: SeveralForm, act: Callable[..., None], text: Callable[[int], str]
) -> HttpResponse:
    """Apply `act` to the selected incidents, as far as the reader may operate their jobs."""
    require_on_any(request, Role.OPERATOR)
    if not form.is_valid():
        messages.error(request, _refusal(form))
        return redirect(_back(request))
    named = Incident.objects.filter(pk__in=form.cleaned_data["incident"]).select_related("job", "cluster", "rule")
    access, by, now = access_of(request), actor_of(request), timezone.now()
    found = [each for each in named if access.may_on(Role.OPERATOR, each.job_id, each.cluster_id)]
    done = lifecycle.for_each(found, lambda each: act(each, by, form, now))
    left = len(form.cleaned_data["incident"]) - done
    lines = [text(done) % {"done": done}]
    if left:
        unchanged = ngettext("%(left)s incident had already changed.", "%(left)s incidents had already changed.", left)
        lines.append(unchanged % {"left": left})
    (messages.success if done else messages.warning)(request, " ".join(lines))
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
def reopen(request: HttpRequest, pk: int) -> HttpResponse:
    def act(found: Incident, by: str, cleaned: dict[str, str], now: datetime) -> str:
        lifecycle.reopen(found, by, cleaned["note"], now)
        return _("Incident reopened.")

    return _move(request, pk, NoteForm(request.POST), act)


@action
def add_note(request: HttpRequest, pk: int) -> HttpResponse:
    def act(found: Incident, by: str, cleaned: dict[str, str], now: datetime) -> str:
        lifecycle.annotate(found, by, cleaned["note"], now)
        return _("Note added.")

    return _move(request, pk, WrittenNoteForm(request.POST), act)


@action
def assign(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster"), pk=pk)
    values = request.POST.dict() | ({"assignee": request.user.get_username()} if "me" in request.POST else {})
    form = AssignForm(found, operators_of(found.job, found.cluster), values)

    def act(found: Incident, by: str, cleaned: dict[str, str], now: datetime) -> str:
        lifecycle.assign(found, cleaned["was"], cleaned["assignee"], by, cleaned["note"], now)
        if not cleaned["assignee"]:
            return _("The incident is no longer assigned.")
        return _("Incident assigned to %(name)s.") % {"name": cleaned["assignee"]}

    return _move(request, pk, form, act)


@action
def snooze(request: HttpRequest, pk: int) -> HttpResponse:
    if (other := _snoozed_since(request, pk)) is not None:
        text = _("Nothing was changed. The incident has been snoozed since this page was loaded: %(event)s")
        messages.warning(request, text % {"event": rendered(stored(other, "text"))})
        return redirect("incident", pk)
    form: PresetForm | SnoozeForm
    form = PresetForm(request.POST) if "preset" in request.POST else SnoozeForm(request.POST, label_suffix="")

    def act(found: Incident, by: str, cleaned: dict[str, str], now: datetime) -> str:
        until = form.until(now)
        lifecycle.snooze(found, until, by, cleaned["note"], now)
        return _("Incident snoozed until %(until)s.") % {"until": f"{timezone.localtime(until):%Y-%m-%d %H:%M %Z}"}

    return _move(request, pk, form, act)


def _snoozed_since(request: HttpRequest, incident: int) -> IncidentEvent | None:
    """Return the newest snooze of the incident since the page was loaded."""
    snoozes = IncidentEvent.objects.filter(incident=incident, kind=IncidentEventKind.SNOOZED)
    return newer_than_shown(snoozes, request.POST).order_by("-pk").first()


def _refusal(form: forms.Form) -> str:
    """Return why an action was refused whose fields are not on the page that follows."""
    if "incident" in form.errors:
        return _("Select at least one incident. Nothing was changed.")
    if "preset" in form.errors:
        return _("Select how long to snooze. Nothing was changed.")
    if "assignee" in form.errors:
        return " ".join(map(str, form.errors["assignee"]))
    if form.has_error("note", "required"):
        return _("Enter a note. Nothing was changed.")
    return _("The note has more than 2000 characters. Nothing was changed.")


def _move(request: HttpRequest, pk: int, form: forms.Form, act: Callable[..., str]) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster", "rule"), pk=pk)
    if not form.is_valid():
        if isinstance(form, SnoozeForm):
            return _show(request, pk, form, "incident", 422)
        messages.error(request, _refusal(form))
        return redirect("incident", pk)
    try:
        messages.success(request, act(found, actor_of(request), form.cleaned_data, timezone.now()))
    except lifecycle.IncidentUnchanged as unchanged:
        messages.warning(request, rendered(unchanged.reason))
    return redirect("incident", pk)


def _show(request: HttpRequest, pk: int, form: SnoozeForm, template: str, status: int = 200) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster", "rule", "inhibited_by"), pk=pk)
    count, hidden = hidden_by(found, HIDDEN_SHOWN)
    now = timezone.now()
    before = Span(found.opened_at - BEFORE, found.opened_at)
    changes = with_comparisons(read_changes(found.job, before), found.job.pk, BEFORE, now) if found.job else []
    operators = operators_of(found.job, found.cluster) if access_of(request).may(Role.OPERATOR) else []
    context = {
        "changes": changes,
        "assigning": AssignForm(found, operators),
        "me": request.user.get_username(),
        "runbooks": runbooks_of(found, Runbook.objects.all()),
        "incident": found,
        "steps": steps_of(found),
        **_causes(found, now),
        "rule": rule_in_force(found),
        "last_good": last_good_checkpoint(found),
        "hidden": hidden,
        "hidden_count": count,
        "form": form,
        "newest": newest_key(found.events.all()),
        "section": "incidents",
    }
    return render(request, f"incidents/{template}.html", context, status=status)


def _causes(found: Incident, now: datetime) -> dict[str, Any]:
    try:
        return {"causes": of_incident(found, now)}
    except Unreadable as why:
        return {"unreadable": unreadable_text(why)}


def _back(request: HttpRequest) -> str:
    """Return the URL of the filtered list from which the request came."""
    to = own_path(request, request.POST.get("back", ""))
    return to if to.startswith("/incidents/") else "incidents"
