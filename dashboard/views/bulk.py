"""One deed for several jobs that were chosen on the fleet page."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at, require_somewhere
from dashboard.access.roles import Role
from dashboard.acts.bulk import act_on_all
from dashboard.forms.bulk import DEEDS, STOP, BulkForm
from dashboard.queries.facts import jobs_with_runs
from dashboard.queries.fleet import matching_jobs
from dashboard.views.fleet import selection_of


@require_POST
def act(request: HttpRequest) -> HttpResponse:
    """What ends jobs is asked again first, with their names. `matching`: the filters of a list, all of whose jobs are
    meant, those that are on no page yet included."""
    require_somewhere(request, Role.OPERATOR)
    form = BulkForm(_sent(request), offered=reach_at(request).narrow(jobs_with_runs()))
    if not form.is_valid():
        for name, errors in form.errors.items():
            messages.error(
                request,
                _("%(label)s: %(errors)s Nothing was done.")
                % {"label": form.fields[name].label, "errors": " ".join(map(str, errors))},
            )
        return redirect("fleet")
    typed = form.cleaned_data
    context = {"jobs": typed["jobs"], "deed": typed["deed"], "title": dict(DEEDS)[typed["deed"]], "section": "fleet"}
    if typed["deed"] == STOP and not typed["confirmed"]:
        return render(request, "fleet/confirm.html", context)
    outcomes = act_on_all(typed, access_of(request), actor_of(request), timezone.now())
    done = sum(outcome.done for outcome in outcomes)
    return render(request, "fleet/acted.html", context | {"outcomes": outcomes, "done": done})


def _sent(request: HttpRequest) -> QueryDict:
    if "matching" not in request.POST:
        return request.POST
    sent, now = request.POST.copy(), timezone.now()
    chosen = selection_of(QueryDict(request.POST["matching"]))
    sent.setlist("jobs", [str(pk) for pk in matching_jobs(chosen, now, reach_at(request))])
    return sent
