"""Keyed state in a snapshot of a PySpark job. A worker reads it on request, and the page shows the result."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import access_of, actor_of
from dashboard.access.roles import Role
from dashboard.forms.state import StateForm
from dashboard.language import rendered
from dashboard.queries.state import Spread, answers, count_requests_ahead, newest_contents_read, without_values
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring.models import Checkpoint, Engine, Job, StateRead, StateReadKind, StateReadState
from monitoring.state_reads.queries import StateQuery, StateReadRefused, label_of, snapshot_of, snapshots, store_query


def state(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    context = _context(request, job, _chosen(request, job))
    if request.headers.get("HX-Target") != "state-live":
        return render(request, "job/state.html", job_context(job, "state") | context)
    answer = render(request, "job/state_live.html", {"job": job, **context})
    if request.GET.get("until") == "contents" and not context["is_listing"]:
        answer.headers["HX-Refresh"] = "true"  # the contents are known, so the reloaded page has the form for requests
    return answer


@action
def ask_state(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    snapshot = _chosen(request, job)
    if snapshot is None:
        messages.error(request, _("Select a completed snapshot of this job."))
        return redirect("job-state", pk)
    if request.POST.get("kind") == StateReadKind.LIST:
        return _asked(request, job, snapshot, StateQuery(StateReadKind.LIST))
    form = _form(job, snapshot, request.POST)
    if form is None or not form.is_valid():
        context = job_context(job, "state") | _context(request, job, snapshot, form)
        return render(request, "job/state.html", context, status=422)
    other = snapshot_of(job, form.cleaned_data["other"]) if form.cleaned_data["other"] else None
    return _asked(request, job, snapshot, form.question, other if form.question.kind == StateReadKind.DIFF else None)


def _asked(
    request: HttpRequest, job: Job, snapshot: Checkpoint, question: StateQuery, other: Checkpoint | None = None
) -> HttpResponse:
    try:
        store_query(job, snapshot, question, actor_of(request), timezone.now(), other)
    except StateReadRefused as error:
        messages.error(request, rendered(error.reason))
    return redirect(f"{reverse('job-state', args=[job.pk])}?snapshot={snapshot.pk}")


def _chosen(request: HttpRequest, job: Job) -> Checkpoint | None:
    asked = (request.POST if request.method == "POST" else request.GET).get("snapshot", "")
    return snapshot_of(job, int(asked)) if asked.isdigit() and len(asked) < 19 else None


def _form(job: Job, snapshot: Checkpoint, data: Any = None) -> StateForm | None:
    """Return the form for requests, or None while the contents of the snapshot are unknown."""
    listed = newest_contents_read(job, snapshot.pk)
    if listed is None or not listed.answer:
        return None
    others = [each for each in snapshots(job) if each.pk != snapshot.pk]
    return StateForm(listed.answer, others, data)


def _context(
    request: HttpRequest, job: Job, snapshot: Checkpoint | None, form: StateForm | None = None
) -> dict[str, Any]:
    """Return the context of the page. Keys and values are the job's data, so only operators see them."""
    may_see_values = access_of(request).may(Role.OPERATOR)
    listed = newest_contents_read(job, snapshot.pk) if snapshot else None
    found = answers(job, snapshot.pk) if snapshot and may_see_values else []
    reads: list[StateRead] = [*([listed] if listed else []), *(each.read for each in found)]
    contents = listed.answer if listed and listed.state == StateReadState.DONE else None
    contents = contents if contents is None or may_see_values else without_values(contents)
    return {
        "is_spark": job.cluster.engine == Engine.SPARK,
        "offered": [(each, label_of(each)) for each in snapshots(job)],
        "snapshot": snapshot,
        "snapshot_label": label_of(snapshot) if snapshot else "",
        "listed": listed,
        "is_listing": listed is not None and StateReadState(listed.state).open,
        "contents": contents,
        "operators": [(each, Spread(each["partitions"], "bytes")) for each in (contents or {}).get("keyed", ())],
        "form": form or (_form(job, snapshot) if snapshot else None),
        "answers": found,
        "is_open": any(StateReadState(read.state).open for read in reads),
        "ahead": count_requests_ahead(reads),
    }
