"""Submit a new job with its program and the snapshot from which it starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of
from dashboard.acts.intents import Intent
from dashboard.acts.launches import NotStarted
from dashboard.acts.submitting import (
    check_savepoint,
    check_usable,
    find_checkpoints_at,
    fingerprint,
    submit_job,
    validate_savepoint_at,
)
from dashboard.forms.submit import CheckpointsForm, SavepointForm, SubmitForm
from dashboard.language import rendered
from dashboard.views.access import admin_action, admin_required
from dashboard.views.clusters import find_cluster
from monitoring.engine.answers import FoundCheckpoint, SavepointValidation
from monitoring.models import Cluster, Engine, RestartAttempt
from monitoring.recovery.manual import AttemptOpen, Origin, has_nothing

# The initial configuration: without a checkpoint interval, a job takes no checkpoints.
_USUAL = "execution.checkpointing.interval: 1min"


@admin_required
def submit(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the form, or submit the job on POST.

    The parameter `again` is the key of a failed first start, whose values fill in the form.
    """
    cluster = _job_manager(pk)
    options: dict[str, Any] = {"cluster": cluster, "earlier": _first_start(request, cluster), "label_suffix": ""}
    if request.method != "POST":
        return _page(request, cluster, SubmitForm(initial={"configuration": _USUAL}, **options))
    form = SubmitForm(request.POST, request.FILES, **options)
    found: Sequence[FoundCheckpoint] = ()
    snapshot: SavepointValidation | None = None
    origin = form.origin if form.is_valid() else Origin()
    if not form.errors:
        try:
            if origin.imports:
                found = find_checkpoints_at(cluster, origin.imports)
                _require_confirmed(found, request.POST.get("found", ""))
            elif origin.path:
                snapshot = validate_savepoint_at(cluster, origin.path, form.spec["entry_class"])
                _require_warned(snapshot, origin.path, request.POST.get("warned", ""))
            attempt = submit_job(cluster, form, actor_of(request), Intent(), found)
        except NotStarted as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        except AttemptOpen as taken:
            form.add_error("name", rendered(taken.reason))
        else:
            return redirect("restart-progress", attempt.pk)
    return _page(request, cluster, form, found=found, snapshot=snapshot, path=origin.path)


@admin_action
def find_checkpoints(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the checkpoints at the locations in the form, before the job is submitted."""
    form = CheckpointsForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _found(request, (), " ".join(str(each) for errors in form.errors.values() for each in errors))
    if not form.cleaned_data["checkpoints"]:
        return _found(request, ())
    try:
        return _found(request, find_checkpoints_at(_job_manager(pk), form.cleaned_data["checkpoints"]))
    except NotStarted as refused:
        return _found(request, (), str(refused))


@admin_action
def validate_savepoint(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the savepoint at the location in the form, before the job is submitted."""
    form = SavepointForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _snapshot(request, None, problem=" ".join(str(each) for each in form.errors["savepoint"]))
    if not (path := form.cleaned_data["savepoint"]):
        return _snapshot(request, None)
    try:
        found = validate_savepoint_at(_job_manager(pk), path, request.POST.get("entry_class", "").strip())
        return _snapshot(request, found, path)
    except NotStarted as refused:
        return _snapshot(request, None, problem=str(refused))


def _require_warned(found: SavepointValidation | None, path: str, warned: str) -> None:
    check_savepoint(found)
    if found is not None and found.written_again and warned != path:
        raise NotStarted("savepoint", _("Check which queries write rows again, then submit the job again."))


def _require_confirmed(found: Sequence[FoundCheckpoint], confirmed: str) -> None:
    check_usable(found)
    if confirmed != fingerprint(found):
        why = _("Check what was found at the checkpoint location, then submit the job again.")
        raise NotStarted("checkpoints", why)


def _first_start(request: HttpRequest, cluster: Cluster) -> RestartAttempt | None:
    number = request.GET.get("again", "")
    starts = RestartAttempt.objects.filter(job__cluster=cluster).select_related("job__current_run")
    start = starts.filter(pk=int(number)).first() if number.isdecimal() else None
    return start if start and has_nothing(start.job) else None


def _job_manager(pk: int) -> Cluster:
    cluster = find_cluster(pk)
    if cluster.engine != Engine.SPARK:
        raise Http404
    return cluster


def _found(request: HttpRequest, found: Sequence[FoundCheckpoint], problem: str = "") -> HttpResponse:
    context = {"found": found, "problem": problem, "fingerprint": fingerprint(found)}
    return render(request, "clusters/found_checkpoints.html", context)


def _snapshot(
    request: HttpRequest, snapshot: SavepointValidation | None, path: str = "", problem: str = ""
) -> HttpResponse:
    context = {"snapshot": snapshot, "problem": problem, "path": path}
    return render(request, "clusters/found_savepoint.html", context)


def _page(request: HttpRequest, cluster: Cluster, form: SubmitForm, **shown: Any) -> HttpResponse:
    context = {"section": "clusters", "cluster": cluster, "form": form, **shown}
    context["fingerprint"] = fingerprint(shown.get("found", ()))
    return render(request, "clusters/submit.html", context, status=422 if form.is_bound else 200)
