"""All jobs of all clusters, live."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.vary import vary_on_headers

from dashboard.access.guard import reach_at
from dashboard.forms.view import filters_of
from dashboard.health import Freshness, Level
from dashboard.queries.activity import latest_happenings
from dashboard.queries.finding import find
from dashboard.queries.fleet import Selection, read_fleet
from monitoring.models import SavedView

NAMED = 8  # so many jobs have room for their names in the strip


@vary_on_headers("HX-Request")
def fleet(request: HttpRequest) -> HttpResponse:
    chosen = Selection(
        text=request.GET.get("q", "")[:200],
        level=request.GET.get("state", ""),
        cluster=request.GET.get("cluster", ""),
        labels=request.GET.get("labels", "").replace("\0", "")[:500],
        page=request.GET.get("page", "1"),
    )
    found = read_fleet(chosen, timezone.now(), reach_at(request))
    context = {
        "fleet": found,
        "chosen": chosen,
        "levels": [(level, found.counts.get(level, 0)) for level in Level],
        "legend": [(fresh, found.freshness.get(fresh, 0)) for fresh in Freshness if found.freshness.get(fresh)],
        "named": NAMED,
        "happenings": latest_happenings(3 if len(found.strip) <= 3 else 5, reach_at(request)),
        "views": (views := _views(request)),
        "view_is_kept": any(current for _, current in views),
        "filters": filters_of(request.GET.urlencode()),
        "kept_filters": [(name, request.GET[name]) for name in ("q", "state", "cluster") if request.GET.get(name)],
        "section": "fleet",
    }
    live = request.headers.get("HX-Target") == "fleet-live"
    return render(request, "fleet/live.html" if live else "fleet/page.html", context)


def _views(request: HttpRequest) -> list[tuple[SavedView, bool]]:
    """The reader's own, each with whether it is the one on the page."""
    shown = filters_of(request.GET.urlencode())
    return [(view, view.query == shown) for view in SavedView.objects.filter(user=request.user.pk)]


def palette(request: HttpRequest) -> HttpResponse:
    """What the search box offers for what was typed so far."""
    hits = find(request.GET.get("q", ""), reach_at(request))
    return render(request, "parts/hits.html", {"hits": hits, "text": request.GET.get("q", "").strip()})
