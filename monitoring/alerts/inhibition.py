"""Hide the incidents of a cluster's jobs while it does not answer: they are stored and shown, but notify nobody.

`notify/due_notifications.py` checks again whether an incident is hidden when it builds a message: two concurrent
transactions do not see each other's rows.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Q, QuerySet

from monitoring.models import INHIBITING_KINDS, Incident, IncidentEvent, IncidentEventKind, IncidentState
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason

BATCH = 1000


def inhibitors(clusters: Collection[int]) -> dict[int, Incident]:
    """Return, per cluster, the unresolved incident that hides those of its jobs."""
    found = _unresolved().filter(cluster__in=set(clusters), job=None, kind__in=INHIBITING_KINDS) if clusters else ()
    return {each.cluster_id: each for each in found if each.cluster_id is not None}


def take_effect(incident: Incident, now: datetime) -> int:
    """If `incident` is about an unreachable cluster, hide the unresolved incidents of its jobs; return how many."""
    if incident.job_id is not None or incident.kind not in INHIBITING_KINDS:
        return 0
    return hide(_unresolved().filter(cluster=incident.cluster_id, job__isnull=False), incident, now)


def hide(children: QuerySet[Incident], parent: Incident, now: datetime) -> int:
    others = Q(inhibited_by=None) | ~Q(inhibited_by=parent)
    fresh = list(children.filter(others).order_by("pk").select_for_update())
    Incident.objects.filter(pk__in=[each.pk for each in fresh]).update(inhibited_by=parent)
    hidden = AlertReason.HIDDEN(incident=parent.pk, finding=stored(parent, "sentence"))
    _add_events(fresh, IncidentEventKind.INHIBITED, hidden, parent, now)
    return len(fresh)


def end(parent: Incident, now: datetime) -> list[Incident]:
    """Return the unresolved incidents that the resolved `parent` hid; they are visible again."""
    if parent.job_id is not None or parent.kind not in INHIBITING_KINDS:
        return []
    left = list(_unresolved().filter(inhibited_by=parent).order_by("pk"))
    _add_events(left, IncidentEventKind.RELEASED, AlertReason.RELEASED(incident=parent.pk), parent, now)
    return left


def _unresolved() -> QuerySet[Incident]:
    return Incident.objects.exclude(state=IncidentState.RESOLVED)


def _add_events(
    children: list[Incident], kind: IncidentEventKind, reason: Reason, parent: Incident, now: datetime
) -> None:
    said = {"evidence": {"incident": parent.pk}, **columns("text", reason)}
    events = [IncidentEvent(incident=child, at=now, kind=kind, **said) for child in children]
    IncidentEvent.objects.bulk_create(events, batch_size=BATCH)
