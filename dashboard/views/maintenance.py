"""Maintenance windows: planned, running and over, with what each silenced."""

from __future__ import annotations

from datetime import datetime

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Case, Count, IntegerField, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone

from dashboard.forms.maintenance import MaintenanceForm
from dashboard.views.access import action
from monitoring.alerts.maintenance import WindowIsOver, end_window, plan_window
from monitoring.models import Incident, Job, MaintenanceWindow

PAGE_SIZE = 50
JOBS_OFFERED = 500


def windows(request: HttpRequest) -> HttpResponse:
    """GET lists them, POST plans one."""
    if request.method == "POST":
        return plan(request)
    first = {"job": request.GET.get("job", "")[:600], "scope": "job"} if request.GET.get("job") else None
    return _show(request, MaintenanceForm(initial=first, label_suffix=""))


@action
def plan(request: HttpRequest) -> HttpResponse:
    form = MaintenanceForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _show(request, form, 422)
    window = form.window(request.user.get_username(), timezone.now())
    plan_window(window)
    messages.success(request, f"Planned: {window}, until {timezone.localtime(window.ends_at):%Y-%m-%d %H:%M %Z}.")
    return redirect("maintenance")


def window(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(MaintenanceWindow.objects.select_related("job", "cluster"), pk=pk)
    silenced = Incident.objects.filter(events__notifications__silenced_by=found).select_related("job", "cluster")
    page = Paginator(silenced.distinct().order_by("-opened_at", "-id"), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"window": found, "phase": _phase(found, timezone.now()), "page": page, "section": "maintenance"}
    return render(request, "channels/window.html", context)


@action
def end(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(MaintenanceWindow.objects.select_related("job", "cluster"), pk=pk)
    try:
        freed = end_window(found, request.user.get_username(), timezone.now())
    except WindowIsOver as problem:
        messages.warning(request, str(problem))
    else:
        told = f" {freed} notification{'' if freed == 1 else 's'} that it held back go out now." if freed else ""
        messages.success(request, f"Ended.{told}")
    return redirect("maintenance")


def _show(request: HttpRequest, form: MaintenanceForm, status: int = 200) -> HttpResponse:
    now = timezone.now()
    page = Paginator(_ordered(now), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "form": form,
        "page": page,
        "rows": [(each, _phase(each, now)) for each in page],
        "jobs": Job.objects.select_related("cluster").order_by("name")[:JOBS_OFFERED],
        "section": "maintenance",
    }
    return render(request, "channels/maintenance.html", context, status=status)


def _ordered(now: datetime) -> QuerySet[MaintenanceWindow]:
    """What runs first, then what is to come, then what is over."""
    place = Case(
        When(ends_at__lte=now, then=Value(2)),
        When(starts_at__gt=now, then=Value(1)),
        default=Value(0),
        output_field=IntegerField(),
    )
    found = MaintenanceWindow.objects.select_related("job", "cluster")
    counted = found.annotate(incidents=Count("silenced__event__incident", distinct=True))
    return counted.order_by(place, "-starts_at", "-id")


def _phase(window: MaintenanceWindow, now: datetime) -> str:
    if window.ends_at <= now:
        return "over"
    return "running" if window.is_active(now) else "planned"
