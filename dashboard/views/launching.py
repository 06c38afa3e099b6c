"""The launch record of a job, its versions, and a start with a changed record: upgrade, rescale, roll-back or clone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import access_of, actor_of
from dashboard.access.roles import Role
from dashboard.acts.intents import Intent
from dashboard.acts.launches import (
    NotStarted,
    describe_change,
    launch_form,
    program_form,
    save_launch,
    start_through_operator,
    start_with_launch,
    upload,
)
from dashboard.acts.shown import JobChanged, ShownRun, check_shown_run, repeat_hint
from dashboard.forms.editing import for_editing
from dashboard.forms.launch import REPLACE, SAVE, LaunchForm, StartForm
from dashboard.forms.resource_program import ResourceProgramForm
from dashboard.language import rendered
from dashboard.views.access import operator_required
from dashboard.views.job import find_job, job_context
from monitoring.engine.errors import EngineError
from monitoring.kubernetes.job_program import read_program
from monitoring.kubernetes.job_resources import resource_of
from monitoring.models import FoundResource, Job, LaunchVersion
from monitoring.programs import copy_of
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.manual import AttemptOpen
from monitoring.recovery.rows_written_again import of_run

VERSIONS = 30


def launch(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the current launch record or the version in `?version=`, or process the form on POST."""
    if request.method == "POST":
        return change_launch(request, pk)
    job = find_job(pk)
    if (row := resource_of(job)) is not None:
        return _show_program(request, job, row)
    return _page(request, job, _form(request, job, None))


@operator_required
def change_launch(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    if (row := resource_of(job)) is not None:
        return _change_program(request, job, row)
    form = _form(request, job, request.POST)
    if not form.is_valid():
        return _page(request, job, form, status=422)
    by = actor_of(request)
    with _refusals_in(form):
        if form.cleaned_data["now"] == REPLACE:
            check_shown_run(job, ShownRun.read(request.POST), timezone.now())
        if sent := form.cleaned_data["upload"]:
            form.spec["jar_id"] = upload(job, sent.name, sent.read(), by, Intent())
        if form.cleaned_data["now"] == SAVE:
            return _save(request, job, form, by)
        return redirect("restart-progress", start_with_launch(job, form, by).pk)
    return _page(request, job, form, status=422)


def _change_program(request: HttpRequest, job: Job, row: FoundResource) -> HttpResponse:
    """Let the Flink operator replace the job with a changed program."""
    try:
        program = read_program(row)
    except EngineError as silent:
        return _program_page(request, job, None, silent, status=422)
    form = program_form(job, row, program, access_of(request).may(Role.ADMIN), request.POST)
    if not form.is_valid():
        return _program_page(request, job, form, status=422)
    with _refusals_in(form):
        check_shown_run(job, ShownRun.read(request.POST), timezone.now())
        return redirect("restart-progress", start_through_operator(job, form, actor_of(request)).pk)
    return _program_page(request, job, form, status=422)


@contextmanager
def _refusals_in(form: StartForm) -> Iterator[None]:
    """Add an error to the form if the job cannot be started with it."""
    try:
        yield
    except JobChanged as moved:
        form.add_error(None, _("Nothing was stopped. %(moved)s") % {"moved": f"{moved} {repeat_hint()}"})
    except NotStarted as refused:
        form.add_error(refused.field if refused.field in form.fields else None, str(refused))
    except AttemptOpen as taken:
        form.add_error(None, _("Nothing was stopped. %(taken)s") % {"taken": rendered(taken.reason)})


def _show_program(request: HttpRequest, job: Job, row: FoundResource) -> HttpResponse:
    """Show the program in the job's resource, or why it could not be read.

    Must not be called in a transaction, because it waits for Kubernetes.
    """
    try:
        program = read_program(row)
    except EngineError as silent:
        return _program_page(request, job, None, silent)
    return _program_page(request, job, program_form(job, row, program, access_of(request).may(Role.ADMIN)))


def _program_page(
    request: HttpRequest,
    job: Job,
    form: ResourceProgramForm | None,
    silent: EngineError | None = None,
    status: int = 200,
) -> HttpResponse:
    context = job_context(job, "configuration") | {"form": form, "silent": silent.reason if silent else ""}
    return render(request, "job/resource_program.html", context, status=status)


@transaction.atomic
def _save(request: HttpRequest, job: Job, form: LaunchForm, by: str) -> HttpResponse:
    """Save the launch record, unless somebody else has saved another one during the upload of the program."""
    stored = launch_form(for_editing(Job.objects.all()).get(pk=job.pk), None, form.admin)
    if changes := stored.changes_since(request.POST):
        form.shown_values = stored.shown_values
        raise NotStarted("", changes)
    version = save_launch(job, form, by)
    messages.success(
        request, _("Saved as version %(number)s. It takes effect at the next start.") % {"number": version.number}
    )
    return redirect("job-launch", job.pk)


def _form(request: HttpRequest, job: Job, typed: Any) -> LaunchForm:
    number = (typed or request.GET).get("version", "")
    version = job.launch_versions.filter(number=number).first() if str(number).isdecimal() else None
    return launch_form(job, version, access_of(request).may(Role.ADMIN), typed, request.FILES)


def _page(request: HttpRequest, job: Job, form: LaunchForm, status: int = 200) -> HttpResponse:
    versions = list(job.launch_versions.prefetch_related("runs")[:VERSIONS])
    context = job_context(job, "configuration") | {
        "form": form,
        "versions": versions,
        "copy": copy_of(job.cluster, form.base.get("jar_id")),
        "in_force": next((each for each in versions if each.spec == job.launch), None),
        "chosen_version": (request.POST or request.GET).get("version", ""),
        "changes": _changes(versions),
        "again": of_run(job.current_run),
    }
    return render(request, "job/launch.html", context, status=status)


def _changes(versions: list[LaunchVersion]) -> list[tuple[LaunchVersion, Reason | str]]:
    """Return each version with its differences from the previous version."""
    changes = ((new, describe_change(old.spec, new.spec)) for new, old in pairwise(versions))
    return [
        *((new, what.args["launch"] if what.code is RecoveryReason.START_WITH else what) for new, what in changes),
        *((first, _("first known version")) for first in versions[-1:]),
    ]
