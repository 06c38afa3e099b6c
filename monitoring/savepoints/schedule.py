"""The savepoints of a job that are due. `next_savepoint_at` is the truth; a tick that was lost is found again by it.

A cluster takes at most `savepoints_at_once` of them together. The others stay due and wait for their turn, the longest
due first; the cluster's row, locked while they are counted and asked for, keeps two workers from asking for too many.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from monitoring import audit
from monitoring.models import Cluster, Job, RunState, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.claims import Outcome
from monitoring.savepoints.request import IN_FLIGHT, SavepointDeferred, request_savepoint
from monitoring.savepoints.timetable import BadSchedule, Cron, Every, Timetable

log = logging.getLogger(__name__)

DEFER = timedelta(seconds=30)
# After the first, second, … failure in a row; the last of them after all that follow.
RETRIES_AFTER = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(hours=6),
)
_SCHEDULED = (Q(savepoint_interval_s__isnull=False) | ~Q(savepoint_cron="")) & Q(managed_elsewhere="")


def timetable_of(job: Job) -> Timetable | None:
    """None: the job has no schedule. Raises BadSchedule for one that `set_schedule` would never have saved."""
    if job.savepoint_interval_s is not None:
        return Every(job.savepoint_interval_s)
    return Cron(job.savepoint_cron, job.savepoint_time_zone) if job.savepoint_cron else None


@transaction.atomic
def set_schedule(job: Job, timetable: Timetable | None, by: str, now: datetime) -> None:
    """Save by this timetable from now on; None: no longer."""
    job.savepoint_interval_s = timetable.seconds if isinstance(timetable, Every) else None
    job.savepoint_cron = timetable.expression if isinstance(timetable, Cron) else ""
    job.savepoint_time_zone = timetable.zone if isinstance(timetable, Cron) else "UTC"
    job.next_savepoint_at = _next_of(job, now)
    job.save(update_fields=["savepoint_interval_s", "savepoint_cron", "savepoint_time_zone", "next_savepoint_at"])
    Savepoint.objects.filter(job=job, state=SavepointState.DEFERRED).delete()
    value = timetable.reason.as_json() if timetable else None
    audit.record(by, "savepoint.schedule", f"job {job.name}", schedule=str(timetable or "none"), schedule_value=value)


def request_due(now: datetime) -> Counter[Outcome]:
    """Ask for every savepoint whose time has come; what cannot be now is deferred with its reason."""
    _set_first_times(now)
    due = Job.objects.filter(_SCHEDULED, next_savepoint_at__lte=now)
    outcome: Counter[Outcome] = Counter()
    for cluster_id in due.order_by().values_list("cluster", flat=True).distinct():
        outcome += _request_of_cluster(cluster_id, now)
    return outcome


def try_again(job: Job, now: datetime) -> None:
    """A scheduled savepoint of `job` has failed: its next time may be a week away."""
    of_schedule = Savepoint.objects.filter(job=job, origin=SavepointOrigin.SCHEDULED)
    good = Savepoint.objects.filter(job=job, state=SavepointState.COMPLETED).order_by("-requested_at").first()
    since = of_schedule.filter(requested_at__gt=good.requested_at) if good else of_schedule
    failures = since.filter(state=SavepointState.FAILED)[: len(RETRIES_AFTER)].count()
    soon = now + RETRIES_AFTER[max(failures, 1) - 1]
    Job.objects.filter(_SCHEDULED, pk=job.pk, next_savepoint_at__gt=soon).update(next_savepoint_at=soon)


def _set_first_times(now: datetime) -> None:
    for job in Job.objects.filter(_SCHEDULED, next_savepoint_at=None).select_related("cluster"):
        Job.objects.filter(pk=job.pk, next_savepoint_at=None).update(next_savepoint_at=_next_of(job, now))


@transaction.atomic
def _request_of_cluster(cluster_id: int, now: datetime) -> Counter[Outcome]:
    cluster = Cluster.objects.select_for_update(skip_locked=True).filter(pk=cluster_id).first()
    if cluster is None:
        return Counter()  # another worker is at it, or it is being polled: at the next tick
    free = cluster.savepoints_at_once - Savepoint.objects.filter(job__cluster=cluster, state__in=IN_FLIGHT).count()
    due = Job.objects.filter(_SCHEDULED, cluster=cluster, next_savepoint_at__lte=now)
    outcome: Counter[Outcome] = Counter()
    waiting: list[Job] = []
    for job in due.select_related("cluster", "current_run").order_by("next_savepoint_at", "pk"):
        if outcome[WorkReason.SAVEPOINTS_REQUESTED] >= free:
            waiting.append(job)
        elif done := _request(job, now):
            outcome[done] += 1
    _let_wait(waiting, cluster, now)
    return outcome


def _request(job: Job, now: datetime) -> Outcome:
    """What came of it; None when there is nothing to save."""
    job.next_savepoint_at = _next_of(job, now)
    job.save(update_fields=["next_savepoint_at"])
    if job.current_run is None or _ended_as_wished(job):
        return None
    try:
        request_savepoint(job, SavepointOrigin.SCHEDULED, audit.AUTOMATION, now)
    except SavepointDeferred as deferred:
        soon = now + DEFER
        job.next_savepoint_at = min(job.next_savepoint_at or soon, soon)
        job.save(update_fields=["next_savepoint_at"])
        _defer([job], deferred.reason, now)
        return WorkReason.SAVEPOINTS_DEFERRED
    return WorkReason.SAVEPOINTS_REQUESTED


def _let_wait(jobs: Sequence[Job], cluster: Cluster, now: datetime) -> None:
    """They stay due; the page says what they wait for."""
    at_once = cluster.savepoints_at_once
    code = SavepointReason.WAITS if at_once != 1 else SavepointReason.WAITS_FOR_ONE
    reason = code(cluster=cluster.name, count=at_once)
    _defer([job for job in jobs if not _ended_as_wished(job)], reason, now)


def _ended_as_wished(job: Job) -> bool:
    """By a person or by itself: there is nothing to save until it runs again."""
    return job.current_run is not None and RunState(job.current_run.state) in (RunState.CANCELED, RunState.FINISHED)


def _defer(jobs: Sequence[Job], reason: Reason, now: datetime) -> None:
    """One row per job says why its savepoint is late, since when."""
    rows = [
        Savepoint(
            job=job,
            run=job.current_run,
            state=SavepointState.DEFERRED,
            origin=SavepointOrigin.SCHEDULED,
            requested_by=audit.AUTOMATION,
            requested_at=now,
            **columns("failure", reason),
        )
        for job in jobs
        if job.current_run is not None
    ]
    if rows:
        Savepoint.objects.bulk_create(rows, ignore_conflicts=True)
        there = Savepoint.objects.filter(job__in=jobs, state=SavepointState.DEFERRED)
        others = [each.pk for each in there if stored(each, "failure") != reason]
        there.filter(pk__in=others).update(**columns("failure", reason))


def _next_of(job: Job, now: datetime) -> datetime | None:
    """Jobs that are due at one moment are spread over the cluster's jitter, each always at its own place in it."""
    return next_time(job, timetable_of, now, timedelta(seconds=job.cluster.savepoint_jitter_s))


def next_time(
    job: Job, timetable_of: Callable[[Job], Timetable | None], now: datetime, jitter: timedelta = timedelta()
) -> datetime | None:
    """Return the next due time of `job` by one of its schedules, None without a schedule.

    None, too, for a schedule that cannot be read: every tick tries again, and the other jobs continue.
    """
    try:
        timetable = timetable_of(job)
    except BadSchedule:
        log.exception("job %s: a schedule of it cannot be read", job)
        return None
    return None if timetable is None else timetable.after(now, job.pk, jitter)
