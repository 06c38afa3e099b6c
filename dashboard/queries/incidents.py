"""Read incidents for the pages: the filtered list, and the steps and notifications of one incident."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from django.db.models import Case, Count, IntegerField, Prefetch, Q, QuerySet, Value, When

from dashboard.access.reach import FULL_REACH, Reach
from monitoring.alerts.backtest import OpenPeriod, Replay, Watched, replay
from monitoring.alerts.kinds import kinds
from monitoring.alerts.memory import WAYMARK
from monitoring.alerts.scope import watch_of
from monitoring.models import AlertRule, Checkpoint, Incident, IncidentEvent, IncidentState, Notification, Severity
from monitoring.reasons.columns import stored
from monitoring.recovery.states import retained_checkpoints

UNRESOLVED = "unresolved"
NOTIFICATIONS_SHOWN = 12
# The chart of an incident covers the time around it, but at most its last two days.
BEFORE, AFTER, LONGEST = timedelta(hours=1), timedelta(minutes=30), timedelta(days=2)
_ORDER = Case(
    When(state=IncidentState.OPEN, then=Value(0)),
    When(state=IncidentState.ACKNOWLEDGED, then=Value(1)),
    When(state=IncidentState.SNOOZED, then=Value(2)),
    default=Value(3),
    output_field=IntegerField(),
)
_SEVERITY = Case(When(severity=Severity.CRITICAL, then=Value(0)), default=Value(1), output_field=IntegerField())
_HIDDEN_NOW = Q(inhibited_by__isnull=False) & ~Q(inhibited_by__state=IncidentState.RESOLVED)


@dataclass(frozen=True)
class IncidentFilter:
    """Conditions for incidents. An empty value matches every incident.

    `hidden_by` selects the incidents that the given incident hides. Without it, hidden incidents are excluded,
    unless the filter is for one assignee.
    """

    state: str = ""
    severity: str = ""
    text: str = ""
    hidden_by: int | None = None
    assignee: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """Read the filter from the query parameters and ignore invalid values."""
        state, severity, hidden_by = (query.get(name, "") for name in ("state", "severity", "hidden_by"))
        return cls(
            state=state if state in (*IncidentState.values, UNRESOLVED) else "",
            severity=severity if severity in Severity.values else "",
            text=query.get("q", "").replace("\0", "").strip()[:200],
            hidden_by=int(hidden_by) if hidden_by.isdecimal() and len(hidden_by) < 19 else None,
            assignee=query.get("assignee", "").replace("\0", "").strip()[:150],
        )

    @property
    def is_narrow(self) -> bool:
        """Return whether there is a condition apart from the status."""
        return bool(self.severity or self.text or self.hidden_by or self.assignee)


def visible_incidents() -> QuerySet[Incident]:
    """Return the incidents that no other incident hides now."""
    return Incident.objects.exclude(_HIDDEN_NOW)


def find_incidents(chosen: IncidentFilter) -> QuerySet[Incident]:
    """Return the matching incidents, open and critical ones first. `hides` counts the incidents that each one hides."""
    found = _by_state(Incident.objects.select_related("job", "cluster"), chosen.state)
    if chosen.severity:
        found = found.filter(severity=chosen.severity)
    if chosen.assignee:
        found = found.filter(assigned_to=chosen.assignee)
    if chosen.text:
        named = Q(job__name__icontains=chosen.text) | Q(cluster__name__icontains=chosen.text)
        found = found.filter(named | Q(sentence__icontains=chosen.text))
    if chosen.hidden_by is not None:
        found = found.filter(inhibited_by=chosen.hidden_by)
    elif not chosen.assignee:
        found = found.exclude(_HIDDEN_NOW)
    return found.annotate(hides=Count("inhibited")).order_by(_ORDER, _SEVERITY, "-opened_at", "-id")


def hidden_now(reach: Reach = FULL_REACH) -> int:
    return reach.narrow_either(Incident.objects.all()).filter(_HIDDEN_NOW).exclude(state=IncidentState.RESOLVED).count()


def _by_state(found: QuerySet[Incident], state: str) -> QuerySet[Incident]:
    if state == UNRESOLVED:
        return found.exclude(state=IncidentState.RESOLVED)
    return found.filter(state=state) if state else found


@dataclass(frozen=True)
class Step:
    """One line of the timeline. `notifications` has the newest ones, and `left_out` counts the others."""

    event: IncidentEvent
    notifications: list[Notification]
    left_out: int


def steps_of(incident: Incident) -> list[Step]:
    """Return the steps of an incident in their order, each with its notifications and their deliveries."""
    steps = []
    for event in _events(incident):
        notifications = list(event.notifications.all())
        steps.append(
            Step(event, notifications[-NOTIFICATIONS_SHOWN:], max(0, len(notifications) - NOTIFICATIONS_SHOWN))
        )
    return steps


def _events(incident: Incident) -> list[IncidentEvent]:
    notifications = (
        Notification.objects.select_related("channel", "delivery")
        .prefetch_related("delivery__tries")
        .order_by("due_at", "id")
    )
    return list(
        IncidentEvent.objects.filter(incident=incident).prefetch_related(Prefetch("notifications", notifications))
    )


def hidden_by(incident: Incident, limit: int) -> tuple[int, list[Incident]]:
    """Return the number of incidents that `incident` hides, and the newest of them."""
    found = incident.inhibited.select_related("job", "cluster").order_by("-opened_at", "-id")
    return found.count(), list(found[:limit])


def rule_in_force(incident: Incident) -> AlertRule | None:
    """Return the rule whose value and limit can be drawn: None if it was deleted, or its kind is unknown."""
    return incident.rule if incident.rule is not None and incident.rule.kind in kinds() else None


def replay_of(incident: Incident, rule: AlertRule, now: datetime) -> Replay:
    """Return the value and the limit of the rule, as it is now, around the incident. The only band is the incident."""
    until = min(now, incident.resolved_at + AFTER) if incident.resolved_at else now
    since = max(min(incident.opened_at, until) - BEFORE, until - LONGEST)
    subject = Watched(incident.job_id or incident.cluster_id or WAYMARK, incident.subject)
    found = replay(watch_of(rule), subject, since, until)
    shown = OpenPeriod(max(incident.opened_at, since), incident.resolved_at, stored(incident, "sentence"), False)
    return replace(found, incidents=[shown])


def last_good_checkpoint(incident: Incident) -> Checkpoint | None:
    """Return the newest retained checkpoint of the job of an unresolved incident."""
    if incident.job is None or incident.state == IncidentState.RESOLVED:
        return None
    return retained_checkpoints(incident.job).first()
