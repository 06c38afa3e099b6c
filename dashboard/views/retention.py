"""The page of one savepoint, its deletion, and the retention of a job's savepoints."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of, reach_at
from dashboard.access.reach import Reach
from dashboard.acts.job_settings import save_retention
from dashboard.forms.editing import for_editing
from dashboard.forms.note import NoteForm
from dashboard.forms.retention import KeepForm, RetentionForm
from dashboard.language import rendered
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring.models import Job, Run, Savepoint
from monitoring.savepoints.history import spellings
from monitoring.savepoints.retention_actions import (
    BadNote,
    NotDisposable,
    NotPinned,
    dispose,
    pin,
    retention_reason,
    verdicts,
)


def savepoint(request: HttpRequest, pk: int) -> HttpResponse:
    found = _find(pk)
    return render(
        request, "savepoints/savepoint.html", _context(request, found, KeepForm(instance=found, label_suffix=""))
    )


@action
@transaction.atomic
def keep(request: HttpRequest, pk: int) -> HttpResponse:
    for_editing(Job.objects.filter(savepoints=pk)).first()  # `pin` locks the job, not the savepoint
    found = _find(pk)
    form = KeepForm(request.POST, instance=_find(pk), label_suffix="")
    if form.is_valid():
        try:
            pin(found, form.cleaned_data["pinned"], form.cleaned_data["note"], actor_of(request))
        except BadNote as problem:
            form.add_error("note", rendered(problem.reason))
        except NotPinned as problem:
            form.add_error("pinned", rendered(problem.reason))
    if not form.is_valid():
        return render(request, "savepoints/savepoint.html", _context(request, found, form), status=422)
    messages.success(request, _("Saved."))
    return redirect("savepoint", pk)


@action
def dispose_of(request: HttpRequest, pk: int) -> HttpResponse:
    found, form = _find(pk), NoteForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Reason: enter at most 2000 characters. Nothing was deleted."))
        return redirect("savepoint", pk)
    try:
        dispose(found, form.cleaned_data["note"], actor_of(request), timezone.now())
    except NotDisposable as stays:
        messages.error(request, _("Nothing was deleted. %(stays)s") % {"stays": rendered(stays.reason)})
    else:
        messages.success(request, _("Waymark is deleting the files of the savepoint."))
    return redirect("savepoint", pk)


def retention(request: HttpRequest, pk: int) -> HttpResponse:
    """Show which savepoints the policy in the form, or else the job's policy, would delete now.

    Nothing is deleted.
    """
    job = find_job(pk)
    form = RetentionForm(request.GET if "preview" in request.GET else None, instance=find_job(pk), label_suffix="")
    return _retention_page(request, job, form)


@action
@transaction.atomic
def change_retention(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = RetentionForm(request.POST, instance=for_editing(Job.objects.all()).get(pk=pk), label_suffix="")
    if not form.is_valid():
        return _retention_page(request, job, form, status=422)
    save_retention(form, actor_of(request))
    messages.success(request, _("Saved."))
    return redirect("job-savepoints", pk)


def _retention_page(request: HttpRequest, job: Job, form: RetentionForm, status: int = 200) -> HttpResponse:
    tried = form.instance if form.is_bound and form.is_valid() else job
    found = verdicts(tried, timezone.now())
    rows = Savepoint.objects.select_related("checkpoint", "run").in_bulk([verdict.held.key for verdict in found])
    judged = [(rows[verdict.held.key], verdict) for verdict in found]
    going = [row for row, verdict in judged if verdict.is_expired]
    context = job_context(job, "savepoints") | {
        "form": form,
        "judged": judged,
        "going": len(going),
        "freed": sum(row.size or 0 for row in going),
        "previewed": form.is_bound,
    }
    return render(request, "savepoints/retention.html", context, status=status)


def _find(pk: int) -> Savepoint:
    rows = Savepoint.objects.select_related("job__cluster", "job__current_run", "run__launch_version", "checkpoint")
    found: Savepoint = get_object_or_404(rows, pk=pk)
    return found


def _context(request: HttpRequest, found: Savepoint, form: KeepForm) -> dict[str, Any]:
    return {
        "savepoint": found,
        "job": found.job,
        "form": form,
        "stays": retention_reason(found, timezone.now()),
        "restored_by": _restored_by(found, reach_at(request)),
        "section": "savepoints",
    }


def _restored_by(found: Savepoint, reach: Reach) -> list[Run]:
    """Return every run that was restored from the savepoint, runs of its job first.

    Runs of other jobs are included only if the reader may see these jobs.
    """
    if not found.path:
        return []
    runs = Run.objects.filter(restored_path__in=spellings(found.path)).select_related("job")
    return sorted(reach.narrow(runs, "job"), key=lambda run: (run.job_id != found.job_id, run.job.name, -run.number))
