"""One deed for several jobs: each is done or refused by itself, and told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at, refusal, require_somewhere
from dashboard.access.roles import Role
from dashboard.access.subjects import Subject
from dashboard.forms.bulk import DEEDS, LABEL, SAVEPOINT, STOP, BulkForm
from dashboard.queries.facts import jobs_with_runs
from monitoring import audit
from monitoring.models import Job, SavepointOrigin
from monitoring.savepoints.request import SavepointDeferred, request_savepoint


@dataclass(frozen=True)
class Outcome:
    job: Job
    done: bool
    text: str


@require_POST
def act(request: HttpRequest) -> HttpResponse:
    """What ends jobs is asked again first, with their names."""
    require_somewhere(request, Role.OPERATOR)
    form = BulkForm(request.POST, offered=reach_at(request).narrow(jobs_with_runs()))
    if not form.is_valid():
        for name, errors in form.errors.items():
            messages.error(
                request,
                _("%(label)s: %(errors)s Nothing was done.")
                % {"label": form.fields[name].label, "errors": " ".join(map(str, errors))},
            )
        return redirect("fleet")
    typed = form.cleaned_data
    context = {"jobs": typed["jobs"], "deed": typed["deed"], "title": dict(DEEDS)[typed["deed"]], "section": "fleet"}
    if typed["deed"] == STOP and not typed["confirmed"]:
        return render(request, "fleet/confirm.html", context)
    by, now, access = actor_of(request), timezone.now(), access_of(request)
    outcomes = [
        _do(job, typed, by, now)
        if (access.role_on(Subject(job.pk, job.cluster_id)) or Role.VIEWER) >= Role.OPERATOR
        else Outcome(job, False, refusal(access, Role.OPERATOR))
        for job in typed["jobs"]
    ]
    outcomes.sort(key=lambda outcome: outcome.done)
    done = sum(outcome.done for outcome in outcomes)
    return render(request, "fleet/acted.html", context | {"outcomes": outcomes, "done": done})


def _do(job: Job, typed: dict[str, Any], by: str, now: datetime) -> Outcome:
    match typed["deed"]:
        case deed if deed in (SAVEPOINT, STOP):
            return _save(job, by, now, stop=deed == STOP)
        case deed:
            return _label(job, typed["labels"], by, add=deed == LABEL)


def _save(job: Job, by: str, now: datetime, *, stop: bool) -> Outcome:
    try:
        request_savepoint(job, SavepointOrigin.MANUAL, by, now, stops_job=stop)
    except SavepointDeferred as deferred:
        return Outcome(job, False, str(deferred))
    return Outcome(job, True, "Stopping with a savepoint." if stop else "Savepoint requested.")


@transaction.atomic
def _label(job: Job, labels: dict[str, str], by: str, *, add: bool) -> Outcome:
    locked = Job.objects.select_for_update().get(pk=job.pk)
    was = dict(locked.labels)
    now = was | labels if add else {key: value for key, value in was.items() if labels.get(key) != value}
    if now == was:
        return Outcome(job, False, "It has them already." if add else "It has none of them.")
    Job.objects.filter(pk=job.pk).update(labels=now)
    audit.record(by, "job.automation", f"job {job.name}", "", was={"labels": was}, now={"labels": now})
    return Outcome(job, True, ", ".join(f"{key}={value}" for key, value in now.items()) or "No label any more.")
