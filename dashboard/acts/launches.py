"""Save the launch record of a job, and start the job with a changed record: upgrade, rescale, roll-back or clone."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.acts.intents import Intent
from dashboard.forms.launch import CLONE, LaunchForm
from dashboard.forms.resource_program import ResourceProgramForm
from dashboard.language import rendered
from dashboard.queries.states import FROM_STOP, offered_savepoints
from monitoring import audit
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine_calls import Call, call_all
from monitoring.kubernetes.job_program import Record
from monitoring.kubernetes.job_resources import JobResource
from monitoring.launches import remember_edit, what_changed
from monitoring.models import FoundResource, Job, LaunchVersion, RestartAttempt, Savepoint
from monitoring.programs import keep
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.manual import BadLaunch, RestartRefused, change_and_restart, change_through_operator, clone


class NotStarted(Exception):
    """The action was refused and stopped nothing. `field` is the form field to correct, or "" if there is none."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def launch_form(
    job: Job, version: LaunchVersion | None, admin: bool, typed: Any = None, files: Any = None
) -> LaunchForm:
    """Return the form with the savepoints that the job can start from. It is bound if `typed` is not None."""
    states = [(choice.key, choice.label) for choice in offered_savepoints(job)]
    options: dict[str, Any] = {"job": job, "states": states, "version": version, "admin": admin, "label_suffix": ""}
    return LaunchForm(typed, files, **options) if typed is not None else LaunchForm(**options)


@transaction.atomic
def save_launch(job: Job, form: LaunchForm, by: str) -> LaunchVersion:
    """Save the form as a new version of the launch record. It takes effect at the next start."""
    version = remember_edit(job, form.spec, by, timezone.now())
    audit.record(by, "job.launch", f"job {job.name}", form.cleaned_data["note"], version=version.number)
    return version


def start_with_launch(job: Job, form: LaunchForm, by: str) -> RestartAttempt:
    """Stop the job and start it with the launch record in the form, or start a second job.

    Raises:
        NotStarted: a value is not allowed, or the chosen savepoint cannot be used.
        AttemptOpen: another restart of the job is in progress.
    """
    typed, now = form.cleaned_data, timezone.now()
    try:
        savepoint = _chosen(job, typed["state"])
        if typed["now"] == CLONE:
            if savepoint is None:
                raise RestartRefused("state", typed["state"], Why.SAVEPOINT_TO_CLONE_NEEDED())
            return clone(job, typed["name"], form.spec, savepoint, by, now)
        what, note = describe_change(dict(job.launch or {}), form.spec), typed["note"].strip().rstrip(".")
        return change_and_restart(job, form.spec, what, savepoint, by, now, note=note, goes_back=typed["goes_back"])
    except BadLaunch as problem:
        raise NotStarted(problem.field, rendered(problem.reason)) from problem
    except RestartRefused as refused:
        raise _not_started(refused) from refused


def _not_started(refused: RestartRefused) -> NotStarted:
    return NotStarted(refused.field, _("Nothing was stopped. %(refused)s") % {"refused": rendered(refused.reason)})


def program_form(job: Job, row: FoundResource, program: Record, admin: bool, typed: Any = None) -> ResourceProgramForm:
    """Return the form to change `program`, which the job's resource has now."""
    states = [(choice.key, choice.label) for choice in offered_savepoints(job)]
    resource = JobResource.of(row)
    return ResourceProgramForm(
        typed, job=job, states=states, admin=admin, resource=resource, program=program, label_suffix=""
    )


def start_through_operator(job: Job, form: ResourceProgramForm, by: str) -> RestartAttempt:
    """Let the Flink operator replace the job with the program in the form. Raises as `start_with_launch`."""
    typed, change = form.cleaned_data, form.change
    if change is None:
        raise ValueError("the form was not validated")
    what, note = describe_change(dict(change.was), dict(change.now)), typed["note"].strip().rstrip(".")
    try:
        savepoint = _chosen(job, typed["state"])
        options: dict[str, Any] = {"note": note, "goes_back": typed["goes_back"]}
        return change_through_operator(job, change, what, savepoint, by, timezone.now(), **options)
    except RestartRefused as refused:
        raise _not_started(refused) from refused


def upload(job: Job, name: str, content: bytes, by: str, intent: Intent) -> str:
    """Upload a program to the cluster, and return the id that the cluster gave it.

    Waymark keeps a copy, in case the cluster loses the program.

    Raises:
        NotStarted: the cluster refused the program or did not respond.
    """
    target, digest = f"job {job.name}", hashlib.sha256(content).hexdigest()
    audit.record(by, "job.program-sent", target, name=name, size=len(content), sha256=digest)
    intent.commit()

    async def act(client: FlinkClient) -> str:
        return await client.upload_jar(name, content)

    (answer,) = call_all([Call(job.cluster, act)])
    if isinstance(answer, EngineError):
        audit.record(by, "job.program-refused", target, name=name, why=str(answer))
        why = _("The program could not be uploaded: %(answer)s") % {"answer": rendered(answer.reason)}
        raise NotStarted("upload", why) from answer
    keep(job.cluster, answer, name, content, by, timezone.now())
    audit.record(by, "job.program", target, name=name, jar_id=answer, size=len(content), sha256=digest)
    return answer


def describe_change(was: dict[str, Any], now: dict[str, Any]) -> Reason:
    """Return the change of the launch record as a reason, such as "rescale it from 2 to 4"."""
    changed = what_changed(was, now) if was else []
    if changed == ["parallelism"]:
        before, after = (each.get("parallelism") or Why.DEFAULT_PARALLELISM() for each in (was, now))
        return Why.RESCALE(was=before, now=after)
    return Why.START_WITH(launch=Why.ANOTHER_LAUNCH(fields=changed)) if changed else Why.START_ANEW()


def _chosen(job: Job, key: str) -> Savepoint | None:
    """Return the savepoint with this key, or None for the savepoint that will stop the job."""
    if not key or key == FROM_STOP:
        return None
    source = next((choice.source for choice in offered_savepoints(job) if choice.key == key), None)
    if not isinstance(source, Savepoint):
        raise RestartRefused("state", key, Why.NOT_OFFERED())
    return source
