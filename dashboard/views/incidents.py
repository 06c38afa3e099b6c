"""What the rules found: unresolved first, each with its steps, its evidence and who was told."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Case, IntegerField, Prefetch, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from dashboard.forms.note import NoteForm
from dashboard.views.access import action
from monitoring.alerts import lifecycle
from monitoring.models import Delivery, Incident, IncidentEvent, IncidentEventKind, IncidentState

PAGE_SIZE = 50
_ORDER = Case(
    When(state=IncidentState.OPEN, then=Value(0)),
    When(state=IncidentState.ACKNOWLEDGED, then=Value(1)),
    default=Value(2),
    output_field=IntegerField(),
)


def incidents(request: HttpRequest) -> HttpResponse:
    chosen = request.GET.get("state", "")
    found = Incident.objects.select_related("job", "cluster").order_by(_ORDER, "-opened_at", "-id")
    if chosen in IncidentState.values:
        found = found.filter(state=chosen)
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "chosen": chosen, "states": IncidentState.choices, "section": "incidents"}
    live = request.headers.get("HX-Target") == "incidents-live"
    return render(request, "incidents/live.html" if live else "incidents/page.html", context)


def incident(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Incident.objects.select_related("job", "cluster", "rule"), pk=pk)
    deliveries = Delivery.objects.select_related("channel").order_by("id")
    events = IncidentEvent.objects.filter(incident=found).prefetch_related(Prefetch("deliveries", deliveries))
    context = {"incident": found, "events": fold_changes(list(events)), "form": NoteForm(), "section": "incidents"}
    live = request.headers.get("HX-Target") == "incident-live"
    return render(request, "incidents/incident_live.html" if live else "incidents/incident.html", context)


def fold_changes(events: list[IncidentEvent]) -> list[tuple[IncidentEvent, list[IncidentEvent]]]:
    """Events in their order; of changes in a row that nobody was told of only the newest, with those it stands for."""
    folded: list[tuple[IncidentEvent, list[IncidentEvent]]] = []
    for event in events:
        if folded and _is_silent_change(event) and _is_silent_change(folded[-1][0]):
            newest, earlier = folded.pop()
            newer, older = (event, newest) if event.at >= newest.at else (newest, event)
            folded.append((newer, [*earlier, older]))
        else:
            folded.append((event, []))
    return folded


def _is_silent_change(event: IncidentEvent) -> bool:
    return event.kind == IncidentEventKind.CHANGED and not event.deliveries.all()


@action
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    return _move(request, pk, "acknowledge")


@action
def resolve(request: HttpRequest, pk: int) -> HttpResponse:
    return _move(request, pk, "resolve")


def _move(request: HttpRequest, pk: int, move: str) -> HttpResponse:
    found = get_object_or_404(Incident, pk=pk)
    form = NoteForm(request.POST)
    if not form.is_valid():
        messages.error(request, "Note: at most 2000 characters. Nothing was changed.")
        return redirect("incident", pk)
    act = lifecycle.acknowledge if move == "acknowledge" else lifecycle.resolve
    try:
        act(found, request.user.get_username(), form.cleaned_data["note"], timezone.now())
    except lifecycle.IncidentMovedOn as moved:
        messages.warning(request, str(moved))
    else:
        messages.success(request, "Acknowledged." if move == "acknowledge" else "Resolved.")
    return redirect("incident", pk)
