"""Summarize the last hours for the next shift: incidents, restarts, failed savepoints, time without polls, failures.

A summary is plain data with reasons, so that a message stores it as JSON and renders it in the channel's language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db.models import Case, Q, QuerySet, When

from monitoring.alerts.failure_reason import PREFIXES
from monitoring.alerts.gathering.ordered import ABORTED, without_ordered_aborts
from monitoring.alerts.gathering.query import select
from monitoring.models import (
    AttemptState,
    Incident,
    IncidentState,
    Job,
    Outage,
    OutageKind,
    RestartAttempt,
    Savepoint,
    SavepointState,
    Severity,
)
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason, from_json

T = TypeVar("T")
HOURS = (8, 12, 24)
LISTED = 20  # rows of each list; the counts include all rows
WORST = 5  # the maximum number of jobs, and of outages, in the summary

# Checkpoints that failed within the time range. Triggers are at most two days older, so that few partitions are read.
_FAILED = """
FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
WHERE c.status = 'FAILED' AND c.failed_at > %(since)s AND c.failed_at <= %(until)s
  AND c.triggered_at > %(since)s - interval '2 days' AND c.triggered_at <= %(until)s
  AND (%(all)s OR r.job_id = ANY(%(jobs)s::bigint[]))
"""
_WAS_ABORTED = "coalesce(c.failure_message, '') LIKE ANY(%(aborted)s::text[])"
_FAILURES = f"SELECT r.job_id, count(*) {_FAILED} AND NOT {_WAS_ABORTED} GROUP BY 1"
_ABORTS = f"""
SELECT r.job_id, c.failed_at, 1, c.checkpoint_id, c.id, left(c.failure_message, 300), c.run_id
{_FAILED} AND {_WAS_ABORTED}
"""


@dataclass(frozen=True)
class Scope:
    """The rows of a summary. `jobs` are the jobs whose failures count; None: all."""

    incidents: QuerySet[Incident] = field(default_factory=Incident.objects.all)
    attempts: QuerySet[RestartAttempt] = field(default_factory=RestartAttempt.objects.all)
    savepoints: QuerySet[Savepoint] = field(default_factory=Savepoint.objects.all)
    outages: QuerySet[Outage] = field(default_factory=Outage.objects.all)
    jobs: Collection[int] | None = None


@dataclass(frozen=True)
class ShiftIncident:
    id: int
    subject: str
    severity: str
    state: str
    sentence: Reason | str
    opened_at: datetime
    resolved_at: datetime | None

    @property
    def state_label(self) -> str:
        return str(IncidentState(self.state).label)

    @property
    def severity_label(self) -> str:
        return str(Severity(self.severity).label)


@dataclass(frozen=True)
class ShiftRestart:
    id: int
    job: str
    epoch: int
    trigger: str
    state: str
    created_at: datetime
    ended_at: datetime | None
    error: Reason | str

    @property
    def state_label(self) -> str:
        return str(AttemptState(self.state).label)


@dataclass(frozen=True)
class ShiftSavepoint:
    id: int
    job: str
    requested_at: datetime
    failure: Reason | str


@dataclass(frozen=True)
class ShiftOutage:
    """A time without information about a cluster. `seconds` is its length within the summary."""

    cluster: str
    kind: str
    began_at: datetime
    ended_at: datetime | None
    seconds: float

    @property
    def kind_label(self) -> str:
        return str(OutageKind(self.kind).label)


@dataclass(frozen=True)
class ShiftJob:
    id: int
    job: str
    failed: int


@dataclass(frozen=True)
class Shift:
    """The summary of the time from `since_at` to `until_at`. Lists have at most LISTED or WORST rows.

    `incidents` are those that opened, were resolved or are open still, unresolved ones first; `outages` the longest
    ones first, `jobs` those with the most failed checkpoints.
    """

    since_at: datetime
    until_at: datetime
    opened: int
    resolved: int
    unresolved: int
    restarts_succeeded: int
    restarts_failed: int
    restarts_other: int
    savepoints_failed: int
    blind_s: float
    incidents: Sequence[ShiftIncident] = ()
    restarts: Sequence[ShiftRestart] = ()
    savepoints: Sequence[ShiftSavepoint] = ()
    outages: Sequence[ShiftOutage] = ()
    jobs: Sequence[ShiftJob] = ()

    @property
    def is_quiet(self) -> bool:
        return not (self.incidents or self.restarts or self.savepoints or self.outages or self.jobs)

    @property
    def restarts_in_total(self) -> int:
        return self.restarts_succeeded + self.restarts_failed + self.restarts_other


def read_shift(since: datetime, until: datetime, scope: Scope | None = None) -> Shift:
    """Return the summary of (since, until]."""
    scope = scope or Scope()
    within = Q(opened_at__gt=since, opened_at__lte=until)
    ended = Q(resolved_at__gt=since, resolved_at__lte=until)
    still = Q(opened_at__lte=until) & (~Q(state=IncidentState.RESOLVED) | Q(resolved_at__gt=until))
    states = Counter(_restarts(scope, since, until).values_list("state", flat=True))
    succeeded, failed = states[AttemptState.SUCCEEDED], states[AttemptState.FAILED]
    savepoints = _failed_savepoints(scope, since, until)
    outages = _outages(scope, since, until)
    return Shift(
        since_at=since,
        until_at=until,
        opened=scope.incidents.filter(within).count(),
        resolved=scope.incidents.filter(ended).count(),
        unresolved=scope.incidents.filter(still).count(),
        restarts_succeeded=succeeded,
        restarts_failed=failed,
        restarts_other=states.total() - succeeded - failed,
        savepoints_failed=savepoints.count(),
        blind_s=outages[0].seconds if outages else 0,
        incidents=_incidents(scope, within | ended | still),
        restarts=[_restart(each) for each in _restarts(scope, since, until).select_related("job")[:LISTED]],
        savepoints=[_savepoint(each) for each in savepoints.select_related("job")[:LISTED]],
        outages=outages[:WORST],
        jobs=_jobs(scope, since, until),
    )


def _incidents(scope: Scope, chosen: Q) -> list[ShiftIncident]:
    found = scope.incidents.filter(chosen).select_related("job", "cluster")
    is_over = Case(When(state=IncidentState.RESOLVED, then=1), default=0)
    is_mild = Case(When(severity=Severity.CRITICAL, then=0), default=1)
    rows = found.order_by(is_over, is_mild, "-opened_at", "-id")
    return [
        ShiftIncident(
            each.pk,
            each.subject,
            each.severity,
            each.state,
            stored(each, "sentence"),
            each.opened_at,
            each.resolved_at,
        )
        for each in rows[:LISTED]
    ]


def _restarts(scope: Scope, since: datetime, until: datetime) -> QuerySet[RestartAttempt]:
    """Return the attempts that began or ended within the time."""
    began, ended = Q(created_at__gt=since, created_at__lte=until), Q(ended_at__gt=since, ended_at__lte=until)
    return scope.attempts.filter(began | ended).order_by("-created_at", "-id")


def _restart(each: RestartAttempt) -> ShiftRestart:
    said = (each.trigger, each.state, each.created_at, each.ended_at, stored(each, "error"))
    return ShiftRestart(each.pk, each.job.name, each.epoch, *said)


def _failed_savepoints(scope: Scope, since: datetime, until: datetime) -> QuerySet[Savepoint]:
    """Return the failed savepoints by their requests, because the time of a failure is not known."""
    failed = scope.savepoints.filter(state=SavepointState.FAILED, requested_at__gt=since, requested_at__lte=until)
    return failed.order_by("-requested_at", "-id")


def _savepoint(each: Savepoint) -> ShiftSavepoint:
    return ShiftSavepoint(each.pk, each.job.name, each.requested_at, stored(each, "failure"))


def _outages(scope: Scope, since: datetime, until: datetime) -> list[ShiftOutage]:
    """Return the outages, the longest first."""
    found = scope.outages.filter(Q(ended_at=None) | Q(ended_at__gt=since), began_at__lt=until)
    rows = [
        ShiftOutage(
            each.cluster.name,
            OutageKind(each.kind).value,
            each.began_at,
            each.ended_at,
            (min(each.ended_at or until, until) - max(each.began_at, since)).total_seconds(),
        )
        for each in found.filter(cluster__archived_at=None).select_related("cluster")
    ]
    return sorted(rows, key=lambda each: (-each.seconds, each.cluster))


def _jobs(scope: Scope, since: datetime, until: datetime) -> list[ShiftJob]:
    """Return the jobs with the most failures, without checkpoints that were aborted on an order."""
    parameters = {
        "since": since,
        "until": until,
        "all": scope.jobs is None,
        "jobs": list(scope.jobs or ()),
        "aborted": [f"{PREFIXES[code]}%" for code in ABORTED],
    }
    failed: Counter[int] = Counter(dict(select(_FAILURES, parameters)))
    failed.update(row[0] for row in without_ordered_aborts(select(_ABORTS, parameters)))
    worst = failed.most_common(WORST)
    names = dict(Job.objects.filter(pk__in=[job for job, _ in worst]).values_list("pk", "name"))
    return [ShiftJob(job, names[job], count) for job, count in worst if job in names]


_LISTS: Mapping[str, type[Any]] = {
    "incidents": ShiftIncident,
    "restarts": ShiftRestart,
    "savepoints": ShiftSavepoint,
    "outages": ShiftOutage,
    "jobs": ShiftJob,
}


def as_json(shift: Shift) -> dict[str, Any]:
    """Return the summary as JSON values. Reasons have their code and arguments."""
    plain = {each.name: _plain(getattr(shift, each.name)) for each in fields(shift) if each.name not in _LISTS}
    rows = {name: [_row(each) for each in getattr(shift, name)] for name in _LISTS}
    return plain | rows


def from_stored(value: Mapping[str, Any]) -> Shift:
    """Return the summary that `as_json` wrote."""
    plain = {each.name: _read(each.name, value[each.name]) for each in fields(Shift) if each.name not in _LISTS}
    rows: dict[str, Any] = {name: [_load(kind, row) for row in value[name]] for name, kind in _LISTS.items()}
    return Shift(**plain, **rows)


def _row(row: Any) -> dict[str, Any]:
    return {each.name: _plain(getattr(row, each.name)) for each in fields(row)}


def _load(kind: type[T], row: Mapping[str, Any]) -> T:
    return kind(**{name: _read(name, value) for name, value in row.items()})


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case Reason():
            return value.as_json()
        case _:
            return value


def _read(name: str, value: Any) -> Any:
    if name.endswith("_at") and value is not None:
        return datetime.fromisoformat(value)
    if isinstance(value, Mapping):
        return from_json(value) or ""
    return value


def hours_of(shift: Shift) -> int:
    return round((shift.until_at - shift.since_at) / timedelta(hours=1))
