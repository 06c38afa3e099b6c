"""Alert rules: the list of all rules, the rules for one job, and the form of each type."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from dashboard.access.guard import access_of, actor_of, reach_at, require_on, require_on_any
from dashboard.access.roles import Role
from dashboard.acts import rules as acts
from dashboard.forms.permitted import operates_everything
from dashboard.forms.rule import RuleForm
from dashboard.language import rendered
from dashboard.queries.rules import RuleRow, kinds_by_group, listed_rules, rows_of
from dashboard.templatetags.figures import rule_name
from dashboard.views.access import operator_required
from dashboard.views.confirmation import Confirmation, ask
from dashboard.views.job import find_job, job_context
from dashboard.views.maintenance import offered_jobs, visible_jobs
from monitoring.alerts.kinds import UnknownKind, kind_of, kinds
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.alerts.scope import rules_for, terms_of
from monitoring.alerts.standing import derives_limit, limit_now, standings
from monitoring.alerts.walk import Watch
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
    groups = kinds_by_group(of_jobs=job is not None or not operates_everything(reach_at(request)))
    return render(request, "rules/kinds.html", {"groups": groups, "job": job, "section": "rules"})


def new_rule(request: HttpRequest, kind: str) -> HttpResponse:
    job, found = _asked_job(request), known_kind(kind)
    if job is not None and found.subject is not Subject.JOB:
        raise Http404
    if job is None and found.subject is Subject.JOB:
        require_on_any(request, Role.OPERATOR)
    else:
        require_on_rule(request, job)
    return _edit(request, found, template_of(found, job))


def rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the rule to every account, or let an operator change it on POST."""
    found = get_object_or_404(AlertRule.objects.select_related("job__cluster"), pk=pk)
    return _edit(request, known_kind(found.kind), found)


@operator_required
def remove_rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the confirmation, or delete the rule on POST."""
    found = get_object_or_404(AlertRule.objects.select_related("job"), pk=pk)
    try:
        acts.require_deletable(found)
        if request.method != "POST":
            return _ask_to_remove(request, found)
        acts.remove_rule(found, actor_of(request))
    except acts.RuleRequired as stays:
        messages.error(request, str(stays))
        return redirect("rule", pk)
    messages.success(request, _("Rule deleted. Its open incidents are resolved at the next check."))
    return redirect("job-alerts", found.job_id) if found.job_id else redirect("rules")


def _ask_to_remove(request: HttpRequest, rule: AlertRule) -> HttpResponse:
    if rule.job is not None:
        question = _("Delete the rule “%(kind)s” of the job %(job)s?")
        question %= {"kind": RuleRow(rule, kinds().get(rule.kind), 0).title, "job": rule.job.name}
    else:
        question = _("Delete the rule “%(name)s”?") % {"name": rule_name(rule)}
    consequences = [_("The open incidents of the rule are then resolved.")]
    if rule.job is not None:
        consequences.append(_("If there is a broader rule, it then applies to the job."))
    back = reverse("rule", args=[rule.pk])
    return ask(request, Confirmation(question, consequences, _("Delete rule"), back, _("Back to the rule"), "rules"))


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


def derived_limit(watch: Watch, job: Job | None) -> str:
    """Return the limit that the rule derives for the job now, or "" if it derives none or the limit is unknown."""
    limit = limit_now(watch, job, timezone.now()) if job is not None and derives_limit(watch) else None
    return watch.kind.unit.text(limit) if limit is not None else ""


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
    form = RuleForm(kind, rule, request.POST if request.method == "POST" else None)
    if rule.job_id is None:
        form.offer_jobs(visible_jobs(request), only=not operates_everything(reach_at(request)))
    return _save(request, form) if request.method == "POST" else _page(request, form)


@require_POST
def _save(request: HttpRequest, form: RuleForm) -> HttpResponse:
    if form.rule.pk is not None:
        require_on_rule(request, form.rule.job)
    if not form.is_valid():
        return _page(request, form, status=422)
    require_on_rule(request, form.watched_job)
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
        "limit": derived_limit(Watch(kind, terms), form.watched_job),
        "jobs": offered_jobs(reach_at(request)) if "job" in form.fields else (),
        "has_incidents": rule.pk is not None and rule.incidents.exists(),
        "section": "rules",
    }
    if rule.pk is None:
        context["may_act"] = True  # checked by `new_rule`, also for an account with grants only
    return render(request, "rules/rule.html", context, status=status)
