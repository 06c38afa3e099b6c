"""The page of a job: its heading, which refreshes itself, and the tabs for overview, summary and exceptions."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.charts.alignment import STEPS
from dashboard.health import judge
from dashboard.queries import overview
from dashboard.queries.batch import read_batch
from dashboard.queries.discoveries import resources_of
from dashboard.queries.facts import gather_facts, jobs_with_runs
from dashboard.queries.summary import KINDS, MEASURES, read_by_run, read_summary
from dashboard.views.window import window_of
from monitoring.diagnosis.diagnoses import of_job
from monitoring.history.forgetting import hours_kept
from monitoring.history.quantiles import P95_FROM, P95_TO
from monitoring.kubernetes.job_resources import resource_of
from monitoring.models import Job, ObjectiveBudget, Run, RunException, RunState, SavepointState
from monitoring.recovery.rows_written_again import of_run
from monitoring.units import span_ms_text

LATEST = 8
EXCEPTIONS_A_PAGE = 50


def find_job(pk: int) -> Job:
    job: Job = get_object_or_404(jobs_with_runs(), pk=pk)
    return job


def job_context(job: Job, tab: str) -> dict[str, Any]:
    """Return the context for the heading and the tabs."""
    now = timezone.now()
    facts = gather_facts([job], now)[0]
    return {
        "job": job,
        "run": job.current_run,
        "facts": facts,
        "health": judge(facts, now),
        "savepoint_under_way": job.savepoints.filter(state__in=("requested", "in_progress")).first(),
        **_ending(job),
        "operator": resource_of(job),
        "writes_again": _writes_again(job.current_run),
        "tab": tab,
        "section": "fleet",
        "now": now,
    }


def _writes_again(run: Run | None) -> bool:
    """Return whether another run may write rows twice. Then the job is started from a page that warns about it."""
    return run is not None and not run.outcome.get("saved") and bool(of_run(run).queries)


def _ending(job: Job) -> dict[str, Any]:
    """Return the context for a run that finished or was canceled: the savepoint with which it was stopped."""
    run = job.current_run
    if run is None or run.state not in (RunState.FINISHED, RunState.CANCELED):
        return {}
    stopped = job.savepoints.filter(run=run, stops_job=True, state=SavepointState.COMPLETED).select_related(
        "checkpoint"
    )
    return {"ended_on_purpose": True, "stopped_with": stopped.first()}


def header(request: HttpRequest, pk: int) -> HttpResponse:
    """Render only the heading, when it refreshes itself."""
    return render(request, "job/header.html", job_context(find_job(pk), ""))


def show_overview(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    context = job_context(job, "overview")
    window = window_of(request, job, context["now"])
    latest, marks = overview.read_latest(job, LATEST)
    context |= {
        "window": window,
        "diagnosis": of_job(job, context["now"]),
        "tiles": overview.read_tiles(job, window.span),
        "standing": overview.read_rule_standing(job, context["now"]),
        "savepoint": overview.newest_savepoint(job),
        "budget": ObjectiveBudget.objects.filter(job=job).first(),
        "batch": read_batch(job, job.current_run),
        "latest": latest,
        "marks": marks,
        "steps": _step_labels(),
        "found": resources_of(job.cluster, context["now"], job.current_run.engine_job_id if job.current_run else ""),
    }
    live = request.headers.get("HX-Target") == "overview-live"
    page = "job/overview_live.html" if live else "job/overview.html"
    return render(request, page, context, status=window.status)


def summary(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    context = job_context(job, "summary")
    window, kind = window_of(request, job, context["now"], "24h"), request.GET.get("kind", "")
    kind = kind if kind in KINDS else ""
    found = read_summary(job, window.span, kind)
    context |= {
        "window": window,
        "kind": kind,
        "measures": MEASURES,
        "summary": found,
        "by_run": read_by_run(job, window.span, kind, rolled=found.rolled),
        "hours_kept": hours_kept().days,
        "p95_from": P95_FROM,
        "p95_to": P95_TO,
    }
    return render(request, "job/summary.html", context, status=window.status)


def exceptions(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    found = RunException.objects.filter(run__job=job).select_related("run").order_by("-run__number", "-at", "-id")
    page = Paginator(found, EXCEPTIONS_A_PAGE).get_page(request.GET.get("page"))
    return render(request, "job/exceptions.html", job_context(job, "exceptions") | {"page": page})


def _step_labels() -> list[str]:
    return [
        *(f"< {span_ms_text(step)}" for step in STEPS),
        _("more"),
    ]
