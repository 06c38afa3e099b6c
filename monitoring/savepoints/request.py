"""Request a savepoint: store its row with a trigger ID. The cycle sends it to the engine later."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from monitoring import audit
from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.models import (
    Checkpoint,
    CheckpointStatus,
    Job,
    Run,
    RunState,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.pauses import pause_reason
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.preflight import NotNow, PreflightFacts, preflight
from monitoring.savepoints.savers import saver_of

# Flink's `execution.checkpointing.timeout` also limits savepoints. Its default is used if a run's value is not known.
TIMEOUT = timedelta(minutes=10)
# Additional time for a request: it may wait for its turn, and a stop also waits until the job has ended.
MARGIN = timedelta(minutes=2)
LONGEST = timedelta(days=1)
# A savepoint that Waymark copies itself fails after this time.
COPIED_WITHIN = timedelta(hours=1)
# A schedule requests no savepoint if the last poll of the job is older than this or than three poll intervals: after a
# long outage of Waymark, the stored status may be RUNNING although the job is dead. A person may still request one.
SEEN_WITHIN = timedelta(minutes=1)
IN_FLIGHT = (SavepointState.REQUESTED, SavepointState.IN_PROGRESS)


class SavepointDeferred(Exception):
    """Raised if no savepoint can be requested now, with the `reason`. No request was sent to the engine."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        self.sentence = SavepointReason.NOT_NOW(reason=reason)
        super().__init__(str(self.sentence))


def request_savepoint(job: Job, origin: SavepointOrigin, by: str, now: datetime, stops_job: bool = False) -> Savepoint:
    """Store the request, which the next cycle sends. Raises SavepointDeferred.

    `stops_job`: the job ends with it (Flink's stop-with-savepoint). At most one is in flight per job.
    """
    if saver_of(job, "") is None:
        raise SavepointDeferred(EngineReason.ONLY_WATCHED())
    if stops_job and (why := job.cluster.why_not_controlled):
        raise SavepointDeferred(why)
    if stops_job and (resource := resource_of(job)) is not None:
        raise SavepointDeferred(SavepointReason.OPERATOR_STOPS(resource=str(JobResource.of(resource))))
    verdict = preflight(facts_of(job, now, scheduled=origin is SavepointOrigin.SCHEDULED))
    run = job.current_run
    if isinstance(verdict, NotNow) or run is None:
        raise SavepointDeferred(verdict.reason if isinstance(verdict, NotNow) else SavepointReason.NEVER_RAN())
    try:
        with transaction.atomic():
            savepoint = _write(job, run, origin, by, now, stops_job)
            action = "savepoint.stop" if stops_job else "savepoint.request"
            audit.record(by, action, f"job {job.name}", SavepointOrigin(origin).label, savepoint=savepoint.pk)
    except IntegrityError as error:
        raise SavepointDeferred(SavepointReason.UNDER_WAY()) from error
    return savepoint


def facts_of(job: Job, now: datetime, *, scheduled: bool) -> PreflightFacts:
    run = job.current_run
    saver = saver_of(job, "")
    under_way = Savepoint.objects.filter(job=job, state__in=IN_FLIGHT).exists() or (
        run is not None
        and Checkpoint.objects.filter(run=run, is_savepoint=True, status=CheckpointStatus.IN_PROGRESS).exists()
    )
    return PreflightFacts(
        run_state=None if run is None else RunState(run.state),
        unseen_since=_unseen_since(job, now) if scheduled else None,
        cluster_reachable=saver is not None and saver.cluster.reachable,
        savepoint_under_way=under_way,
        paused=pause_reason(job, now) if scheduled else None,
        # A schedule saves a query only while it runs: otherwise, equal savepoints would replace older ones.
        saves_idle=job.cluster.only_watched and not scheduled,
    )


def _unseen_since(job: Job, now: datetime) -> datetime | None:
    if job.current_run is None:
        return None
    seen = job.current_run.seen_at(job.cluster.last_answer_at)
    within = max(SEEN_WITHIN, timedelta(seconds=3 * job.cluster.poll_interval_s))
    return seen if now - seen > within else None


def time_limit(checkpoint_config: Mapping[str, Any]) -> timedelta:
    """Return how long a savepoint may take before Waymark gives it up.

    It is longer than the engine's limit, so that Waymark gives up no savepoint that is still in progress there.
    """
    timeout_ms = checkpoint_config.get("timeout")
    if not isinstance(timeout_ms, int | float) or not timeout_ms > 0:
        return TIMEOUT + MARGIN
    return min(timedelta(milliseconds=min(timeout_ms, LONGEST / timedelta(milliseconds=1))) + MARGIN, LONGEST)


def _write(job: Job, run: Run, origin: SavepointOrigin, by: str, now: datetime, stops_job: bool) -> Savepoint:
    if origin is SavepointOrigin.SCHEDULED:
        Savepoint.objects.filter(job=job, state=SavepointState.DEFERRED).delete()
    return Savepoint.objects.create(
        job=job,
        run=run,
        origin=origin,
        stops_job=stops_job,
        requested_by=by,
        requested_at=now,
        deadline_at=now + (COPIED_WITHIN if job.cluster.only_watched else time_limit(run.checkpoint_config)),
        next_check_at=now,
    )
