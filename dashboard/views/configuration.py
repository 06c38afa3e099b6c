"""The checkpoint configuration that the engine reports, and the job's automation, which can be changed."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from dashboard.access.guard import actor_of
from dashboard.acts.job_settings import save_automation
from dashboard.forms.automation import AutomationForm
from dashboard.forms.editing import for_editing
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring.diagnosis.diagnoses import advice_for
from monitoring.job_defaults import DEFAULT
from monitoring.models import Job

CHANGES_A_PAGE = 25


def configuration(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = AutomationForm(instance=job, label_suffix="")
    return render(request, "job/configuration.html", _context(request, job, form))


@action
@transaction.atomic
def change_automation(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = AutomationForm(request.POST, instance=for_editing(Job.objects.all()).get(pk=pk), label_suffix="")
    if not form.is_valid():
        return render(request, "job/configuration.html", _context(request, job, form), status=422)
    save_automation(form, actor_of(request), timezone.now())
    messages.success(request, _("Saved."))
    return redirect("job-configuration", pk)


def _context(request: HttpRequest, job: Job, form: AutomationForm) -> dict[str, object]:
    changes = Paginator(job.configuration_changes.select_related("run"), CHANGES_A_PAGE)
    context = job_context(job, "configuration")
    context |= {"form": form, "page": changes.get_page(request.GET.get("page"))}
    followed = [form.fields[name].label for name in form.fields if job.settings_from.get(name) == DEFAULT]
    return context | {"diagnosis": advice_for(job, context["now"]), "followed": followed}
