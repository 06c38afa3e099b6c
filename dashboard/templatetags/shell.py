"""What every page's frame shows."""

from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings

from monitoring.models import Cluster, Incident, IncidentState, Job

register = template.Library()


@register.simple_tag
def shell() -> dict[str, Any]:
    """Open incidents, clusters that do not answer, how many jobs restart by themselves, whether mail is kept here."""
    return {
        "open_incidents": Incident.objects.filter(state=IncidentState.OPEN).count(),
        "silent_clusters": Cluster.objects.filter(unreachable_since__isnull=False, enabled=True).count(),
        "paused_jobs": Job.objects.filter(automation_paused=True).count(),
        "mailbox": settings.MAILBOX_DIR is not None,
    }
