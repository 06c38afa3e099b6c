"""Savepoints of one job and of all jobs, and requests for a new savepoint, with or without a stop of the job."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of, reach_at
from dashboard.acts.shown import JobChanged, ShownRun, check_shown_run, repeat_hint
from dashboard.language import rendered
from dashboard.queries.states import read_retained
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring.engine.errors import EngineError
from monitoring.models import Job, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.recovery.states import retained_checkpoints
from monitoring.savepoints.checking import look_at
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from monitoring.savepoints.storage_threads import StorageSilent

PAGE_SIZE = 50


def job_savepoints(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    found = job.savepoints.select_related("run__launch_version", "checkpoint")
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = job_context(job, "savepoints") | {
        "page": page,
        "retained": read_retained(job) if page.number == 1 else [],
    }
    live = request.headers.get("HX-Target") == "savepoints-live"
    return render(request, "job/savepoints_live.html" if live else "job/savepoints.html", context)


def all_savepoints(request: HttpRequest) -> HttpResponse:
    rows = Savepoint.objects.select_related("job__cluster", "run", "checkpoint")
    found = reach_at(request).narrow(rows, "job")
    chosen, text = request.GET.get("state", ""), _text_of(request)
    if chosen in SavepointState.values:
        found = found.filter(state=chosen)
    if text:
        found = found.filter(job__name__icontains=text)
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "chosen": chosen, "text": text, "states": SavepointState.choices, "section": "savepoints"}
    return render(request, "savepoints/page.html", context)


def _text_of(request: HttpRequest) -> str:
    """Return the search text without NUL characters, which PostgreSQL does not accept."""
    return request.GET.get("q", "").replace("\0", "").strip()[:200]


@action
def check_retained(request: HttpRequest, pk: int, checkpoint: int) -> HttpResponse:
    """Check the files of a retained checkpoint."""
    job = find_job(pk)
    found = get_object_or_404(retained_checkpoints(job), pk=checkpoint)
    name = _("Checkpoint %(checkpoint_id)s") % {"checkpoint_id": found.checkpoint_id}
    _check(request, job, found.external_path, name)
    return redirect("job-savepoints", pk)


@action
def check_savepoint(request: HttpRequest, pk: int) -> HttpResponse:
    """Check the files of a completed savepoint."""
    found = get_object_or_404(Savepoint.objects.exclude(path=""), pk=pk, state=SavepointState.COMPLETED)
    _check(request, find_job(found.job_id), found.path, _("The savepoint"))
    return redirect("savepoint", pk)


def _check(request: HttpRequest, job: Job, path: str, name: str) -> None:
    try:
        problem = look_at(job, path, timezone.now())
    except EngineError as error:
        messages.error(
            request, _("%(name)s was not checked: %(error)s") % {"name": name, "error": rendered(error.reason)}
        )
    except StorageSilent as silent:
        why = rendered(SavepointReason.SENTENCE(clause=silent.reason))
        messages.error(request, _("%(name)s was not checked: %(error)s") % {"name": name, "error": why})
    else:
        _report_check(request, name, problem)


def _report_check(request: HttpRequest, name: str, problem: Reason | str | None) -> None:
    if problem is None:
        messages.warning(
            request,
            _(
                "%(name)s was not checked: the cluster cannot check it, and no directory in WAYMARK_STATE_ROOTS "
                "contains it."
            )
            % {"name": name},
        )
    elif problem:
        messages.error(request, _("%(name)s is damaged: %(problem)s") % {"name": name, "problem": rendered(problem)})
    else:
        messages.success(request, _("%(name)s is complete: all files exist.") % {"name": name})


@action
def take_savepoint(request: HttpRequest, pk: int) -> HttpResponse:
    return _request(request, pk, stop_job=False)


def confirm_stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or stop the job on POST."""
    if request.method == "POST":
        return stop_with_savepoint(request, pk)
    return render(request, "job/stop.html", job_context(find_job(pk), "savepoints"))


@action
def stop_with_savepoint(request: HttpRequest, pk: int) -> HttpResponse:
    try:
        check_shown_run(find_job(pk), ShownRun.read(request.POST), timezone.now())
    except JobChanged as moved:
        messages.error(request, _("Nothing was stopped. %(moved)s") % {"moved": f"{moved} {repeat_hint()}"})
        return redirect("job-stop", pk)
    return _request(request, pk, stop_job=True)


def _request(request: HttpRequest, pk: int, *, stop_job: bool) -> HttpResponse:
    job = find_job(pk)
    try:
        request_savepoint(job, SavepointOrigin.MANUAL, actor_of(request), timezone.now(), stops_job=stop_job)
    except SavepointDeferred as deferred:
        messages.error(request, rendered(deferred.sentence))
    else:
        messages.success(request, _("Savepoint requested.") if not stop_job else _("Stopping with a savepoint."))
    return redirect("job-savepoints", pk)
