"""What every page's frame shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import template
from django.conf import settings
from django.utils import timezone

from dashboard.queries.incidents import told_incidents
from monitoring import pauses
from monitoring.models import Cluster, Delivery, DeliveryState, IncidentState, Job, MaintenanceWindow

register = template.Library()


@register.simple_tag
def shell() -> dict[str, Any]:
    """Open incidents, clusters that do not answer, what holds the automation (pauses, open breakers, paused jobs),
    messages given up in the last day, maintenance windows that run, whether mail is kept here."""
    now = timezone.now()
    return {
        "open_incidents": told_incidents().filter(state=IncidentState.OPEN).count(),
        "silent_clusters": Cluster.objects.filter(unreachable_since__isnull=False, enabled=True).count(),
        "held": pauses.active(now).count() + Job.objects.filter(breaker_opened_at__isnull=False).count(),
        "paused_jobs": Job.objects.filter(automation_paused=True).count(),
        "dead_messages": Delivery.objects.filter(
            state=DeliveryState.DEAD, is_test=False, created_at__gt=now - timedelta(days=1)
        ).count(),
        "windows": MaintenanceWindow.objects.filter(starts_at__lte=now, ends_at__gt=now).count(),
        "mailbox": settings.MAILBOX_DIR is not None,
    }
