"""Template tags for the frame of every page: the navigation with its counts, and the texts of the scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django import template
from django.conf import settings
from django.template.context import RequestContext
from django.utils import timezone
from django.utils.dates import MONTHS, MONTHS_3
from django.utils.html import json_script
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from dashboard import time_zone
from dashboard.access.guard import Access, reach_at
from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from dashboard.queries.clusters import source_names
from dashboard.queries.counting import counts
from dashboard.queries.incidents import visible_incidents
from dashboard.queries.messages import visible_messages
from monitoring import pauses
from monitoring.models import (
    Authentication,
    AutomationPause,
    Cluster,
    DeliveryState,
    Discovery,
    Engine,
    Incident,
    IncidentState,
    Job,
    MaintenanceWindow,
    RunState,
)
from monitoring.reasons.engines import EngineReason
from monitoring.savepoints.savers import saver_of

register = template.Library()
register.simple_tag(time_zone.zone_name)
register.simple_tag(time_zone.zone_offset)


@register.filter
def acts_on(access: Access, row: Job | Incident | MaintenanceWindow | AutomationPause) -> bool:
    """Return whether the reader may operate the job or cluster of `row`. If not, the page hides the row's buttons."""
    if isinstance(row, Job):
        return access.may_on(Role.OPERATOR, row.pk, row.cluster_id)
    job = None if isinstance(row, AutomationPause) else row.job
    return access.may_on(Role.OPERATOR, job.pk if job else None, job.cluster_id if job else row.cluster_id)


@register.filter
def can_be_saved(job: Job) -> bool:
    """Return whether a cluster takes savepoints of the job."""
    return saver_of(job, "") is not None


@register.filter
def other_sources(access: Access, job: Job) -> str:
    """Return the names of the other clusters through which the reader may see that Waymark sees the job's query."""
    return ", ".join(source_names(job, access.reach)[1:])


@register.filter
def flink_page(access: Access, job: Job) -> str:
    """Return the address of the job's current run in Flink's web UI, or "" if a browser may not be able to open it.

    The address must be one that an administrator entered, because ZooKeeper's address of the leader is usually
    internal. It must need no log-in and no client certificate. The reader must have access to the cluster.
    """
    cluster, run = job.cluster, job.current_run
    if run is None or run.state == RunState.LOST or cluster.engine != Engine.FLINK:
        return ""
    if cluster.discovery != Discovery.URL or cluster.authentication != Authentication.NONE:
        return ""
    if cluster.client_certificate or not access.may_on(Role.VIEWER, None, cluster.pk):
        return ""
    url = cluster.history_server if cluster.history_server and cluster.has_ended else cluster.rest_url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment:
        return ""
    return f"{url.rstrip('/')}/#/job/{'running' if run.live else 'completed'}/{run.engine_job_id}/overview"


@register.simple_tag(takes_context=True)
def shell(context: RequestContext) -> dict[str, Any]:
    return frame_of(reach_at(context["request"]))


def frame_of(reach: Reach) -> dict[str, Any]:
    """Return the counts in the navigation, for the objects that the reader may see.

    The counts are of open incidents, unreachable clusters, pauses and open breakers, paused jobs, failed messages of
    the last day and active maintenance windows.
    """
    now = timezone.now()
    jobs, clusters = reach.narrow(Job.objects.all()), reach.narrow_clusters(Cluster.objects.all())
    dead = visible_messages(reach).filter(state=DeliveryState.DEAD, is_test=False)
    ended = Cluster.objects.filter(last_error_value__code=EngineReason.CLUSTER_ENDED.value).values("pk")
    windows = MaintenanceWindow.objects.filter(starts_at__lte=now, ends_at__gt=now)
    holding, breakers, *others = counts(
        reach.narrow_to_clusters_or_all(pauses.active(now)),
        jobs.filter(breaker_opened_at__isnull=False),
        reach.narrow_either(visible_incidents()).filter(state=IncidentState.OPEN),
        clusters.filter(unreachable_since__isnull=False, enabled=True).exclude(pk__in=ended),
        jobs.filter(automation_paused=True),
        dead.filter(created_at__gt=now - timedelta(days=1)),
        reach.narrow_either(windows),
    )
    names = ("open_incidents", "silent_clusters", "paused_jobs", "dead_messages", "windows")
    return {
        **dict(zip(names, others, strict=True)),
        "held": holding + breakers,
        "of_all": reach.is_unrestricted,
        "mailbox": settings.MAILBOX_DIR is not None,
    }


@register.simple_tag
def script_texts() -> SafeString:
    """Render what static/dashboard/js/texts.js reads, as JSON, which the content security policy allows in a page."""
    return json_script(
        {
            "live": _("Live"),
            "paused": _("Paused"),
            "lost": _("No answer since %(time)s"),
            "expired": _("Session expired"),
            "copied": _("Copied"),
            "selected": _("Selected: press Ctrl-C"),
            "due": _("due now"),
            "ago": _("%(age)s ago"),
            "until": _("in %(age)s"),
            "units": {unit: _(unit) for unit in ("s", "min", "h", "d")},
            "dates": _dates(),
        },
        "script-texts",
    )


def _dates() -> dict[str, str | list[str]]:
    """Return the formats of dates on the axes of charts, in the form of Plotly's `locales`."""
    return {
        "months": [str(month) for month in MONTHS.values()],
        "shortMonths": [str(month).title() for month in MONTHS_3.values()],
        "year": pgettext("axis", "%Y"),
        "month": pgettext("axis", "%b %Y"),
        "dayMonth": pgettext("axis", "%b %-d"),
        "dayMonthYear": pgettext("axis", "%b %-d, %Y"),
    }
