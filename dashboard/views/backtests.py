"""A rule that is being written: what it says, and what it would have done. Nothing here changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from dashboard.charts.backtest import backtest_figure
from dashboard.forms.measures import field_of
from dashboard.forms.rule import RuleForm
from dashboard.views.access import operator_required
from dashboard.views.rules import known_kind
from monitoring.alerts.backtest import Replay, replay
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.alerts.scope import WatchedJob, watched_jobs
from monitoring.alerts.selector import parse
from monitoring.alerts.suggestion import suggest
from monitoring.alerts.terms import watch_of
from monitoring.alerts.walk import Watch
from monitoring.models import AlertRule, Job

RANGES = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
SHORTEST = timedelta(minutes=5)
COUNTED_JOBS = 50
LISTED_BOUTS = 20
LISTED_JOBS = 500
PER_WEEK = (1, 2, 5, 20)


def sentence(request: HttpRequest, kind: str) -> HttpResponse:
    """The rule in words as it stands in the form, or what is not right yet."""
    form = _form(request, known_kind(kind))
    context = {"form": form, "kind": form.kind, "sentence": form.kind.explain(form.terms) if form.is_valid() else ""}
    return render(request, "rules/sentence.html", context)


@operator_required
def backtest(request: HttpRequest, kind: str) -> HttpResponse:
    form = _form(request, _kind_of_jobs(kind))
    jobs = _scope(form)
    job = _chosen(request, jobs)
    context: dict[str, Any] = {"form": form, "kind": form.kind, "jobs": jobs[:LISTED_JOBS], "ranges": list(RANGES)}
    chosen = _range(request)
    context |= {"job": job, "range": chosen, "query": request.GET.urlencode()}
    if form.is_valid() and job is not None:
        context |= _replayed(Asked(watch_of(form.apply()), job, RANGES[chosen]), jobs, _per_week(request))
    return render(request, "rules/backtest.html", context)


@operator_required
def chart(request: HttpRequest, kind: str) -> JsonResponse:
    form = _form(request, _kind_of_jobs(kind))
    job = _chosen(request, _scope(form))
    if not form.is_valid() or job is None:
        raise Http404
    found = Asked(watch_of(form.apply()), job, RANGES[_range(request)]).replay()
    return JsonResponse({"figure": backtest_figure(found, form.kind.unit), "note": "", "empty": not found.has_values})


@dataclass(frozen=True)
class Asked:
    watch: Watch
    job: Job
    length: timedelta

    def since(self, now: datetime) -> datetime:
        """Not before the job's history began: a young job's chart is not mostly empty."""
        first = self.job.runs.aggregate(first=Min("started_at"))["first"] or now - self.length
        return max(now - self.length, min(first, now - SHORTEST))

    def replay(self) -> Replay:
        now = timezone.now()
        return replay(self.watch, self.job, self.since(now), now)


def _replayed(asked: Asked, jobs: list[WatchedJob], per_week: int) -> dict[str, Any]:
    """For the chosen job, and counted over the scope as far as that is quick."""
    now = timezone.now()
    found = asked.replay()
    others = Job.objects.in_bulk([each.pk for each in jobs[:COUNTED_JOBS] if each.pk != asked.job.pk])
    counts = {other.name: len(replay(asked.watch, other, now - asked.length, now).bouts) for other in others.values()}
    counts = {asked.job.name: len(found.bouts)} | counts
    loudest = sorted((each for each in counts.items() if each[1]), key=lambda each: -each[1])[:5]
    suggestion = suggest(asked.watch, asked.job, asked.since(now), now, per_week)
    threshold, unit = asked.watch.kind.threshold, asked.watch.kind.unit
    return {
        "replay": found,
        "bouts": found.bouts[: -LISTED_BOUTS - 1 : -1],
        "total": sum(counts.values()),
        "counted": len(counts),
        "loudest": loudest if len(counts) > 1 else [],
        "suggestion": suggestion,
        "suggested_text": unit.text(suggestion.threshold) if suggestion else "",
        "suggested_value": field_of(threshold).prepare_value(suggestion.threshold) if suggestion and threshold else "",
        "per_week": per_week,
        "per_week_choices": PER_WEEK,
        "terms": asked.watch.terms,
    }


def _kind_of_jobs(name: str) -> Kind:
    """What clusters and Waymark went through is told on their own pages."""
    kind = known_kind(name)
    if kind.subject is not Subject.JOB:
        raise Http404
    return kind


def _form(request: HttpRequest, kind: Kind) -> RuleForm:
    """On a rule that is never saved."""
    rule = AlertRule.objects.filter(pk=_number(request, "rule"), kind=kind.name).first()
    if rule is None:
        rule = AlertRule(kind=kind.name, job=Job.objects.filter(pk=_number(request, "of_job")).first())
    return RuleForm(kind, rule, request.GET)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text[:18]) if text.isdecimal() else 0


def _scope(form: RuleForm) -> list[WatchedJob]:
    """The jobs that the rule is about by its own scope; that narrower rules decide for some of them is left aside."""
    if form.rule.job_id is not None:
        return watched_jobs([form.rule.job_id])
    chosen = parse(form.cleaned_data.get("selector") or "") if form.is_valid() else parse("")
    return sorted((job for job in watched_jobs() if chosen.matches(job.labels)), key=lambda job: job.name)


def _chosen(request: HttpRequest, jobs: list[WatchedJob]) -> Job | None:
    wanted = _number(request, "backtest_job")
    known = {job.pk for job in jobs}
    number = wanted if wanted in known else jobs[0].pk if jobs else 0
    return Job.objects.filter(pk=number).first()


def _per_week(request: HttpRequest) -> int:
    chosen = _number(request, "per_week")
    return chosen if chosen in PER_WEEK else PER_WEEK[0]


def _range(request: HttpRequest) -> str:
    chosen = request.GET.get("range", "")
    return chosen if chosen in RANGES else "7d"
