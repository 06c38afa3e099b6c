"""One action for several jobs that were selected on the fleet page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from dashboard.access.guard import access_of, actor_of, reach_at, require_on_any
from dashboard.access.roles import Role
from dashboard.acts.bulk import Outcome, act_on_all
from dashboard.acts.shown import ShownRun
from dashboard.forms.bulk import ACTIONS, STOP, BulkForm
from dashboard.queries.facts import jobs_with_runs
from dashboard.queries.fleet import matching_jobs
from dashboard.views.fleet import selection_of
from monitoring.models import Job

_ACTED = "acted_on_several"


@require_http_methods(["GET", "HEAD", "POST"])
def several(request: HttpRequest) -> HttpResponse:
    """Act on POST, and show the outcome on GET.

    POST redirects to the outcome, so that a reload or the back button does not repeat the action.
    """
    return act(request) if request.method == "POST" else acted(request)


def act(request: HttpRequest) -> HttpResponse:
    """Act on the selected jobs. An action that stops jobs is confirmed first, on a page with their names.

    The parameter `matching` has the filters of the list and selects all matching jobs, also those on other pages.
    """
    require_on_any(request, Role.OPERATOR)
    form = BulkForm(_sent(request), offered=reach_at(request).narrow(jobs_with_runs()))
    if not form.is_valid():
        for name, errors in form.errors.items():
            messages.error(
                request,
                _("%(label)s: %(errors)s No job was changed.")
                % {"label": form.fields[name].label, "errors": " ".join(map(str, errors))},
            )
        return redirect("fleet")
    typed = form.cleaned_data
    if typed["deed"] == STOP and not typed["confirmed"]:
        return render(request, "fleet/confirm.html", _page(typed["deed"]) | {"jobs": typed["jobs"]})
    shown = _shown(request, typed["jobs"])
    outcomes = act_on_all(typed, access_of(request), actor_of(request), timezone.now(), shown)
    stored_outcomes = [(outcome.job.pk, outcome.done, outcome.text) for outcome in outcomes]
    request.session[_ACTED] = {"deed": typed["deed"], "outcomes": stored_outcomes}
    return redirect("fleet-act")


def _shown(request: HttpRequest, jobs: Iterable[Job]) -> dict[int, ShownRun]:
    """Return for each job the run that the page showed when the action was confirmed."""
    found = {job.pk: ShownRun.read(request.POST.dict(), str(job.pk)) for job in jobs}
    return {pk: shown for pk, shown in found.items() if shown is not None}


def acted(request: HttpRequest) -> HttpResponse:
    """Show the outcome of the last action of this session."""
    last = request.session.get(_ACTED)
    if last is None:
        return redirect("fleet")
    outcomes = _outcomes(request, last["outcomes"])
    done = sum(outcome.done for outcome in outcomes)
    return render(request, "fleet/acted.html", _page(last["deed"]) | {"outcomes": outcomes, "done": done})


def _outcomes(request: HttpRequest, stored_outcomes: Sequence[tuple[int, bool, str]]) -> list[Outcome]:
    """Return the outcomes for the jobs that still exist and that the reader may see."""
    jobs = reach_at(request).narrow(jobs_with_runs()).in_bulk([pk for pk, *_rest in stored_outcomes])
    return [Outcome(jobs[pk], done, text) for pk, done, text in stored_outcomes if pk in jobs]


def _page(action: str) -> dict[str, Any]:
    return {"action": action, "title": dict(ACTIONS)[action], "section": "fleet"}


def _sent(request: HttpRequest) -> QueryDict:
    if "matching" not in request.POST:
        return request.POST
    sent, now = request.POST.copy(), timezone.now()
    chosen = selection_of(QueryDict(request.POST["matching"]))
    sent.setlist("jobs", [str(pk) for pk in matching_jobs(chosen, now, reach_at(request))])
    return sent
