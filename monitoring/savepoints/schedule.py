"""Request scheduled savepoints. `next_savepoint_at` is the source of truth, so a lost tick loses no savepoint.

A cluster takes at most `savepoints_at_once` savepoints at the same time. The others stay due and wait; the one that is
due longest is next. The cluster's row is locked meanwhile, so that two workers do not request too many together.
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
from monitoring.savepoints.timetable import BadSchedule, Cron, Every, Quiet, Quieted, Timetable

log = logging.getLogger(__name__)

DEFER = timedelta(seconds=30)
# The waits after the first, second, … failure in a row. The last wait is used for all later failures.
RETRIES_AFTER = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=15),
    timedelta(hours=1),
    timedelta(hours=6),
)
SCHEDULE_COLUMNS = ("savepoint_interval_s", "savepoint_cron", "savepoint_time_zone", "savepoint_quiet")
_SCHEDULED = (Q(savepoint_interval_s__isnull=False) | ~Q(savepoint_cron="")) & Q(managed_elsewhere="")


def timetable_of(job: Job) -> Timetable | None:
    """Return the job's schedule, or None without one.

    Raises BadSchedule for a row that `set_schedule` did not store.
    """
    if job.savepoint_interval_s is not None:
        timetable: Every | Cron = Every(job.savepoint_interval_s)
    elif job.savepoint_cron:
        timetable = Cron(job.savepoint_cron, job.savepoint_time_zone)
    else:
        return None
    quiet = job.savepoint_quiet
    return Quieted(timetable, Quiet.parse(quiet, job.savepoint_time_zone)) if quiet else timetable


def put_schedule(job: Job, timetable: Timetable | None) -> None:
    """Write the timetable to the columns of `job`, which is not saved."""
    quiet = timetable.quiet if isinstance(timetable, Quieted) else None
    inner = timetable.inner if isinstance(timetable, Quieted) else timetable
    job.savepoint_interval_s = inner.seconds if isinstance(inner, Every) else None
    job.savepoint_cron = inner.expression if isinstance(inner, Cron) else ""
    job.savepoint_quiet = str(quiet or "")
    job.savepoint_time_zone = inner.zone if isinstance(inner, Cron) else quiet.zone if quiet else "UTC"


@transaction.atomic
def set_schedule(job: Job, timetable: Timetable | None, by: str, now: datetime) -> None:
    """Take savepoints at the times of this timetable from now on; None: take no scheduled savepoints."""
    put_schedule(job, timetable)
    job.next_savepoint_at = _next_of(job, now)
    job.save(update_fields=[*SCHEDULE_COLUMNS, "next_savepoint_at"])
    Savepoint.objects.filter(job=job, state=SavepointState.DEFERRED).delete()
    value = timetable.reason.as_json() if timetable else None
    audit.record(by, "savepoint.schedule", f"job {job.name}", schedule=str(timetable or "none"), schedule_value=value)


def request_due(now: datetime) -> Counter[Outcome]:
    """Request every due savepoint. One that is not possible now is deferred with the reason."""
    _set_first_times(now)
    due = Job.objects.filter(_SCHEDULED, next_savepoint_at__lte=now)
    outcome: Counter[Outcome] = Counter()
    for cluster_id in due.order_by().values_list("cluster", flat=True).distinct():
        outcome += _request_of_cluster(cluster_id, now)
    return outcome


def try_again(job: Job, now: datetime) -> None:
    """Move the job's next savepoint forward after a scheduled one has failed, because it may be a week away."""
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
        return Counter()  # another worker has locked the cluster, or it is being polled: the next tick tries again
    free = cluster.savepoints_at_once - Savepoint.objects.filter(job__cluster=cluster, state__in=IN_FLIGHT).count()
    due = Job.objects.filter(_SCHEDULED, cluster=cluster, next_savepoint_at__lte=now)
    outcome: Counter[Outcome] = Counter()
    waiting: list[Job] = []
    for job in due.select_related("cluster", "current_run").order_by("next_savepoint_at", "pk"):
        if outcome[WorkReason.SAVEPOINTS_REQUESTED] >= free:
            waiting.append(job)
        elif done := _request(job, now):
            outcome[done] += 1
    _defer_waiting(waiting, cluster, now)
    return outcome


def _request(job: Job, now: datetime) -> Outcome:
    """Request the job's savepoint and return the result, or None if the job has nothing to save."""
    quiet_until = _quiet_until(job, now)
    job.next_savepoint_at = quiet_until or _next_of(job, now)
    job.save(update_fields=["next_savepoint_at"])
    if quiet_until or job.current_run is None or _has_intended_end(job):
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


def _defer_waiting(jobs: Sequence[Job], cluster: Cluster, now: datetime) -> None:
    """Leave the jobs due, and store what they wait for, so that pages show it."""
    reason = SavepointReason.WAITS(cluster=cluster.name, count=cluster.savepoints_at_once)
    _defer([job for job in jobs if not _has_intended_end(job)], reason, now)


def _has_intended_end(job: Job) -> bool:
    """Return whether the job has an intended end, so that there is nothing to save until it runs again."""
    return job.current_run is not None and RunState(job.current_run.state) in (RunState.CANCELED, RunState.FINISHED)


def _defer(jobs: Sequence[Job], reason: Reason, now: datetime) -> None:
    """Store one row per job that says why its savepoint is late, and since when."""
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


def _quiet_until(job: Job, now: datetime) -> datetime | None:
    """Return when a savepoint that became late is due, if now is in the quiet hours of the job's schedule."""
    try:
        timetable = timetable_of(job)
    except BadSchedule:
        return None
    jitter = timedelta(seconds=job.cluster.savepoint_jitter_s)
    return timetable.over_at(now, job.pk, jitter) if isinstance(timetable, Quieted) else None


def _next_of(job: Job, now: datetime) -> datetime | None:
    """Return the job's next due time.

    The cluster's jitter spreads jobs with the same time, each by a constant delay.
    """
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
