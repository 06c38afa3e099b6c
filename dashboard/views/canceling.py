"""Cancel a job without a savepoint, from a page that shows which state is lost."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of
from dashboard.acts.canceling import CancelUnknown, NotCanceled, cancel_job
from dashboard.acts.intents import Intent
from dashboard.acts.shown import JobChanged, ShownRun, repeat_hint
from dashboard.forms.note import ReasonForm
from dashboard.queries.states import remaining_snapshot
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring.models import Job, RunState
from monitoring.recovery.candidates import retains


def confirm_cancel(request: HttpRequest, pk: int) -> HttpResponse:
    """Show which state would be lost, or cancel the job on POST."""
    if request.method == "POST":
        return cancel_run(request, pk)
    return _page(request, find_job(pk), ReasonForm(label_suffix=""))


@action
def cancel_run(request: HttpRequest, pk: int) -> HttpResponse:
    job, form = find_job(pk), ReasonForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _page(request, job, form, status=422)
    # A request without the hidden fields belongs to no run, so it is refused.
    shown = ShownRun.read(request.POST) or ShownRun(None)
    try:
        run = cancel_job(job, actor_of(request), form.cleaned_data["reason"], Intent(), shown)
    except JobChanged as moved:
        return _refused(request, pk, f"{moved} {repeat_hint()}")
    except NotCanceled as refused:
        return _refused(request, pk, str(refused))
    except CancelUnknown as unknown:
        messages.warning(request, str(unknown))
        return redirect("job", pk)
    messages.success(request, _("The cluster accepted the request to cancel run %(number)s.") % {"number": run.number})
    return redirect("job", pk)


def _refused(request: HttpRequest, pk: int, why: str) -> HttpResponse:
    messages.error(request, _("Nothing was canceled. %(why)s") % {"why": why})
    return redirect("job-cancel", pk)


def _page(request: HttpRequest, job: Job, form: ReasonForm, status: int = 200) -> HttpResponse:
    run = job.current_run
    context = job_context(job, "savepoints") | {
        "form": form,
        "remaining": remaining_snapshot(job),
        "deletes_checkpoints": run is not None and not retains(RunState(run.state), run.checkpoint_config),
        "cancelable": run is not None and run.live and run.state != RunState.CANCELLING,
    }
    return render(request, "job/cancel.html", context, status=status)
