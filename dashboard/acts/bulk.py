"""One action for several jobs. It succeeds or fails for each job separately, with a text for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from dashboard.access.guard import Access, refusal
from dashboard.access.roles import Role
from dashboard.acts.shown import JobChanged, ShownRun, check_shown_run
from dashboard.forms.bulk import LABEL, SAVEPOINT, STOP
from dashboard.language import rendered
from monitoring import audit
from monitoring.models import Job, SavepointOrigin
from monitoring.savepoints.request import SavepointDeferred, request_savepoint


@dataclass(frozen=True)
class Outcome:
    job: Job
    done: bool
    text: str


def act_on_all(
    typed: Mapping[str, Any], access: Access, by: str, now: datetime, shown: Mapping[int, ShownRun] | None = None
) -> list[Outcome]:
    """Carry out the action for each job and return the outcomes, those that failed first.

    Args:
        typed: the cleaned data of BulkForm.
        access: the permissions of the caller.
        by: the actor for the audit log.
        now: the current time.
        shown: the run that the caller saw, by the key of the job.
    """
    shown_runs = shown or {}
    outcomes = [
        _apply(job, typed, by, now, shown_runs.get(job.pk))
        if access.may_on(Role.OPERATOR, job.pk, job.cluster_id)
        else Outcome(job, False, refusal(access, Role.OPERATOR))
        for job in typed["jobs"]
    ]
    return sorted(outcomes, key=lambda outcome: outcome.done)


def _apply(job: Job, typed: Mapping[str, Any], by: str, now: datetime, shown: ShownRun | None) -> Outcome:
    match typed["deed"]:
        case action if action in (SAVEPOINT, STOP):
            return _save(job, by, now, shown if action == STOP else None, stop=action == STOP)
        case action:
            return _label(job, typed["labels"], by, add=action == LABEL)


def _save(job: Job, by: str, now: datetime, shown: ShownRun | None, *, stop: bool) -> Outcome:
    try:
        check_shown_run(job, shown, now)
        request_savepoint(job, SavepointOrigin.MANUAL, by, now, stops_job=stop)
    except JobChanged as moved:
        return Outcome(job, False, str(moved))
    except SavepointDeferred as deferred:
        return Outcome(job, False, rendered(deferred.sentence))
    return Outcome(job, True, _("Stopping with a savepoint.") if stop else _("Savepoint requested."))


@transaction.atomic
def _label(job: Job, labels: dict[str, str], by: str, *, add: bool) -> Outcome:
    locked = Job.objects.select_for_update().get(pk=job.pk)
    was = dict(locked.labels)
    now = was | labels if add else {key: value for key, value in was.items() if labels.get(key) != value}
    if now == was:
        why = _("The job already has these labels.") if add else _("The job has none of these labels.")
        return Outcome(job, False, why)
    Job.objects.filter(pk=job.pk).update(labels=now)
    audit.record(by, "job.automation", f"job {job.name}", "", was={"labels": was}, now={"labels": now})
    return Outcome(job, True, ", ".join(f"{key}={value}" for key, value in now.items()) or _("No labels."))
