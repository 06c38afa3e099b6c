"""The automation: its pauses and open breakers, and the decisions about restarts."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.access.guard import actor_of, reach_at, require_on, require_on_any
from dashboard.access.roles import Role
from dashboard.forms.automation import PauseForm
from dashboard.forms.editing import newer_than_shown, newest_key
from dashboard.forms.note import NoteForm
from dashboard.forms.permitted import offer_clusters
from dashboard.language import rendered
from dashboard.views.access import action
from dashboard.views.job import find_job
from monitoring import pauses
from monitoring.models import AutomationPause, Job, RestartDecision
from monitoring.recovery.breaker import close_breaker

PAGE_SIZE = 50


def automation(request: HttpRequest) -> HttpResponse:
    """Show the page, or pause the automation on POST."""
    if request.method == "POST":
        return pause(request)
    return _show(request, PauseForm(label_suffix=""))


@require_POST
def pause(request: HttpRequest) -> HttpResponse:
    form = PauseForm(request.POST, label_suffix="")
    require_on_any(request, Role.OPERATOR)
    offer_clusters(form, reach_at(request), else_all=True)
    if not form.is_valid():
        return _show(request, form, 422)
    typed, now = form.cleaned_data, timezone.now()
    require_on(request, Role.OPERATOR, None, typed["cluster"].pk if typed["cluster"] else None)
    until = None if typed["lasts"] is None else now + timedelta(seconds=typed["lasts"])
    same = pauses.active(now).filter(cluster=typed["cluster"])
    if (other := newer_than_shown(same, request.POST).first()) is not None:
        text = _(
            "%(who)s has already paused this automation since this page was loaded. Reason: “%(reason)s”. Your input "
            "is kept. To add another pause, send the form again."
        )
        form.add_error(None, text % {"who": other.author, "reason": other.reason})
        return _show(request, form, 422)
    try:
        made = pauses.pause(typed["cluster"], typed["reason"], until, actor_of(request), now)
    except pauses.BadPause as problem:
        form.add_error(problem.field if problem.field in form.fields else None, rendered(problem.allowed))
        return _show(request, form, 422)
    messages.success(
        request,
        _("The automation of %(whose)s is paused.") % {"whose": made.cluster or _("all jobs")},
    )
    return redirect("automation")


@action
def end_pause(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(AutomationPause.objects.select_related("cluster"), pk=pk)
    if pauses.end(found, actor_of(request), timezone.now()):
        messages.success(
            request,
            _("The automation of %(whose)s is active again.") % {"whose": found.cluster or _("all jobs")},
        )
    else:
        messages.warning(request, _("The pause has already ended."))
    return redirect("automation")


@action
def close_job_breaker(request: HttpRequest, pk: int) -> HttpResponse:
    job, form = find_job(pk), NoteForm(request.POST)
    why = form.cleaned_data["note"].strip() if form.is_valid() else ""
    if close_breaker(job, why, actor_of(request), timezone.now()):
        messages.success(
            request, _("The breaker is closed. Automatic restarts are possible again, with a new restart budget.")
        )
    else:
        messages.warning(request, _("The breaker is already closed."))
    return redirect("job-restarts", pk)


def _show(request: HttpRequest, form: PauseForm, status: int = 200) -> HttpResponse:
    now = timezone.now()
    offer_clusters(form, reach_at(request), else_all=True)
    reach = reach_at(request)
    decisions = reach.narrow(RestartDecision.objects.select_related("job__cluster"), "job")
    jobs = reach.narrow(Job.objects.select_related("cluster"))
    context = {
        "form": form,
        "pauses": reach.narrow_to_clusters_or_all(pauses.active(now)).order_by("-started_at"),
        "held": jobs.filter(automation_paused=True)[:PAGE_SIZE],
        "breakers": jobs.filter(breaker_opened_at__isnull=False)[:PAGE_SIZE],
        "newest": newest_key(AutomationPause.objects.all()),
        "elsewhere": jobs.exclude(managed_elsewhere="").count(),
        "page": Paginator(decisions, PAGE_SIZE).get_page(request.GET.get("page")),
        "section": "automation",
    }
    return render(request, "system/automation.html", context, status=status)
