"""What Waymark does by itself, what holds it, and what it decided."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from dashboard.forms.note import NoteForm
from dashboard.forms.pause import PauseForm
from dashboard.views.access import action
from dashboard.views.job import find_job
from monitoring import pauses
from monitoring.models import AutomationPause, Job, RestartDecision
from monitoring.recovery.breaker import close_breaker

PAGE_SIZE = 50


def automation(request: HttpRequest) -> HttpResponse:
    """GET shows it, POST pauses."""
    if request.method == "POST":
        return pause(request)
    return _show(request, PauseForm(label_suffix=""))


@action
def pause(request: HttpRequest) -> HttpResponse:
    form = PauseForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _show(request, form, 422)
    typed, now = form.cleaned_data, timezone.now()
    until = None if typed["lasts"] is None else now + timedelta(seconds=typed["lasts"])
    try:
        made = pauses.pause(typed["cluster"], typed["reason"], until, request.user.get_username(), now)
    except pauses.BadPause as problem:
        form.add_error(problem.field if problem.field in form.fields else None, problem.allowed)
        return _show(request, form, 422)
    messages.success(request, f"The automation of {made.cluster or 'everything'} is paused.")
    return redirect("automation")


@action
def end_pause(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(AutomationPause.objects.select_related("cluster"), pk=pk)
    if pauses.end(found, request.user.get_username(), timezone.now()):
        messages.success(request, f"The automation of {found.cluster or 'everything'} goes on.")
    else:
        messages.warning(request, "That pause had ended already.")
    return redirect("automation")


@action
def close_job_breaker(request: HttpRequest, pk: int) -> HttpResponse:
    job, form = find_job(pk), NoteForm(request.POST)
    why = form.cleaned_data["note"].strip() if form.is_valid() else ""
    if close_breaker(job, why, request.user.get_username(), timezone.now()):
        messages.success(request, "The breaker is closed: the job may be restarted again, with a fresh budget.")
    else:
        messages.warning(request, "The breaker is closed already.")
    return redirect("job-restarts", pk)


def _show(request: HttpRequest, form: PauseForm, status: int = 200) -> HttpResponse:
    now = timezone.now()
    decisions = RestartDecision.objects.select_related("job__cluster")
    context = {
        "form": form,
        "pauses": pauses.active(now).order_by("-started_at"),
        "held": Job.objects.filter(automation_paused=True).select_related("cluster")[:PAGE_SIZE],
        "breakers": Job.objects.filter(breaker_opened_at__isnull=False).select_related("cluster")[:PAGE_SIZE],
        "elsewhere": Job.objects.exclude(managed_elsewhere="").count(),
        "page": Paginator(decisions, PAGE_SIZE).get_page(request.GET.get("page")),
        "section": "automation",
    }
    return render(request, "system/automation.html", context, status=status)
