"""How the job checkpoints (the engine's word) and what Waymark does for it (ours, editable)."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from dashboard.forms.automation import AutomationForm
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring import audit
from monitoring.diagnosis.asking import advice_for
from monitoring.models import Job
from monitoring.savepoints.schedule import set_schedule

CHANGES_A_PAGE = 25


def configuration(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = AutomationForm(instance=job, label_suffix="")
    return render(request, "job/configuration.html", _context(request, job, form))


@action
def change_automation(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = AutomationForm(request.POST, instance=Job.objects.get(pk=pk), label_suffix="")
    if not form.is_valid():
        return render(request, "job/configuration.html", _context(request, job, form), status=422)
    by = request.user.get_username()
    with transaction.atomic():
        changed = form.save(commit=False)
        changed.save(update_fields=form.Meta.fields)
        if form.schedule_changed:
            set_schedule(changed, form.timetable, by, timezone.now())
        record_change(form, by)
    messages.success(request, "Saved.")
    return redirect("job-configuration", pk)


def record_change(form: AutomationForm, by: str) -> None:
    was = {name: form.initial.get(name) for name in form.changed_data}
    now = {name: form.cleaned_data[name] for name in form.changed_data}
    audit.record(by, "job.automation", f"job {form.instance.name}", form.instance.automation_note, was=was, now=now)


def _context(request: HttpRequest, job: Job, form: AutomationForm) -> dict[str, object]:
    changes = Paginator(job.configuration_changes.select_related("run"), CHANGES_A_PAGE)
    context = job_context(job, "configuration")
    context |= {"form": form, "page": changes.get_page(request.GET.get("page"))}
    return context | {"diagnosis": advice_for(job, context["now"])}
