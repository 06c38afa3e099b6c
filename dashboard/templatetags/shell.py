"""What every page's frame shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import template
from django.conf import settings
from django.template.context import RequestContext
from django.utils import timezone

from dashboard.access.guard import Access, reach_at
from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from dashboard.queries.incidents import told_incidents
from dashboard.queries.messages import seen_messages
from monitoring import pauses
from monitoring.models import (
    AutomationPause,
    Cluster,
    DeliveryState,
    Incident,
    IncidentState,
    Job,
    MaintenanceWindow,
)

register = template.Library()


@register.filter
def acts_on(access: Access, row: Job | Incident | MaintenanceWindow | AutomationPause) -> bool:
    """Whether the reader may act on what `row` is about: where the button of its deed is shown."""
    if isinstance(row, Job):
        return access.may_on(Role.OPERATOR, row.pk, row.cluster_id)
    job = None if isinstance(row, AutomationPause) else row.job
    return access.may_on(Role.OPERATOR, job.pk if job else None, job.cluster_id if job else row.cluster_id)


@register.simple_tag(takes_context=True)
def shell(context: RequestContext) -> dict[str, Any]:
    return frame_of(reach_at(context["request"]))


def frame_of(reach: Reach) -> dict[str, Any]:
    """Open incidents, clusters that do not answer, what holds the automation (pauses, open breakers, paused jobs),
    messages given up in the last day, maintenance windows that run, whether mail is kept here."""
    now = timezone.now()
    jobs, clusters = reach.narrow(Job.objects.all()), reach.narrow_clusters(Cluster.objects.all())
    holding = reach.narrow_to_clusters_or_all(pauses.active(now))
    return {
        "open_incidents": reach.narrow_either(told_incidents()).filter(state=IncidentState.OPEN).count(),
        "silent_clusters": clusters.filter(unreachable_since__isnull=False, enabled=True).count(),
        "held": holding.count() + jobs.filter(breaker_opened_at__isnull=False).count(),
        "paused_jobs": jobs.filter(automation_paused=True).count(),
        "dead_messages": seen_messages(reach)
        .filter(state=DeliveryState.DEAD, is_test=False, created_at__gt=now - timedelta(days=1))
        .count(),
        "windows": reach.narrow_either(MaintenanceWindow.objects.filter(starts_at__lte=now, ends_at__gt=now)).count(),
        "of_all": reach.sees_everything,
        "mailbox": settings.MAILBOX_DIR is not None,
    }
