"""Restarting a job by hand: choose the state, see what it costs, act, and watch until the job runs again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from dashboard.access.guard import actor_of
from dashboard.queries.facts import OPEN_ATTEMPT_STATES
from dashboard.queries.since import happened_since
from dashboard.queries.states import Retained, read_retained
from dashboard.views.access import action, operator_required
from dashboard.views.job import find_job, job_context
from monitoring.models import Job, RestartAttempt, Run, Savepoint, SavepointState
from monitoring.recovery.manual import CANCELABLE, AttemptOpen, BadLaunch, RestartRefused, cancel_attempt, restart_from
from monitoring.recovery.replay import replayed
from monitoring.recovery.states import restore_candidates

SAVEPOINTS = 20


@dataclass(frozen=True)
class Choice:
    """A state that the job could be started from. `key` is what the form sends back."""

    key: str
    label: str
    taken_at: datetime
    size: int | None
    path: str
    source: Savepoint | str  # as restart_from takes it
    run: Run | None = None  # the one that took it
    note: str = ""
    problem: str = ""  # what was wrong with its files when last looked at


def restarts(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    attempts = job.restart_attempts.select_related("old_run", "new_run").prefetch_related("steps")
    page = Paginator(attempts, 20).get_page(request.GET.get("page"))
    return render(request, "job/restarts.html", job_context(job, "restarts") | {"page": page})


def restart(request: HttpRequest, pk: int) -> HttpResponse:
    """GET shows what would be stopped and replayed; POST does it."""
    if request.method == "POST":
        return start_restart(request, pk)
    job = find_job(pk)
    choices = offered_states(job)
    wanted = request.GET.get("from", "")
    chosen = next((choice for choice in choices if choice.key == wanted), _best(job, choices))
    context = job_context(job, "restarts")
    stopped_with = context.get("stopped_with")
    context["goes_on"] = bool(stopped_with and chosen and chosen.source == stopped_with)
    context["since"] = happened_since(job, chosen.run, chosen.taken_at) if chosen else None
    extra = {"choices": choices, "chosen": chosen, "missing": wanted and (chosen is None or chosen.key != wanted)}
    return render(request, "job/restart.html", context | extra)


def rows_again(request: HttpRequest, pk: int) -> HttpResponse:
    """The part of the page that has to ask the engine."""
    job = find_job(pk)
    chosen = next((choice for choice in offered_states(job) if choice.key == request.GET.get("from")), None)
    rows = None
    if chosen and job.current_run:
        rows = replayed(job.current_run, chosen.taken_at, timezone.now())
    return render(request, "job/rows_again.html", {"rows": rows})


@operator_required
def start_restart(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    choice = next((c for c in offered_states(job) if c.key == request.POST.get("from")), None)
    if choice is None:
        messages.error(request, "From: choose one of the states below; the one you sent is not offered (any more).")
        return redirect("job-restart", pk)
    saved_first = request.POST.get("stop") != "cancel"
    try:
        attempt = restart_from(job, choice.source, actor_of(request), timezone.now(), stop_first=saved_first)
    except (RestartRefused, BadLaunch, AttemptOpen) as refused:
        messages.error(request, f"Nothing was stopped or started. {refused}")
        return redirect("job-restart", pk)
    return redirect("restart-progress", attempt.pk)


@action
def cancel_restart(request: HttpRequest, pk: int) -> HttpResponse:
    attempt = get_object_or_404(RestartAttempt.objects.select_related("job"), pk=pk)
    if cancel_attempt(attempt, actor_of(request), timezone.now()):
        messages.success(request, "Canceled. Nothing was stopped or started.")
    else:
        messages.warning(request, "Too late: the job is being stopped or started already, or the restart has ended.")
    return redirect("restart-progress", pk)


def progress(request: HttpRequest, pk: int) -> HttpResponse:
    attempts = RestartAttempt.objects.select_related("job__cluster", "old_run", "new_run", "savepoint", "way_back")
    attempt = get_object_or_404(attempts.prefetch_related("steps"), pk=pk)
    context = {
        "attempt": attempt,
        "job": attempt.job,
        "under_way": attempt.state in OPEN_ATTEMPT_STATES,
        "goes_on": _ended_with(attempt),
        "cancelable": attempt.state in CANCELABLE,
        "section": "fleet",
        "now": timezone.now(),
    }
    live = request.headers.get("HX-Target") == "restart-live"
    return render(request, "job/progress_live.html" if live else "job/progress.html", context)


def _ended_with(attempt: RestartAttempt) -> bool:
    """The old run ended with the very savepoint that the new one begins with: nothing is replayed."""
    savepoint = attempt.savepoint
    return bool(savepoint and savepoint.stops_job and savepoint.run_id == attempt.old_run_id)


def offered_states(job: Job) -> list[Choice]:
    """Completed savepoints, and the newest checkpoints that outlive their run, newest first."""
    completed = job.savepoints.filter(state=SavepointState.COMPLETED).exclude(path="")
    savepoints = completed.select_related("checkpoint", "run__launch_version")
    kept = savepoints.exclude(checkpoint__discarded=True)[:SAVEPOINTS]
    choices = [*map(_savepoint, kept), *map(_checkpoint, read_retained(job))]
    return sorted(choices, key=lambda choice: choice.taken_at, reverse=True)


def _best(job: Job, choices: list[Choice]) -> Choice | None:
    """What the automation would take; else the newest that is not known to be damaged."""
    sound = [choice for choice in choices if not choice.problem] or choices
    offered = {choice.path: choice for choice in reversed(sound)}
    best = (offered[state.path] for state in restore_candidates(job) if state.path in offered)
    return next(best, sound[0] if sound else None)


def _savepoint(savepoint: Savepoint) -> Choice:
    checkpoint = savepoint.checkpoint
    label = f"Savepoint {checkpoint.checkpoint_id}" if checkpoint else f"Savepoint {_own_part(savepoint.path)}"
    taken_at = checkpoint.triggered_at if checkpoint else savepoint.requested_at
    return Choice(
        key=f"savepoint-{savepoint.pk}",
        label=label,
        taken_at=taken_at,
        size=savepoint.size,
        path=savepoint.path,
        source=savepoint,
        run=savepoint.run,
        note=savepoint.note,
        problem=savepoint.problem,
    )


def _own_part(path: str) -> str:
    return path.rstrip("/").rsplit("/", maxsplit=1)[-1].removeprefix("savepoint-")


def _checkpoint(retained: Retained) -> Choice:
    checkpoint = retained.checkpoint
    return Choice(
        key=f"checkpoint-{checkpoint.pk}",
        label=f"Checkpoint {checkpoint.checkpoint_id}",
        taken_at=checkpoint.triggered_at,
        size=checkpoint.state_size,
        path=checkpoint.external_path,
        source=checkpoint.external_path,
        run=checkpoint.run,
        problem=retained.problem,
    )
