"""How a job is started: the versions of that, and starting it with another: upgrade, rescale, back, a second one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from dashboard.forms.launch import CLONE, SAVE, LaunchForm
from dashboard.views.access import operator_required
from dashboard.views.job import find_job, job_context
from dashboard.views.restarts import offered_states
from monitoring import audit
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine_calls import Call, call_all
from monitoring.launches import remember_edit, what_changed
from monitoring.models import Job, LaunchVersion, RestartAttempt, Savepoint
from monitoring.programs import copy_of, keep
from monitoring.recovery.manual import AttemptOpen, BadLaunch, RestartRefused, change_and_restart, clone

FROM_STOP = "stop"
VERSIONS = 30


def launch(request: HttpRequest, pk: int) -> HttpResponse:
    """GET shows the record in force, or the version that `?version=` names; POST acts on what was typed."""
    if request.method == "POST":
        return change_launch(request, pk)
    job = find_job(pk)
    return _page(request, job, _form(request, job, None))


@operator_required
def change_launch(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = _form(request, job, request.POST)
    if not form.is_valid():
        return _page(request, job, form, status=422)
    by = request.user.get_username()
    try:
        if upload := form.cleaned_data["upload"]:
            form.spec["jar_id"] = _upload(job, upload.name, upload.read(), by)
        if form.cleaned_data["now"] == SAVE:
            return _save(request, job, form, by)
        attempt = _act(job, form, by)
    except EngineError as error:
        form.add_error("upload", f"The cluster did not take it: {error}")
    except BadLaunch as problem:
        form.add_error(problem.field if problem.field in form.fields else None, str(problem))
    except RestartRefused as refused:
        form.add_error(refused.field if refused.field in form.fields else None, f"Nothing was stopped. {refused}")
    except AttemptOpen as taken:
        form.add_error(None, f"Nothing was stopped. {taken}")
    else:
        return redirect("restart-progress", attempt.pk)
    return _page(request, job, form, status=422)


def _act(job: Job, form: LaunchForm, by: str) -> RestartAttempt:
    typed, now = form.cleaned_data, timezone.now()
    savepoint = _chosen(job, typed["state"])
    if typed["now"] == CLONE:
        if savepoint is None:
            raise RestartRefused("state", typed["state"], "a second job starts from a savepoint of this one")
        return clone(job, typed["name"], form.spec, savepoint, by, now)
    what = typed["note"].strip().rstrip(".") or _what_changes(dict(job.launch or {}), form.spec)
    return change_and_restart(job, form.spec, what, savepoint, by, now, goes_back=typed["goes_back"])


def _save(request: HttpRequest, job: Job, form: LaunchForm, by: str) -> HttpResponse:
    with transaction.atomic():
        version = remember_edit(job, form.spec, by, timezone.now())
        audit.record(by, "job.launch", f"job {job.name}", form.cleaned_data["note"], version=version.number)
    messages.success(request, f"Saved as version {version.number}. It counts from the next start.")
    return redirect("job-launch", job.pk)


def _upload(job: Job, name: str, content: bytes, by: str) -> str:
    """Its id on the cluster. A copy stays here, for the day on which the cluster has lost it."""

    async def act(client: FlinkClient) -> str:
        return await client.upload_jar(name, content)

    (answer,) = call_all([Call(job.cluster, act)])
    if isinstance(answer, EngineError):
        raise answer
    keep(job.cluster, answer, name, content, by, timezone.now())
    return answer


def _what_changes(was: dict[str, Any], now: dict[str, Any]) -> str:
    """As it goes on after "asked to"."""
    changed = what_changed(was, now)
    if changed == ["parallelism"]:
        return f"rescale it from {was.get('parallelism') or 'the default'} to {now.get('parallelism') or 'the default'}"
    return f"start it with another {', '.join(changed)}" if changed else "start it anew"


def _chosen(job: Job, key: str) -> Savepoint | None:
    """None: the savepoint that it is stopped with."""
    if not key or key == FROM_STOP:
        return None
    source = next((choice.source for choice in offered_states(job) if choice.key == key), None)
    if not isinstance(source, Savepoint):
        raise RestartRefused("state", key, "one of the states below is needed")
    return source


def _form(request: HttpRequest, job: Job, typed: Any) -> LaunchForm:
    number = (typed or request.GET).get("version", "")
    version = job.launch_versions.filter(number=number).first() if str(number).isdecimal() else None
    states = [(choice.key, choice.label) for choice in offered_states(job) if isinstance(choice.source, Savepoint)]
    if job.current_run is not None and job.current_run.live:
        states.insert(0, (FROM_STOP, "the savepoint that it is stopped with"))
    admin = bool(getattr(request.user, "is_superuser", False))
    options: dict[str, Any] = {"job": job, "states": states, "version": version, "admin": admin, "label_suffix": ""}
    return LaunchForm(typed, request.FILES, **options) if typed is not None else LaunchForm(**options)


def _page(request: HttpRequest, job: Job, form: LaunchForm, status: int = 200) -> HttpResponse:
    versions = list(job.launch_versions.prefetch_related("runs")[:VERSIONS])
    context = job_context(job, "configuration") | {
        "form": form,
        "versions": versions,
        "copy": copy_of(job.cluster, form.base.get("jar_id")),
        "in_force": next((each for each in versions if each.spec == job.launch), None),
        "chosen_version": (request.POST or request.GET).get("version", ""),
        "changes": _changes(versions),
    }
    return render(request, "job/launch.html", context, status=status)


def _changes(versions: list[LaunchVersion]) -> list[tuple[LaunchVersion, str]]:
    """Each version with what it changed of the one before it."""
    changes = [
        (new, _what_changes(old.spec, new.spec).removeprefix("start it with ")) for new, old in pairwise(versions)
    ]
    return [*changes, *((first, "the first known") for first in versions[-1:])]
