"""The history of a job's checkpoints, down to the subtask."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from dashboard.forms.history import HistoryForm
from dashboard.queries.detail import read_subtasks
from dashboard.queries.history import Cursor, newest_checkpoint, read_history
from dashboard.views.job import find_job, job_context
from monitoring.models import Checkpoint, CheckpointStatus, OperatorCheckpoint


def history(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = HistoryForm(request.GET)
    form.is_valid()
    chosen = form.chosen
    page = read_history(
        job,
        chosen,
        before=Cursor.parse(request.GET.get("before", "")),
        after=Cursor.parse(request.GET.get("after", "")),
    )
    extra = {
        "page": page,
        "form": form,
        "chosen": chosen,
        "statuses": CheckpointStatus.choices,
        "newest": newest_checkpoint(job),
        "beginning": Cursor.beginning(),
    }
    context = job_context(job, "history") | extra
    return render(request, "job/history.html", context, status=400 if form.errors else 200)


def news(request: HttpRequest, pk: int) -> HttpResponse:
    """Whether there is something newer than what the reader looks at."""
    job = find_job(pk)
    seen, newest = Cursor.parse(request.GET.get("seen", "")), newest_checkpoint(job)
    fresh = newest is not None and (seen is None or (newest.at, newest.pk) > (seen.at, seen.pk))
    return render(request, "job/history_news.html", {"job": job, "fresh": fresh, "seen": seen or ""})


def checkpoint(request: HttpRequest, pk: int) -> HttpResponse:
    """One checkpoint's operators, as a fragment for its expanded row."""
    found = get_object_or_404(Checkpoint.objects.select_related("run__job"), pk=pk)
    return render(request, "job/checkpoint.html", {"checkpoint": found, "operators": found.operators.all()})


def operator(request: HttpRequest, pk: int) -> HttpResponse:
    """One operator's subtasks, as a fragment."""
    found = get_object_or_404(OperatorCheckpoint.objects.select_related("checkpoint__run"), pk=pk)
    return render(request, "job/operator.html", {"operator": found, "subtasks": read_subtasks(found)})
