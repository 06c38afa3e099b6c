"""A job's alert rule and what it found."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from dashboard.forms.rule import RuleForm
from dashboard.queries.overview import read_rule_standing
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring import audit
from monitoring.models import AlertRule, Job

RECENT = 20


def alerts(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    return render(request, "job/alerts.html", _context(job, RuleForm(instance=_rule(job), label_suffix="")))


@action
def change_rule(request: HttpRequest, pk: int) -> HttpResponse:
    job = find_job(pk)
    form = RuleForm(request.POST, instance=_rule(job), label_suffix="")
    if not form.is_valid():
        return render(request, "job/alerts.html", _context(job, form), status=422)
    with transaction.atomic():
        rule = form.save(commit=False)
        rule.next_check_at = timezone.now()  # the change shows at the next tick, not after the old interval
        if rule.pk:
            rule.save(update_fields=[*_own_fields(form), "next_check_at"])
        else:
            rule.save()
        form.save_m2m()
        changed = {name: str(form.cleaned_data[name]) for name in form.changed_data}
        audit.record(request.user.get_username(), "rule.change", f"job {job.name}", **changed)
    messages.success(request, "Rule saved. It is checked at once and then on its interval.")
    return redirect("job-alerts", pk)


def _own_fields(form: RuleForm) -> list[str]:
    return [name for name in form.Meta.fields if name != "channels"]


def _rule(job: Job) -> AlertRule:
    own = job.rules.filter(kind="failed_in_window").order_by("pk").first()
    return own or AlertRule(job=job, threshold=3, window_s=900)


def _context(job: Job, form: RuleForm) -> dict[str, object]:
    context = job_context(job, "alerts")
    return context | {
        "form": form,
        "standing": read_rule_standing(job, context["now"]),
        "incidents": job.incidents.order_by("-opened_at")[:RECENT],
    }
