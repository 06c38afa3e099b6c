"""The runs of a job with their start, end, outcome and savepoint."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from dashboard.language import schedule_text
from dashboard.views.job import find_job, job_context
from monitoring.models import Run, Savepoint, SavepointState
from monitoring.recovery.run_schedule import run_timetable
from monitoring.savepoints.history import plain_path

RUNS_A_PAGE = 50


def _seconds(run: Run) -> float | None:
    """Return the duration of a run, or None if it has not ended."""
    return None if run.ended_at is None else (run.ended_at - run.started_at).total_seconds()


def runs(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    page = Paginator(job.runs.order_by("-number"), RUNS_A_PAGE).get_page(request.GET.get("page"))
    kept = Savepoint.objects.filter(job=job, state=SavepointState.COMPLETED, run__in=page.object_list).exclude(path="")
    by_place = {plain_path(each.path): each for each in kept.select_related("checkpoint")}
    rows = [
        (run, by_place.get(plain_path(run.outcome.get("savepoint") or "")), _seconds(run)) for run in page.object_list
    ]
    timetable = run_timetable(job)
    schedule = schedule_text(timetable) if timetable else ""
    context = job_context(job, "runs") | {"page": page, "rows": rows, "schedule": schedule}
    live = request.headers.get("HX-Target") == "runs-live"
    return render(request, "job/runs_live.html" if live else "job/runs.html", context)
