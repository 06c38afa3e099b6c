"""Alert rules: the list of all rules, the rules for one job, and the form of each type."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at, require_on, require_on_any
from dashboard.access.roles import Role
from dashboard.acts import rules as acts
from dashboard.forms.rule import RuleForm
from dashboard.language import rendered
from dashboard.queries.rules import kinds_by_group, listed_rules, rows_of
from dashboard.views.access import action
from dashboard.views.job import find_job, job_context
from monitoring.alerts.kinds import UnknownKind, kind_of
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.alerts.scope import rules_for, terms_of
from monitoring.alerts.standing import standings
from monitoring.models import AlertRule, Channel, Job

RECENT = 20
PAGE_SIZE = 50


def rules(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("q", "").replace("\0", "").strip()[:200]
    found = reach_at(request).narrow_to_jobs_or_all(listed_rules(text))
    page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {"page": page, "rows": rows_of(list(page.object_list)), "text": text, "section": "rules"}
    return render(request, "rules/page.html", context)


def alerts(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the rules that apply to a job, their scopes, and the job's newest incidents."""
    job = find_job(pk)
    context = job_context(job, "alerts")
    context |= {
        "standings": standings(job, context["now"]),
        "incidents": job.incidents.order_by("-opened_at")[:RECENT],
    }
    return render(request, "job/alerts.html", context)


def choose_kind(request: HttpRequest) -> HttpResponse:
    require_on_any(request, Role.OPERATOR)
    job = _asked_job(request)
    groups = kinds_by_group(of_jobs=job is not None)
    return render(request, "rules/kinds.html", {"groups": groups, "job": job, "section": "rules"})


def new_rule(request: HttpRequest, kind: str) -> HttpResponse:
    job, found = _asked_job(request), known_kind(kind)
    require_on_rule(request, job)
    if job is not None and found.subject is not Subject.JOB:
        raise Http404
    return _edit(request, found, template_of(found, job))


def rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the rule to every account, or let an operator change it on POST."""
    found = get_object_or_404(AlertRule.objects.select_related("job__cluster"), pk=pk)
    return _edit(request, known_kind(found.kind), found)


@action
def remove_rule(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(AlertRule.objects.select_related("job"), pk=pk)
    try:
        acts.remove_rule(found, actor_of(request))
    except acts.RuleRequired as stays:
        messages.error(request, str(stays))
        return redirect("rule", pk)
    messages.success(request, _("Rule deleted. Its open incidents are resolved at the next check."))
    return redirect("job-alerts", found.job_id) if found.job_id else redirect("rules")


def known_kind(name: str) -> Kind:
    try:
        return kind_of(name)
    except UnknownKind:
        raise Http404 from None


def template_of(kind: Kind, job: Job | None) -> AlertRule:
    """Return the initial values of a new rule.

    A rule for a job starts with the values of the rule that applies to the job now, else with the type's defaults.
    """
    fresh = AlertRule(kind=kind.name, job=job, name="" if job else kind.title, check_every_s=kind.check_every_s)
    wider = next((each for each in rules_for(job) if each.kind == kind.name), None) if job else None
    if wider is not None:
        names = ("threshold", "window_s", "parameters", "check_every_s", "open_hold_s", "close_hold_s")
        for name in (*names, "flap_opens", "flap_window_s", "severity"):
            setattr(fresh, name, getattr(wider, name))
    return fresh


def _asked_job(request: HttpRequest) -> Job | None:
    asked = request.GET.get("job", "")
    if not asked:
        return None
    if not asked.isdecimal():
        raise Http404
    job = find_job(int(asked[:18]))
    require_on(request, Role.OPERATOR, job.pk, job.cluster_id)
    return job


def require_on_rule(request: HttpRequest, job: Job | None) -> None:
    """Require an operator of the job, or an operator of everything for a rule without a job."""
    require_on(request, Role.OPERATOR, job.pk if job else None, job.cluster_id if job else None)


def _edit(request: HttpRequest, kind: Kind, rule: AlertRule) -> HttpResponse:
    if request.method != "POST":
        return _page(request, RuleForm(kind, rule))
    return _save(request, RuleForm(kind, rule, request.POST))


@require_POST
def _save(request: HttpRequest, form: RuleForm) -> HttpResponse:
    require_on_rule(request, form.rule.job)
    if not form.is_valid():
        return _page(request, form, status=422)
    rule = acts.save_rule(form, actor_of(request), timezone.now())
    messages.success(request, _("Rule saved. Waymark checks it now and then at its interval."))
    return redirect("job-alerts", rule.job_id) if rule.job_id else redirect("rules")


def _page(request: HttpRequest, form: RuleForm, status: int = 200) -> HttpResponse:
    rule, kind = form.rule, form.kind
    if not reach_at(request).is_unrestricted and not access_of(request).may(Role.OPERATOR):
        form.offer_channels(rule.channels.all() if rule.pk else Channel.objects.none())
    terms = form.terms if form.is_bound and form.is_valid() else terms_of(rule)
    context: dict[str, Any] = {
        "form": form,
        "kind": kind,
        "rule": rule,
        "job": rule.job,
        "sentence": rendered(kind.explain(terms)),
        "has_incidents": rule.pk is not None and rule.incidents.exists(),
        "section": "rules",
    }
    return render(request, "rules/rule.html", context, status=status)
