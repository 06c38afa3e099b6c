"""Objectives: the list, and the form for those of one job, of jobs by label, or of all jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of, reach_at, require_on_any
from dashboard.access.roles import Role
from dashboard.acts.objectives import remove_objective, save_objective
from dashboard.forms.editing import for_editing
from dashboard.forms.objective import ObjectiveForm, new_objective
from dashboard.forms.permitted import operates_everything
from dashboard.views.access import operator_required
from dashboard.views.confirmation import Confirmation, ask
from dashboard.views.maintenance import offered_jobs, visible_jobs
from dashboard.views.rules import asked_job, require_on_rule
from monitoring.alerts.objectives import objectives_of
from monitoring.alerts.scope import watched_jobs
from monitoring.models import Job, Objective, ObjectiveBudget


@dataclass(frozen=True)
class ObjectiveRow:
    """An objective with the number of jobs to which it applies. `missed`: how many of them have used up the budget."""

    objective: Objective
    jobs: int
    missed: int


def objectives(request: HttpRequest) -> HttpResponse:
    found = reach_at(request).narrow_to_jobs_or_all(Objective.objects.select_related("job__cluster"))
    objectives = sorted(found, key=lambda each: (each.job.name if each.job else "", each.selector))
    return render(request, "objectives/page.html", {"rows": _rows(request, objectives), "section": "rules"})


def _rows(request: HttpRequest, objectives: list[Objective]) -> list[ObjectiveRow]:
    if not objectives:
        return []
    visible = list(visible_jobs(request).values_list("pk", flat=True))
    applied = {job: each.pk for job, each in objectives_of(watched_jobs(visible)).items()}
    used_up = ObjectiveBudget.objects.filter(job__in=visible, used_percent__gte=100)
    jobs = Counter(applied.values())
    missed = Counter(applied[job] for job in used_up.values_list("job_id", flat=True) if job in applied)
    return [ObjectiveRow(each, jobs[each.pk], missed[each.pk]) for each in objectives]


def new(request: HttpRequest) -> HttpResponse:
    job = asked_job(request)
    if job is None:
        require_on_any(request, Role.OPERATOR)
    elif Objective.objects.filter(job=job).exists():
        return redirect("objective", job.objective.pk)
    return _edit(request, new_objective(job))


@transaction.atomic
def objective(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the objective to every account, or let an operator change it on POST."""
    rows = Objective.objects.select_related("job__cluster")
    return _edit(request, get_object_or_404(for_editing(rows) if request.method == "POST" else rows, pk=pk))


@operator_required
def remove(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the objective on POST."""
    found = get_object_or_404(Objective.objects.select_related("job__cluster"), pk=pk)
    require_on_rule(request, found.job)
    if request.method == "POST":
        remove_objective(found, actor_of(request))
        messages.success(request, _("Objective deleted."))
        return _back(found.job)
    if found.job is not None:
        question = _("Delete the objective of the job %(job)s?") % {"job": found.job.name}
    else:
        question = _("Delete the objective of %(jobs)s?") % {"jobs": found.selector or _("all jobs")}
    consequences = [_("Its budgets are deleted, and its incidents are resolved at the next check.")]
    if found.job is not None:
        consequences.append(_("If there is a broader objective, it then applies to the job."))
    back = reverse("objective", args=[pk])
    texts = (_("Delete objective"), back, _("Back to the objective"), "rules")
    return ask(request, Confirmation(question, consequences, *texts))


def _edit(request: HttpRequest, found: Objective) -> HttpResponse:
    form = ObjectiveForm(found, request.POST if request.method == "POST" else None)
    form.offer_jobs(visible_jobs(request), only=not operates_everything(reach_at(request)))
    if request.method != "POST":
        return _page(request, form)
    if found.pk is not None:
        require_on_rule(request, found.job)
    if not form.is_valid():
        return _page(request, form, 422)
    require_on_rule(request, form.job)
    saved = save_objective(form, actor_of(request))
    messages.success(request, _("Objective saved. Waymark measures its budgets within a minute."))
    return _back(saved.job)


def _back(job: Job | None) -> HttpResponse:
    return redirect("job-alerts", job.pk) if job is not None else redirect("objectives")


def _page(request: HttpRequest, form: ObjectiveForm, status: int = 200) -> HttpResponse:
    context = {
        "form": form,
        "objective": form.objective,
        "job": form.objective.job,
        "jobs": offered_jobs(reach_at(request)) if "job" in form.fields else (),
        "section": "rules",
    }
    if form.objective.pk is None:
        context["may_act"] = True  # checked by `new`, also for an account with grants only
    return render(request, "objectives/objective.html", context, status=status)
