"""What changed for a job in a time range: program, configuration, parallelism, runs, stops, maintenance and input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.contrib.humanize.templatetags.humanize import intcomma
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from dashboard.audit_texts import actor_name
from dashboard.queries.input_rates import read_rate_change
from dashboard.queries.series import SHORTEST, RunStart, Span, read_run_starts
from dashboard.templatetags.figures import setting
from monitoring.alerts.maintenance import covers
from monitoring.launches import what_changed
from monitoring.models import (
    AttemptState,
    AuditEntry,
    ChangeKind,
    ConfigurationChange,
    ConfigurationPart,
    Incident,
    Job,
    MaintenanceWindow,
    RestartAttempt,
    RestartTrigger,
    Run,
    Savepoint,
    SavepointOrigin,
)

MOST_CHANGES = 50
_MOST_KEYS = 200
_KEYS_SHOWN = 2
_VALUE_LENGTH = 60


class Changed(StrEnum):
    """The kinds of changes, each with its label."""

    PROGRAM = noop("Program")
    CONFIGURATION = noop("Configuration")
    PARALLELISM = noop("Parallelism")
    RUN = noop("Run")
    RESTART = noop("Restart")
    STOP = noop("Stop")
    MAINTENANCE = noop("Maintenance")
    INPUT_RATE = noop("Input rate")


@dataclass(frozen=True)
class JobChange:
    """A change. `sentence` is in the language of the page. `url` is the page with the details."""

    at: datetime
    kind: Changed
    sentence: str
    url: str


def read_changes(job: Job, span: Span) -> list[JobChange]:
    """Return the newest changes within a span, newest first. The number of statements is constant."""
    sources = (_runs, _unsuccessful_restarts, _configuration, _stops, _cancellations, _maintenance, _input_rate)
    found = [change for source in sources for change in source(job, span)]
    return sorted(found, key=lambda change: change.at, reverse=True)[:MOST_CHANGES]


def before_and_after(job_id: int, at: datetime, length: timedelta, now: datetime) -> str:
    """Return the URL of the comparison of the time before and after a change.

    Both sides have the same length: at most `length`, and not longer than the time that has passed since the change.
    """
    length = max(SHORTEST, min(length, now - at))
    before, after = _range_text(at - length, at), _range_text(at, at + length)
    return f"{reverse('job-compare', args=[job_id])}?{urlencode({'a': before, 'b': after})}"


def with_comparisons(
    changes: Sequence[JobChange], job_id: int, length: timedelta, now: datetime
) -> list[tuple[JobChange, str]]:
    """Return each change with the URL of its comparison."""
    return [(change, before_and_after(job_id, change.at, length, now)) for change in changes]


def _range_text(start: datetime, end: datetime) -> str:
    return "/".join(timezone.localtime(at).isoformat(timespec="seconds") for at in (start, end))


def _runs(job: Job, span: Span) -> Iterator[JobChange]:
    """Yield starts of runs (not of the first one), restarts by the engine, and runs that began with a new program."""
    starts = read_run_starts(job, span)
    numbers = {start.number for start in starts if not start.by_engine}
    runs = Run.objects.filter(job=job, number__in=numbers | {number - 1 for number in numbers})
    known = {run.number: run for run in runs.select_related("launch_version").only("number", "launch_version")}
    found = RestartAttempt.objects.filter(job=job, new_run__number__in=numbers)
    attempts = {attempt.new_run_id: attempt for attempt in found}
    for start in starts:
        run = known.get(start.number)
        attempt = attempts.get(run.pk) if run and not start.by_engine else None
        url = reverse("restart-progress", args=[attempt.pk]) if attempt else reverse("job-runs", args=[job.pk])
        kind = Changed.RESTART if attempt or start.by_engine else Changed.RUN
        yield JobChange(start.at, kind, _run_text(start, attempt), url)
        if run and not start.by_engine and (program := _program_text(known.get(start.number - 1), run)):
            yield JobChange(start.at, Changed.PROGRAM, program, reverse("job-launch", args=[job.pk]))


def _run_text(start: RunStart, attempt: RestartAttempt | None) -> str:
    if start.by_engine:
        parts = [_("The engine restarted run %(number)s") % {"number": start.number}]
    else:
        parts = [_("Run %(number)s started") % {"number": start.number}]
    parts += [_("restored from %(state)s") % {"state": start.restored}] if start.restored else []
    return " · ".join([*parts, _restart_text(attempt)] if attempt else parts)


def _restart_text(attempt: RestartAttempt) -> str:
    values = {"epoch": attempt.epoch, "trigger": _(RestartTrigger(attempt.trigger).label)}
    if not attempt.requested_by:
        return _("restart %(epoch)s (%(trigger)s)") % values
    by = {"by": actor_name(attempt.requested_by)}
    return _("restart %(epoch)s (%(trigger)s), requested by %(by)s") % (values | by)


def _program_text(before: Run | None, run: Run) -> str:
    was, version = before.launch_version if before else None, run.launch_version
    if was is None or version is None or was.pk == version.pk:
        return ""
    names = what_changed(was.spec, version.spec)
    text = _("Run %(number)s uses version %(version)s of the launch settings. Changed: %(changed)s")
    return text % {
        "number": run.number,
        "version": version.number,
        "changed": ", ".join(_(name.replace("_", " ")) for name in names) or "–",
    }


def _unsuccessful_restarts(job: Job, span: Span) -> Iterator[JobChange]:
    """Yield restarts that started no run, or not yet."""
    found = job.restart_attempts.filter(new_run=None, created_at__range=(span.start, span.end))
    for attempt in found[:MOST_CHANGES]:
        values = {"restart": _restart_text(attempt), "state": _(AttemptState(attempt.state).label)}
        url = reverse("restart-progress", args=[attempt.pk])
        yield JobChange(attempt.created_at, Changed.RESTART, _("%(restart)s: %(state)s") % values, url)


def _configuration(job: Job, span: Span) -> Iterator[JobChange]:
    """Yield one change for all keys of a part that changed at the same time."""
    rows = job.configuration_changes.filter(at__range=(span.start, span.end)).order_by("-at", "part", "id")[:_MOST_KEYS]
    url = reverse("job-configuration", args=[job.pk])
    for (at, part), keys in groupby(rows, key=lambda row: (row.at, row.part)):
        kind = Changed.PARALLELISM if part == ConfigurationPart.OPERATORS else Changed.CONFIGURATION
        yield JobChange(at, kind, _keys_text(list(keys)), url)


def _keys_text(rows: Sequence[ConfigurationChange]) -> str:
    text = ", ".join(f"{row.key}: {_values_text(row)}" for row in rows[:_KEYS_SHOWN])
    more = len(rows) - _KEYS_SHOWN
    if more <= 0:
        return text
    return f"{text} {_('and %(count)s more') % {'count': more}}"


def _values_text(row: ConfigurationChange) -> str:
    before = _("not set") if row.kind == ChangeKind.ADDED else _value_text(row.before, row.key)
    after = _("not set") if row.kind == ChangeKind.REMOVED else _value_text(row.after, row.key)
    return f"{before} → {after}"


def _value_text(value: Any, key: str) -> str:
    text = setting(value, key)
    return text if len(text) <= _VALUE_LENGTH else f"{text[: _VALUE_LENGTH - 1]}…"


def _stops(job: Job, span: Span) -> Iterator[JobChange]:
    """Yield stops with a savepoint. Those of a restart are part of it."""
    found = Savepoint.objects.filter(job=job, stops_job=True, requested_at__range=(span.start, span.end))
    for savepoint in found.exclude(origin=SavepointOrigin.RESTART)[:MOST_CHANGES]:
        by = actor_name(savepoint.requested_by) if savepoint.requested_by else _("waymark")
        text = _("Stop with a savepoint, requested by %(by)s") % {"by": by}
        yield JobChange(savepoint.requested_at, Changed.STOP, text, reverse("savepoint", args=[savepoint.pk]))


def _cancellations(job: Job, span: Span) -> Iterator[JobChange]:
    """Yield requests to cancel the job. Its engine's IDs distinguish it from jobs of this name on other clusters."""
    entries = AuditEntry.objects.filter(
        target=f"job {job.name}"[:600], action="job.cancel", at__range=(span.start, span.end)
    )[:MOST_CHANGES]
    ours = set(job.runs.values_list("engine_job_id", flat=True)) if entries else set()
    for entry in entries:
        if entry.details.get("engine_job_id") in ours:
            text = _("Cancellation, requested by %(by)s") % {"by": actor_name(entry.actor)}
            yield JobChange(entry.at, Changed.STOP, text, reverse("job-runs", args=[job.pk]))


def _maintenance(job: Job, span: Span) -> Iterator[JobChange]:
    """Yield the starts and the ends of maintenance windows that cover the job."""
    found = MaintenanceWindow.objects.filter(starts_at__lte=span.end, ends_at__gte=span.start)
    concerned = Incident(job=job, cluster=job.cluster)
    for window in found.order_by("-starts_at")[:MOST_CHANGES]:
        if not covers(window, concerned):
            continue
        # A reader of this job may not open a window of its whole cluster.
        own = window.job_id == job.pk
        url = reverse("maintenance-window", args=[window.pk]) if own else reverse("maintenance")
        values = {"reason": window.reason}
        if window.starts_at >= span.start:
            yield JobChange(window.starts_at, Changed.MAINTENANCE, _("Maintenance began: %(reason)s") % values, url)
        if window.ends_at <= span.end:
            yield JobChange(window.ends_at, Changed.MAINTENANCE, _("Maintenance ended: %(reason)s") % values, url)


def _input_rate(job: Job, span: Span) -> Iterator[JobChange]:
    if found := read_rate_change(job, span):
        values = {"before": _rate_text(found.before), "after": _rate_text(found.after)}
        text = _("%(before)s → %(after)s rows/s") % values
        yield JobChange(found.at, Changed.INPUT_RATE, text, reverse("job", args=[job.pk]))


def _rate_text(rows_per_s: float) -> str:
    return intcomma(round(rows_per_s)) if rows_per_s >= 10 else f"{rows_per_s:.1f}".removesuffix(".0")
