"""Submit a new job: its program, and the state that it starts from."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from dashboard.access.guard import actor_of
from dashboard.acts.intents import Intent
from dashboard.acts.launches import NotStarted
from dashboard.acts.submitting import check_usable, fingerprint, look_at, submit_job
from dashboard.forms.submit import CheckpointsForm, SubmitForm
from dashboard.views.access import admin_action, admin_required
from dashboard.views.clusters import find_cluster
from monitoring.engine.answers import FoundCheckpoint
from monitoring.models import Cluster, Engine
from monitoring.recovery.manual import AttemptOpen


@admin_required
def submit(request: HttpRequest, pk: int) -> HttpResponse:
    cluster = _job_manager(pk)
    if request.method != "POST":
        return _page(request, cluster, SubmitForm(cluster=cluster, label_suffix=""))
    form = SubmitForm(request.POST, request.FILES, cluster=cluster, label_suffix="")
    found: Sequence[FoundCheckpoint] = ()
    if form.is_valid():
        try:
            if locations := form.origin.imports:
                found = look_at(cluster, locations)
                _check_seen(found, request.POST.get("found", ""))
            attempt = submit_job(cluster, form, actor_of(request), Intent())
        except NotStarted as refused:
            form.add_error(refused.field if refused.field in form.fields else None, str(refused))
        except AttemptOpen as taken:
            form.add_error("name", str(taken))
        else:
            return redirect("restart-progress", attempt.pk)
    return _page(request, cluster, form, found)


@admin_action
def look(request: HttpRequest, pk: int) -> HttpResponse:
    """What is at the typed locations, for the page to show before anything starts."""
    form = CheckpointsForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _found(request, (), " ".join(str(each) for errors in form.errors.values() for each in errors))
    if not form.cleaned_data["checkpoints"]:
        return _found(request, ())
    try:
        return _found(request, look_at(_job_manager(pk), form.cleaned_data["checkpoints"]))
    except NotStarted as refused:
        return _found(request, (), str(refused))


def _check_seen(found: Sequence[FoundCheckpoint], seen: str) -> None:
    check_usable(found)
    if seen != fingerprint(found):
        raise NotStarted("checkpoints", "Check what was found at the checkpoint location, then submit the job again.")


def _job_manager(pk: int) -> Cluster:
    cluster = find_cluster(pk)
    if cluster.engine != Engine.SPARK:
        raise Http404
    return cluster


def _found(request: HttpRequest, found: Sequence[FoundCheckpoint], problem: str = "") -> HttpResponse:
    context = {"found": found, "problem": problem, "fingerprint": fingerprint(found)}
    return render(request, "clusters/found_checkpoints.html", context)


def _page(
    request: HttpRequest, cluster: Cluster, form: SubmitForm, found: Sequence[FoundCheckpoint] = ()
) -> HttpResponse:
    context = {"section": "clusters", "cluster": cluster, "form": form, "found": found}
    context["fingerprint"] = fingerprint(found)
    return render(request, "clusters/submit.html", context, status=422 if form.is_bound else 200)
