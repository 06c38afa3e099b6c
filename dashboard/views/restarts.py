"""Manual restarts: select the snapshot, see which rows are replayed, start, and watch the progress."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of
from dashboard.access.same_site import own_path
from dashboard.acts.shown import JobChanged, ShownRun, check_shown_run, repeat_hint
from dashboard.language import rendered
from dashboard.queries.facts import OPEN_ATTEMPT_STATES
from dashboard.queries.states import (
    changes_since,
    estimate_restart,
    newest_savepoint_of,
    offered_snapshot,
    offered_snapshots,
    preselected_snapshot,
    why_not_offered,
)
from dashboard.views.access import action, operator_required
from dashboard.views.job import find_job, job_context
from monitoring.models import AttemptState, Engine, RestartAttempt
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.recovery.manual import (
    CANCELABLE,
    STOPPED_WITH,
    AttemptOpen,
    BadLaunch,
    RestartRefused,
    cancel_attempt,
    has_nothing,
    require_control,
    restart_from,
)
from monitoring.recovery.replay import replayed
from monitoring.recovery.rows_written_again import Restores
from monitoring.recovery.run_again import run_again
from monitoring.savepoints.checking import can_be_checked
from monitoring.savepoints.storage_threads import StorageSilent

NEWEST_SAVEPOINT = "savepoint"  # the value of `from` in links of lists, which do not know the savepoint


def restarts(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    attempts = job.restart_attempts.select_related("old_run", "new_run").prefetch_related("steps")
    page = Paginator(attempts, 20).get_page(request.GET.get("page"))
    return render(request, "job/restarts.html", job_context(job, "restarts") | {"page": page})


def restart(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what a restart would stop and replay, or restart the job on POST."""
    if request.method == "POST":
        return start_restart(request, pk)
    job = find_job(pk)
    offer = offered_snapshots(job)
    wanted = request.GET.get("from", "")
    if wanted == NEWEST_SAVEPOINT and (newest := newest_savepoint_of(offer)) is not None:
        wanted = newest.key
    chosen = next((choice for choice in offer.choices if choice.key == wanted), preselected_snapshot(job, offer))
    context = job_context(job, "restarts")
    stopped_with = context.get("stopped_with")
    context["goes_on"] = bool(stopped_with and chosen and chosen.source == stopped_with)
    # The engine may delete this checkpoint while the job is stopped with a savepoint and takes new checkpoints.
    context["may_go"] = chosen and isinstance(chosen.source, str) and chosen.run == context["run"]
    context["unchecked"] = chosen and chosen.path and not can_be_checked(job, chosen.path)
    context["again"] = Restores(job).of(chosen.path) if chosen else None
    context["since"] = changes_since(job, chosen.run, chosen.taken_at) if chosen and not chosen.is_future else None
    context["estimate"] = estimate_restart(job)
    operator = context["operator"]
    context["startable"] = operator.source.restarts_jobs if operator else job.launch is not None
    context["back"] = _back(request, pk)
    extra = {"offer": offer, "chosen": chosen, "missing": wanted and (chosen is None or chosen.key != wanted)}
    return render(request, "job/restart.html", context | extra)


def changed_run(request: HttpRequest, pk: int) -> HttpResponse:
    """Render a warning if the job has changed since the page was rendered. Otherwise return an empty response."""
    job, shown, now = find_job(pk), ShownRun.read(request.GET), timezone.now()
    try:
        check_shown_run(job, shown, now)
    except JobChanged as moved:
        was = job.runs.filter(pk=shown.run_id).first() if shown and shown.run_id else None
        ended_at = was.ended_at if was else None
        return render(request, "job/moved_on.html", {"moved": moved, "ended_at": ended_at or now})
    return HttpResponse(status=204)


def replayed_rows(request: HttpRequest, pk: int) -> HttpResponse:
    """Render the number of rows that would be processed again. Only this part of the page needs the engine."""
    job = find_job(pk)
    rows = None
    with suppress(StorageSilent):  # the page reports that the storage does not answer
        chosen = offered_snapshot(job, request.GET.get("from", ""))
        if chosen and job.current_run:
            rows = replayed(job.current_run, chosen.taken_at, timezone.now())
    return render(request, "job/rows_again.html", {"rows": rows})


def _back(request: HttpRequest, pk: int) -> str:
    """Return the path of the page from which the reader came, which the links of the restart page keep as `back`."""
    for page in (request.GET.get("back", ""), request.headers.get("Referer", "")):
        path = own_path(request, page)
        if path and urlsplit(path).path not in (request.path, reverse("login")):
            return path
    return reverse("job", args=[pk])


@operator_required
def start_restart(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    wanted = request.POST.get("from", "")
    saved_first = request.POST.get("stop") != "cancel"
    back = own_path(request, request.POST.get("back", ""))
    kept = {"back": back} if back else {}
    again = {"from": wanted} | ({} if saved_first else {"stop": "cancel"}) | kept
    try:
        require_control(job)
        check_shown_run(job, ShownRun.read(request.POST), timezone.now())
        choice = offered_snapshot(job, wanted)
        if choice is None:
            messages.error(request, why_not_offered(job, wanted))
            return redirect(reverse("job-restart", args=[pk], query=kept))
        attempt = restart_from(job, choice.source, actor_of(request), timezone.now(), stop_first=saved_first)
    except JobChanged as moved:
        return _refused(request, pk, f"{moved} {repeat_hint()}", again)
    except StorageSilent as silent:
        return _refused(request, pk, SavepointReason.SENTENCE(clause=silent.reason), again)
    except (RestartRefused, BadLaunch, AttemptOpen) as refused:
        return _refused(request, pk, refused.reason, again)
    return redirect("restart-progress", attempt.pk)


@action
def run_job_again(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    try:
        check_shown_run(job, ShownRun.read(request.POST), timezone.now())
        attempt = run_again(job, actor_of(request), timezone.now())
    except JobChanged as moved:
        return _not_run(request, pk, f"{moved} {repeat_hint()}")
    except (RestartRefused, BadLaunch, AttemptOpen) as refused:
        return _not_run(request, pk, refused.reason)
    return redirect("restart-progress", attempt.pk)


def _not_run(request: HttpRequest, pk: int, why: Reason | str) -> HttpResponse:
    messages.error(request, _("The job was not started. %(refused)s") % {"refused": rendered(why)})
    return redirect("job-runs", pk)


def _refused(request: HttpRequest, pk: int, why: Reason | str, again: dict[str, str]) -> HttpResponse:
    """Redirect to the restart page with an error message. `again` has the query parameters that restore the choice."""
    messages.error(request, _("Nothing was stopped or started. %(refused)s") % {"refused": rendered(why)})
    return redirect(reverse("job-restart", args=[pk], query=again))


@action
def cancel_restart(request: HttpRequest, pk: int) -> HttpResponse:
    attempt = get_object_or_404(RestartAttempt.objects.select_related("job"), pk=pk)
    if cancel_attempt(attempt, actor_of(request), timezone.now()):
        messages.success(request, _("The restart was canceled. Nothing was stopped or started."))
    else:
        messages.warning(
            request,
            _("The restart can no longer be canceled: the job is stopping or starting, or the restart has ended."),
        )
    return redirect("restart-progress", pk)


def progress(request: HttpRequest, pk: int) -> HttpResponse:
    attempts = RestartAttempt.objects.select_related("job__cluster", "old_run", "new_run", "savepoint", "way_back")
    attempt = get_object_or_404(attempts.prefetch_related("steps"), pk=pk)
    context = {
        "attempt": attempt,
        "job": attempt.job,
        "under_way": attempt.state in OPEN_ATTEMPT_STATES,
        "goes_on": _ended_with(attempt),
        "stopped_with": STOPPED_WITH,
        "cancelable": attempt.state in CANCELABLE,
        "submit_again": _submit_again(attempt),
        "section": "fleet",
        "now": timezone.now(),
    }
    live = request.headers.get("HX-Target") == "restart-live"
    return render(request, "job/progress_live.html" if live else "job/progress.html", context)


def _submit_again(attempt: RestartAttempt) -> str:
    """Return the URL of the filled form to submit a job whose first start failed, or "" if the job has run."""
    has_failed = attempt.state in (AttemptState.FAILED, AttemptState.CANCELED)
    if not has_failed or attempt.job.cluster.engine != Engine.SPARK or not has_nothing(attempt.job):
        return ""
    return f"{reverse('cluster-submit', args=[attempt.job.cluster_id])}?again={attempt.pk}"


def _ended_with(attempt: RestartAttempt) -> bool:
    """Return whether the new run starts from the savepoint that stopped the old run, so that nothing is replayed."""
    savepoint = attempt.savepoint
    return bool(savepoint and savepoint.stops_job and savepoint.run_id == attempt.old_run_id)
