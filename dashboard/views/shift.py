"""The shift summary: what happened in the last 8, 12 or 24 hours."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from dashboard.access.guard import reach_at
from dashboard.access.reach import Reach
from monitoring.models import Incident, Job, Outage, RestartAttempt, Savepoint
from monitoring.notify.shift import HOURS, Scope, read_shift

DEFAULT_HOURS = 12


def shift(request: HttpRequest) -> HttpResponse:
    hours = next((each for each in HOURS if request.GET.get("hours") == str(each)), DEFAULT_HOURS)
    now = timezone.now()
    context = {
        "shift": read_shift(now - timedelta(hours=hours), now, scope_of(reach_at(request))),
        "hours": hours,
        "choices": HOURS,
        "section": "incidents",
    }
    live = request.headers.get("HX-Target") == "shift-live"
    return render(request, "shift/content.html" if live else "shift/page.html", context)


def scope_of(reach: Reach) -> Scope:
    """Return the rows that the account may see."""
    jobs = None if reach.is_unrestricted else list(reach.narrow(Job.objects.all()).values_list("pk", flat=True))
    return Scope(
        incidents=reach.narrow_either(Incident.objects.all()),
        attempts=reach.narrow(RestartAttempt.objects.all(), "job"),
        savepoints=reach.narrow(Savepoint.objects.all(), "job"),
        outages=reach.narrow_clusters(Outage.objects.all(), "cluster"),
        jobs=jobs,
    )
