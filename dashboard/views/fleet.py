"""The fleet page with the jobs of all clusters, its download, and the suggestions of the search box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from dashboard.access.guard import access_of, reach_at
from dashboard.access.roles import Role
from dashboard.downloads import Column, download
from dashboard.forms.bulk import MOST
from dashboard.forms.view import KEPT, filters_of
from dashboard.health import Level
from dashboard.queries.activity import latest_activity
from dashboard.queries.fleet import NAMED, JobRow, Selection, read_fleet, read_in_full, read_matching_rows
from dashboard.queries.search import find_suggestions
from monitoring.models import Cluster, Engine, SavedView

# The sortable columns of the list: the field of dashboard.queries.fleet.SORTABLE, and the label.
COLUMNS = (
    ("name", _("Job")),
    ("state", _("Status")),
    ("completed", _("Last checkpoint")),
    ("duration", _("Duration")),
    ("size", _("State size")),
    ("failures", _("Failures (7 d)")),
    ("savepoint", _("Savepoint age")),
    ("objective", _("Budget left")),
)
KIOSK_JOBS = 8  # the jobs on the wall board, whose lines are large


def fleet(request: HttpRequest) -> HttpResponse:
    chosen = selection_of(request.GET)
    if request.GET.get("kiosk") == "1":
        return _kiosk(request, chosen)
    found = read_fleet(chosen, timezone.now(), reach_at(request))
    context = {
        "fleet": found,
        "chosen": chosen,
        "levels": [(level, found.counts.get(level, 0)) for level in Level],
        "legend": [(level, found.levels[level]) for level in Level if found.levels.get(level)],
        "named": NAMED,
        "headings": {each.field: each for each in chosen.sorting.headings(COLUMNS, texts=("name", "state"))},
        "most_at_once": MOST,
        "happenings": latest_activity(3 if len(found.strip) <= 3 else 5, reach_at(request)),
        "views": (views := _views(request)),
        "view_is_kept": any(current for _, current in views),
        "filters": filters_of(request.GET.urlencode()),
        "kept_filters": _kept_filters(request),
        "submit_url": _submit_url(request, found.clusters),
        "section": "fleet",
    }
    live = request.headers.get("HX-Target") == "fleet-live"
    return render(request, "fleet/live.html" if live else "fleet/page.html", context)


def _kiosk(request: HttpRequest, chosen: Selection) -> HttpResponse:
    """Render the wall board: the number of jobs by level and the most urgent jobs, without navigation."""
    now = timezone.now()
    found = read_fleet(replace(chosen, sort="", group=""), now, reach_at(request))
    calm = (Level.HEALTHY, Level.ENDED)
    troubled = [row for row in found.matching if row.health.level not in calm]
    context = {
        "fleet": found,
        "chosen": chosen,
        "levels": [(level, found.levels.get(level, 0)) for level in Level if level is not Level.ENDED],
        "troubled": read_in_full(troubled[:KIOSK_JOBS], now),
        "more": len(troubled[KIOSK_JOBS:]),
        "kept_filters": _kept_filters(request),
    }
    live = request.headers.get("HX-Target") == "kiosk-live"
    return render(request, "fleet/kiosk_live.html" if live else "fleet/kiosk.html", context)


def _kept_filters(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the parameters that the form for labels keeps."""
    return [(name, request.GET[name]) for name in KEPT if name != "labels" and request.GET.get(name)]


def _submit_url(request: HttpRequest, clusters: Sequence[Cluster]) -> str:
    """Return the URL of the page that submits a job, or "" if the reader may submit no job.

    If the reader may submit to several job managers, return the URL of the list of clusters.
    """
    managers = [each for each in clusters if each.engine == Engine.SPARK and each.enabled]
    access = access_of(request)
    mine = [each for each in managers if access.may_on(Role.ADMIN, None, each.pk)]
    if len(mine) > 1:
        return reverse("clusters")
    return reverse("cluster-submit", args=[mine[0].pk]) if mine else ""


def selection_of(given: QueryDict) -> Selection:
    return Selection(
        text=given.get("q", "")[:200],
        level=given.get("state", ""),
        cluster=given.get("cluster", ""),
        labels=given.get("labels", "").replace("\0", "")[:500],
        page=given.get("page", "1"),
        upto=given.get("upto", ""),
        sort=given.get("sort", ""),
        order=given.get("order", ""),
        ended=given.get("ended") == "1",
        group=given.get("group", "").replace("\0", "")[:100],
    )


def _views(request: HttpRequest) -> list[tuple[SavedView, bool]]:
    """Return the reader's saved views, each with a flag that is True for the view on the page."""
    shown = filters_of(request.GET.urlencode())
    return [(view, view.query == shown) for view in SavedView.objects.filter(user=request.user.pk)]


def download_jobs(request: HttpRequest, form: str) -> HttpResponseBase:
    """Return a download of the matching jobs, also those that have ended, in the order of the list."""
    now, chosen = timezone.now(), replace(selection_of(request.GET), ended=True)
    if chosen.problem:
        return JsonResponse({"errors": {"labels": [chosen.problem]}}, status=400)
    return download(form, "jobs", JOBS, read_matching_rows(chosen, now, reach_at(request)))


JOBS: list[Column[JobRow]] = [
    Column("job", attrgetter("facts.job.name")),
    Column("cluster", attrgetter("facts.cluster.name")),
    Column("labels", lambda row: ", ".join(f"{key}={value}" for key, value in sorted(row.facts.job.labels.items()))),
    Column("level", attrgetter("health.level.word")),
    Column("state", attrgetter("health.state_word")),
    Column("sentence", attrgetter("health.sentence")),
    Column("seen_at", attrgetter("facts.seen_at")),
    Column("last_completed_at", attrgetter("facts.last_completed_at")),
    Column("duration_ms", attrgetter("facts.last_duration_ms")),
    Column("duration_p95_ms", attrgetter("figures.duration_p95")),
    Column("alignment_p95_ms", attrgetter("figures.alignment_p95")),
    Column("state_size_bytes", attrgetter("facts.state_size")),
    Column("failed_7d", lambda row: sum(row.figures.failed_per_day)),
    Column("savepoint_at", attrgetter("figures.savepoint_at")),
    Column("incidents", attrgetter("facts.incidents")),
    Column("objective_left_percent", lambda row: row.figures.budget and row.figures.budget.left_percent),
]


def palette(request: HttpRequest) -> HttpResponse:
    """Return the suggestions of the search box for the typed text."""
    hits = find_suggestions(request.GET.get("q", ""), reach_at(request))
    return render(request, "parts/hits.html", {"hits": hits, "text": request.GET.get("q", "").strip()})
