"""Plan and end maintenance windows, and find the windows that cover an incident."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from django.db import transaction

from monitoring import audit
from monitoring.alerts.scope import labels_of
from monitoring.alerts.selector import parse
from monitoring.models import Incident, MaintenanceWindow, Notification, NotificationState
from monitoring.reasons.alerts import AlertReason


class WindowIsOver(Exception):
    """Raised if the maintenance window has already ended."""

    def __init__(self, window: MaintenanceWindow) -> None:
        self.reason = AlertReason.WINDOW_IS_OVER(window=window.name)
        super().__init__(str(self.reason))


def active_windows(now: datetime) -> list[MaintenanceWindow]:
    return list(MaintenanceWindow.objects.filter(starts_at__lte=now, ends_at__gt=now).select_related("job", "cluster"))


def covering(incident: Incident, windows: Iterable[MaintenanceWindow]) -> MaintenanceWindow | None:
    """Return the window that covers the incident and ends last, or None."""
    return max((each for each in windows if covers(each, incident)), key=lambda each: each.ends_at, default=None)


def covers(window: MaintenanceWindow, incident: Incident) -> bool:
    if window.job_id is not None:
        return incident.job_id == window.job_id
    if window.cluster_id is not None:
        return incident.cluster_id == window.cluster_id
    job, cluster = incident.job, incident.cluster
    if job is None or cluster is None:
        return False
    return _selector(window.selector).matches(labels_of(job.name, job.labels, cluster))


_selector = lru_cache(maxsize=256)(parse)


@transaction.atomic
def plan_window(window: MaintenanceWindow) -> None:
    window.save()
    audit.record(
        window.created_by,
        "maintenance.plan",
        str(window),
        window.reason,
        starts_at=window.starts_at.isoformat(),
        ends_at=window.ends_at.isoformat(),
    )


@transaction.atomic
def end_window(window: MaintenanceWindow, by: str, now: datetime) -> int:
    """End the window early, and make the notifications that it silenced due now. Return how many these are.

    Raises WindowIsOver.
    """
    ended = MaintenanceWindow.objects.filter(pk=window.pk, ends_at__gt=now).update(ends_at=now, ended_by=by)
    if not ended:
        raise WindowIsOver(window)
    silenced = Notification.objects.filter(silenced_by=window, state=NotificationState.WAITING)
    freed = silenced.update(due_at=now)
    audit.record(by, "maintenance.end", str(window))
    return freed
