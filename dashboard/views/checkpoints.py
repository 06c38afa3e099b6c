"""The history of a job's checkpoints, one checkpoint, and the subtasks of its operators."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from dashboard.forms.history import HistoryForm
from dashboard.queries.batch import read_batch
from dashboard.queries.detail import COLUMNS, exceptions_around, read_subtasks
from dashboard.queries.finding import find_checkpoint, find_operator
from dashboard.queries.history import (
    PAGE_SIZE,
    Cursor,
    HistoryFilter,
    neighbours,
    newest_checkpoint,
    read_history,
    rows_of,
    unreadable_text,
)
from dashboard.queries.waterfall import waterfall_of
from dashboard.sorting import Sort
from dashboard.views.job import find_job, job_context
from monitoring.diagnosis.diagnoses import of_checkpoint
from monitoring.history import rows
from monitoring.history.rows import Unreadable, operators_of
from monitoring.models import CheckpointStatus

SUBTASKS_A_PAGE = 100
LONGEST_KEY = 18  # digits of a key that PostgreSQL accepts
OPERATOR_COLUMNS = (
    ("position", _("Order")),
    ("name", _("Operator")),
    ("num_acknowledged_subtasks", _("Acknowledged")),
    ("latest_ack_at", _("Latest acknowledgement")),
    ("end_to_end_duration", _("End to end duration")),
    ("checkpointed_size", _("Checkpointed size")),
    ("state_size", _("Full size")),
    ("processed_data", _("In-flight data")),
)


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
        "unreadable": [unreadable_text(why) for why in page.unreadable],
    }
    context = job_context(job, "history") | extra
    return render(request, "job/history.html", context, status=400 if form.errors else 200)


def new_checkpoints(request: HttpRequest, pk: int) -> HttpResponse:
    """Render the rows that are pending on the page, and a notice if there is a checkpoint newer than all its rows."""
    job = find_job(pk)
    asked = request.GET.getlist("pending")[:PAGE_SIZE]
    pending = [int(key) for key in asked if key.isdecimal() and len(key) <= LONGEST_KEY]
    seen, newest = Cursor.parse(request.GET.get("seen", "")), newest_checkpoint(job)
    fresh = newest is not None and (seen is None or (newest.at, newest.pk) > (seen.at, seen.pk))
    context = {"job": job, "fresh": fresh, "rows": rows_of(job, pending)}
    return render(request, "job/history_news.html", context)


def newest_failure(request: HttpRequest, pk: int) -> HttpResponse:
    """Redirect to the newest failed checkpoint of the job. If there is none, redirect to the filtered history."""
    status = CheckpointStatus.FAILED.value
    (found,) = rows.newest(find_job(pk), [(HistoryFilter(status).wishes(), 1)])
    if found:
        return redirect("checkpoint", found[0].pk)
    return redirect(reverse("job-history", args=[pk], query={"status": status}))


def checkpoint(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one checkpoint as a page, or as a fragment for the expanded row of the history."""
    try:
        found = find_checkpoint(request, pk)
        operators = operators_of(found)
    except Unreadable as why:
        return _unreadable(request, why)
    sort = Sort.parse(request.GET, dict(OPERATOR_COLUMNS), "position")
    context: dict[str, Any] = {
        "checkpoint": found,
        "operators": sort.apply(operators, lambda operator: getattr(operator, sort.field)),
        "headings": sort.headings(OPERATOR_COLUMNS, texts=("name",)),
    }
    if request.headers.get("HX-Target") == f"operators-{pk}":
        return render(request, "job/operators.html", context)
    context["causes"] = of_checkpoint(found, operators, timezone.now())
    if request.headers.get("HX-Request") and request.headers.get("HX-Target") != "checkpoint-live":
        return render(request, "job/checkpoint.html", context)
    job = find_job(found.run.job_id)
    newer, older = neighbours(job, found)
    context |= {
        "waterfall": waterfall_of(operators),
        "newer": newer,
        "older": older,
        "exceptions": exceptions_around(found),
        "batch": read_batch(job, found.run, found.checkpoint_id),
    }
    live = request.headers.get("HX-Target") == "checkpoint-live"
    page = "job/checkpoint_live.html" if live else "job/checkpoint_page.html"
    return render(request, page, job_context(job, "history") | context)


def operator(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a page of an operator's subtasks as a fragment, sorted by the requested column."""
    try:
        found = find_operator(request, pk)
    except Unreadable as why:
        return _unreadable(request, why)
    columns = [("index", _("Subtask")), ("acknowledged_at", _("Acknowledged")), *((c.field, c.label) for c in COLUMNS)]
    sort = Sort.parse(request.GET, dict(columns), "index")
    subtasks = read_subtasks(found)
    rows = sort.apply(subtasks.rows, lambda row: row.value(sort.field))
    context = {
        "operator": found,
        "subtasks": subtasks,
        "headings": sort.headings(columns, texts=("index",)),
        "page": Paginator(rows, SUBTASKS_A_PAGE).get_page(request.GET.get("page")),
        "sort": sort,
    }
    return render(request, "job/operator.html", context)


def _unreadable(request: HttpRequest, why: Unreadable) -> HttpResponse:
    """Report that the file of the archive cannot be read. A fragment has status 200, because htmx ignores a 503."""
    if request.headers.get("HX-Request"):
        return render(request, "job/unreadable.html", {"said": unreadable_text(why)})
    return render(request, "errors/archive.html", {"why": why}, status=503)
