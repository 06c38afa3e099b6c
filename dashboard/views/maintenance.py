"""Maintenance windows: planned, active and past ones, with the incidents that each silenced."""

from __future__ import annotations

from datetime import datetime

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Case, Count, IntegerField, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from dashboard.access.guard import actor_of, reach_at, require_on, require_on_any
from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from dashboard.forms.maintenance import MaintenanceForm
from dashboard.forms.permitted import offer_clusters, operates_everything
from dashboard.language import rendered
from dashboard.views.access import action
from monitoring.alerts.maintenance import WindowIsOver, end_window, plan_window
from monitoring.models import Incident, Job, MaintenanceWindow

PAGE_SIZE = 50
JOBS_OFFERED = 500


def windows(request: HttpRequest) -> HttpResponse:
    """List the windows, or plan one on POST."""
    if request.method == "POST":
        return plan(request)
    first = {"job": request.GET.get("job", "")[:600], "scope": "job"} if request.GET.get("job") else None
    return _show(request, MaintenanceForm(initial=first, jobs=visible_jobs(request), label_suffix=""))


@require_POST
def plan(request: HttpRequest) -> HttpResponse:
    form = MaintenanceForm(request.POST, jobs=visible_jobs(request), label_suffix="")
    require_on_any(request, Role.OPERATOR)
    offer_clusters(form, reach_at(request))
    if not form.is_valid():
        return _show(request, form, 422)
    window = form.window(actor_of(request), timezone.now())
    require_on_window(request, window)
    plan_window(window)
    messages.success(
        request,
        _("Planned: %(window)s, until %(ends_at)s.")
        % {"window": window, "ends_at": format(timezone.localtime(window.ends_at), "%Y-%m-%d %H:%M %Z")},
    )
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
        freed = end_window(found, actor_of(request), timezone.now())
    except WindowIsOver as problem:
        messages.warning(request, rendered(problem.reason))
    else:
        ended = ngettext(
            "Window ended. Waymark now sends %(freed)s notification that the window held back.",
            "Window ended. Waymark now sends %(freed)s notifications that the window held back.",
            freed,
        ) % {"freed": freed}
        messages.success(request, ended if freed else _("Window ended."))
    return redirect("maintenance")


def visible_jobs(request: HttpRequest) -> QuerySet[Job]:
    return reach_at(request).narrow(Job.objects.all())


def require_on_window(request: HttpRequest, window: MaintenanceWindow) -> None:
    """Require the right to plan the window.

    A window for one job or cluster needs an operator of it. A window by labels needs an operator of everything.
    """
    cluster = window.job.cluster_id if window.job else window.cluster_id
    require_on(request, Role.OPERATOR, window.job_id, cluster)


def _show(request: HttpRequest, form: MaintenanceForm, status: int = 200) -> HttpResponse:
    now, reach = timezone.now(), reach_at(request)
    offer_clusters(form, reach)
    if not operates_everything(reach):
        scope = form.fields["scope"]
        scope.choices = [each for each in scope.choices if each[0] != "selector"]  # type: ignore[attr-defined]
    page = Paginator(reach.narrow_either(_ordered(now)), PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "form": form,
        "page": page,
        "rows": [(each, _phase(each, now)) for each in page],
        "jobs": offered_jobs(reach),
        "section": "maintenance",
    }
    return render(request, "channels/maintenance.html", context, status=status)


def offered_jobs(reach: Reach) -> QuerySet[Job]:
    """Return the jobs that a form suggests to an operator."""
    jobs = Job.objects.select_related("cluster").order_by("name")
    mine = jobs if operates_everything(reach) else jobs.filter(reach.on_jobs(least=Role.OPERATOR))
    return mine[:JOBS_OFFERED]


def _ordered(now: datetime) -> QuerySet[MaintenanceWindow]:
    """Return the active windows, then the planned ones, then the past ones."""
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
