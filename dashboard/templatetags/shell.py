"""What every page's frame shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import template
from django.conf import settings
from django.template.context import RequestContext
from django.utils import timezone

from dashboard.access.guard import reach_at
from dashboard.access.reach import Reach
from dashboard.queries.incidents import told_incidents
from monitoring import pauses
from monitoring.models import Cluster, Delivery, DeliveryState, IncidentState, Job, MaintenanceWindow

register = template.Library()


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
        "dead_messages": Delivery.objects.filter(
            state=DeliveryState.DEAD, is_test=False, created_at__gt=now - timedelta(days=1)
        ).count(),
        "windows": reach.narrow_either(MaintenanceWindow.objects.filter(starts_at__lte=now, ends_at__gt=now)).count(),
        "of_all": reach.sees_everything,
        "mailbox": settings.MAILBOX_DIR is not None,
    }
