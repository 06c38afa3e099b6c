"""Preview a rule in its form: its sentence, and the incidents that it would have opened. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from dashboard.access.guard import reach_at, require_on_any
from dashboard.access.reach import Reach
from dashboard.access.roles import Role
from dashboard.charts.backtest import backtest_figure
from dashboard.forms.editing import unchecked
from dashboard.forms.measures import field_of
from dashboard.forms.rule import RuleForm
from dashboard.language import rendered
from dashboard.views.rules import derived_limit, known_kind
from monitoring.alerts.backtest import Count, Replay, Watched, count, replay
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.alerts.memory import WAYMARK
from monitoring.alerts.scope import WatchedJob, watch_of, watched_jobs
from monitoring.alerts.selector import parse
from monitoring.alerts.standing import derives_limit
from monitoring.alerts.suggestion import suggest
from monitoring.alerts.walk import Watch
from monitoring.models import AlertRule, Cluster, Job, Run

RANGES = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SHORTEST = timedelta(minutes=5)
BUDGET_S, LONG_BUDGET_S = 2.0, 20.0  # time limits for the count over all jobs in scope
LISTED_INCIDENTS = 20
LISTED = 500
PER_WEEK = (1, 2, 5, 20)


def sentence(request: HttpRequest, kind: str) -> HttpResponse:
    """Render the sentence of the rule in the form, or the errors of the form."""
    form = _form(request, known_kind(kind))
    context: dict[str, Any] = {"form": form, "kind": form.kind}
    if form.is_valid():
        context["sentence"] = rendered(form.kind.explain(form.terms))
        context["limit"] = derived_limit(Watch(form.kind, form.terms), form.watched_job)
    return render(request, "rules/sentence.html", context)


def backtest(request: HttpRequest, kind: str) -> HttpResponse:
    require_on_any(request, Role.OPERATOR)
    form = _form(request, known_kind(kind))
    scope = _scope(form, reach_at(request))
    asked, chosen = _asked(request, scope), _range(request)
    subject = asked or (scope[0] if scope else None)
    context: dict[str, Any] = {"form": form, "kind": form.kind, "scope": scope[:LISTED], "subject": subject}
    context |= {"ranges": list(RANGES), "range": chosen, "asked": asked}
    if form.is_valid() and subject is not None:
        watch, length, now = watch_of(form.apply()), RANGES[chosen], timezone.now()
        budget_s = LONG_BUDGET_S if "patient" in request.GET else BUDGET_S
        counted = count(watch, scope, now - length, now, budget_s) if len(scope) > 1 else None
        subject = asked or _loudest(counted) or subject
        requested = BacktestRequest(watch, _with_history(subject), length, now)
        context |= _replay_context(requested, _per_week(request)) | {"count": counted, "subject": subject}
        context["query"] = _query_of(request, subject)
    return render(request, "rules/backtest.html", context)


def chart(request: HttpRequest, kind: str) -> JsonResponse:
    require_on_any(request, Role.OPERATOR)
    form = _form(request, known_kind(kind))
    scope = _scope(form, reach_at(request))
    if not form.is_valid() or not scope:
        raise Http404
    subject = _with_history(_asked(request, scope) or scope[0])
    found = BacktestRequest(watch_of(form.apply()), subject, RANGES[_range(request)], timezone.now()).replay()
    return JsonResponse({"figure": backtest_figure(found, form.kind.unit), "note": "", "empty": not found.has_values})


@dataclass(frozen=True)
class BacktestRequest:
    watch: Watch
    subject: Watched
    length: timedelta
    now: datetime

    @property
    def since(self) -> datetime:
        """Return the start of the range, but not before the history of the subject, so that the chart is not empty."""
        first = self.subject.since or self.now - self.length
        return max(self.now - self.length, min(first, self.now - SHORTEST))

    def replay(self) -> Replay:
        return replay(self.watch, self.subject, self.since, self.now)


def _replay_context(requested: BacktestRequest, per_week: int) -> dict[str, Any]:
    found = requested.replay()
    limit = found.points[-1].limit if found.points and derives_limit(requested.watch) else None
    suggestion = suggest(requested.watch, requested.subject, requested.since, requested.now, per_week)
    threshold, unit = requested.watch.kind.threshold, requested.watch.kind.unit
    return {
        "replay": found,
        "limit": unit.text(limit) if limit is not None else "",
        "incidents": found.incidents[: -LISTED_INCIDENTS - 1 : -1],
        "suggestion": suggestion,
        "suggested_text": unit.text(suggestion.threshold) if suggestion else "",
        "suggested_value": field_of(threshold).prepare_value(suggestion.threshold) if suggestion and threshold else "",
        "per_week": per_week,
        "per_week_choices": PER_WEEK,
        "terms": requested.watch.terms,
    }


def _form(request: HttpRequest, kind: Kind) -> RuleForm:
    """Return the form with a rule that is never saved."""
    reach = reach_at(request)
    rules = reach.narrow_to_jobs_or_all(AlertRule.objects.filter(kind=kind.name))
    rule = rules.filter(pk=_number(request, "rule")).first()
    if rule is None:
        jobs = reach.narrow(Job.objects.all())
        rule = AlertRule(kind=kind.name, job=jobs.filter(pk=_number(request, "of_job")).first())
    form = RuleForm(kind, rule, unchecked(request.GET))
    if rule.job_id is None:
        form.offer_jobs(reach.narrow(Job.objects.all()))
    return form


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text[:18]) if text.isdecimal() else 0


def _scope(form: RuleForm, reach: Reach) -> list[Watched]:
    """Return the jobs or clusters in the scope of the rule that the reader may see.

    Jobs for which a rule with a narrower scope takes precedence are included.
    """
    match form.kind.subject:
        case Subject.CLUSTER:
            clusters = reach.narrow_clusters(Cluster.objects.filter(enabled=True)).order_by("name")
            return [Watched(each.pk, each.name, each.created_at) for each in clusters.only("name", "created_at")]
        case Subject.WAYMARK:
            if not reach.is_unrestricted:
                return []
            first = Cluster.objects.aggregate(first=Min("created_at"))["first"]
            return [Watched(WAYMARK, "Waymark", first)] if first else []
        case Subject.JOB:
            return [Watched(job.pk, job.name) for job in _jobs(form) if reach.role_on(job.pk, job.cluster_id)]


def _jobs(form: RuleForm) -> list[WatchedJob]:
    is_valid = form.is_valid()
    if form.watched_job is not None:
        return watched_jobs([form.watched_job.pk])
    chosen = parse(form.cleaned_data.get("selector") or "") if is_valid else parse("")
    return sorted((job for job in watched_jobs() if chosen.matches(job.labels)), key=lambda job: job.name)


def _asked(request: HttpRequest, scope: list[Watched]) -> Watched | None:
    wanted = _number(request, "backtest_of")
    return next((each for each in scope if each.number == wanted), None)


def _loudest(counted: Count | None) -> Watched | None:
    """Return the subject with the most incidents, the first of several, or None if there are no incidents."""
    incidents = {each: number for each, number in counted.incidents.items() if number} if counted else {}
    return max(incidents, key=lambda each: incidents[each], default=None)


def _query_of(request: HttpRequest, subject: Watched) -> str:
    """Return the query with which the chart shows the same subject."""
    query = request.GET.copy()
    query["backtest_of"] = str(subject.number)
    return query.urlencode()


def _with_history(subject: Watched) -> Watched:
    """Return the subject with the start of its history."""
    if subject.since is not None:
        return subject
    first = Run.objects.filter(job=subject.number).aggregate(first=Min("started_at"))["first"]
    return replace(subject, since=first)


def _per_week(request: HttpRequest) -> int:
    chosen = _number(request, "per_week")
    return chosen if chosen in PER_WEEK else PER_WEEK[0]


def _range(request: HttpRequest) -> str:
    chosen = request.GET.get("range", "")
    return chosen if chosen in RANGES else "7d"
