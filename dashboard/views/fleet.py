"""All jobs of all clusters, live."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from dashboard.health import Freshness, Level
from dashboard.queries.activity import latest_happenings
from dashboard.queries.fleet import Selection, read_fleet

NAMED = 8  # so many jobs have room for their names in the strip


@vary_on_headers("HX-Request")
def fleet(request: HttpRequest) -> HttpResponse:
    chosen = Selection(
        text=request.GET.get("q", "")[:200],
        level=request.GET.get("state", ""),
        cluster=request.GET.get("cluster", ""),
        page=request.GET.get("page", "1"),
    )
    found = read_fleet(chosen, timezone.now())
    context = {
        "fleet": found,
        "chosen": chosen,
        "levels": [(level, found.counts.get(level, 0)) for level in Level],
        "legend": [(fresh, found.freshness.get(fresh, 0)) for fresh in Freshness if found.freshness.get(fresh)],
        "named": NAMED,
        "happenings": latest_happenings(3 if len(found.strip) <= 3 else 5),
        "section": "fleet",
    }
    live = request.headers.get("HX-Target") == "fleet-live"
    return render(request, "fleet/live.html" if live else "fleet/page.html", context)
