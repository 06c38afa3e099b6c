"""Settle stops of application clusters, which end with their jobs before Waymark has read the result.

A stop or a cancellation that the cluster has accepted, and then silence for HOLD_DOWN, means that the job has ended. A
request without a stored answer proves nothing. The savepoint of a stop is in storage: below the cluster's directory of
savepoints, or in the directories of earlier savepoints of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from monitoring.engine.evidence import ReportedEnd
from monitoring.engine.identity import Application, application_in
from monitoring.models import Checkpoint, Cluster, Run, RunState, Savepoint, SavepointState
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.history import CLOCK_SKEW, plain_path
from monitoring.savepoints.storage_threads import TimeLimit
from monitoring.savepoints.stored import LISTED_WITHIN_S, FoundSavepoint, savepoints_in

HOLD_DOWN = timedelta(seconds=30)
# The number of earlier savepoints whose directories are searched.
_EARLIER = 20
# Of each job ID, Flink uses this many digits in the name of a savepoint.
_DIGITS = 6
_TERMINAL = tuple(state.value for state in RunState if state.terminal)


@dataclass(frozen=True)
class FoundAfterStop:
    path: str


@dataclass(frozen=True)
class NotFoundAfterStop:
    why: Reason


@dataclass(frozen=True)
class StopSearch:
    """A search for the savepoint of a stop: in these directories, of this job, newer than the order and `above`.

    `above` is the number of the run's last known checkpoint. `known`: plain paths of other savepoints.
    `silent_since`: the beginning of the cluster's silence.
    """

    directories: tuple[str, ...]
    job_id: str
    since: datetime
    above: int
    known: frozenset[str]
    silent_since: datetime

    def run(self) -> FoundAfterStop | NotFoundAfterStop:
        """Search. This blocks. Raise StorageSilent."""
        found: list[FoundSavepoint] = []
        searched = []
        time_limit = TimeLimit(LISTED_WITHIN_S)
        for directory in self.directories:
            listed = savepoints_in(directory, self.job_id[:_DIGITS], self.since, time_limit)
            if listed is not None:
                searched.append(directory)
                found += [each for each in listed if self._fits(each)]
        if found:
            return FoundAfterStop(max(found, key=lambda each: each.checkpoint_id).path)
        if searched:
            return NotFoundAfterStop(SavepointReason.ENDED_UNFOUND(since=self.silent_since, places=searched))
        places: Sequence[Reason | str] = self.directories or [SavepointReason.NO_DIRECTORY_KNOWN()]
        return NotFoundAfterStop(SavepointReason.ENDED_UNSEARCHED(since=self.silent_since, places=places))

    def _fits(self, found: FoundSavepoint) -> bool:
        return found.checkpoint_id > self.above and plain_path(found.path) not in self.known


def search_for(savepoint: Savepoint, now: datetime) -> StopSearch | None:
    """Return the search for the savepoint of a stop whose cluster is silent, None if there is nothing to conclude."""
    cluster, application = savepoint.job.cluster, application_in(savepoint.job.cluster.identity)
    silent_since = cluster.unreachable_since
    accepted = savepoint.stops_job and savepoint.state == SavepointState.IN_PROGRESS
    if not accepted or application is None or silent_since is None:
        return None
    if now - silent_since < _conclusive_after(application):
        return None
    paths = list(savepoint.job.savepoints.exclude(path="").values_list("path", flat=True)[:_EARLIER])
    places = [application.savepoints.rstrip("/"), *(path.rstrip("/").rpartition("/")[0] for path in paths)]
    by_plain_path = {plain_path(place): place for place in reversed(places) if place}
    seen = Checkpoint.objects.filter(run=savepoint.run, triggered_at__lt=savepoint.requested_at)
    last = seen.order_by("-checkpoint_id").first()
    return StopSearch(
        tuple(reversed(by_plain_path.values())),
        savepoint.run.engine_job_id,
        savepoint.requested_at - CLOCK_SKEW,
        0 if last is None else last.checkpoint_id,
        frozenset(map(plain_path, paths)),
        silent_since,
    )


def _conclusive_after(application: Application) -> timedelta:
    """Return how long the cluster must be silent before it has ended: another job manager may take the job over."""
    return HOLD_DOWN + timedelta(seconds=application.takeover_s)


def was_canceled(run: Run, cluster: Cluster) -> bool:
    """Return whether the engine accepted to cancel the run, and did not still list it more than HOLD_DOWN later.

    A run that was listed as CANCELLING last was canceled too, also without a request of Waymark.
    """
    if run.state == RunState.CANCELLING or run.cancel_accepted_at is None:
        return run.state == RunState.CANCELLING
    return run.seen_at(cluster.last_answer_at) - run.cancel_accepted_at <= HOLD_DOWN


def canceled_ends(cluster: Cluster, now: datetime) -> dict[str, ReportedEnd]:
    """Return the ends of canceled runs, by engine job ID. Only for a cluster that is silent."""
    application, unreachable_since = application_in(cluster.identity), cluster.unreachable_since
    if application is None or unreachable_since is None:
        return {}
    runs = Run.objects.filter(job__cluster=cluster, superseded=False).exclude(state__in=_TERMINAL)
    ends: dict[str, ReportedEnd] = {}
    for run in runs.filter(Q(cancel_accepted_at__isnull=False) | Q(state=RunState.CANCELLING)):
        silent_since = max(unreachable_since, run.cancel_accepted_at or unreachable_since)
        if was_canceled(run, cluster) and now - silent_since >= _conclusive_after(application):
            ends[run.engine_job_id] = ReportedEnd(RunState.CANCELED, silent_since, EngineReason.CANCELED())
    return ends


def stopped_ends(cluster: Cluster, now: datetime) -> dict[str, ReportedEnd]:
    """Return the ends of stopped runs, by engine job ID. Only for a cluster that does not answer.

    Flink reports the savepoint of a stop as complete only after the job has finished.
    """
    if application_in(cluster.identity) is None or cluster.unreachable_since is None:
        return {}
    stops = Savepoint.objects.filter(job__cluster=cluster, stops_job=True, posted_at__isnull=False)
    of_live_runs = stops.exclude(run__state__in=_TERMINAL).select_related("run").order_by("requested_at", "id")
    ends: dict[str, ReportedEnd] = {}
    for stop in of_live_runs:
        ends.pop(stop.run.engine_job_id, None)  # a later stop of the same run
        if (end := _end_by(stop, cluster, now)) is not None:
            ends[stop.run.engine_job_id] = end
    return ends


def _end_by(stop: Savepoint, cluster: Cluster, now: datetime) -> ReportedEnd | None:
    if has_ended_unsaved(stop, cluster):
        # Its checkpoints may remain, unlike those of a FINISHED job.
        return ReportedEnd(RunState.CANCELED, now, SavepointReason.STOPPED_UNSAVED())
    if stop.state != SavepointState.COMPLETED or stop.completed_at is None:
        return None
    # The cluster listed the run long after the stop, so the stop failed after the savepoint was complete.
    is_alive = cluster.read_until is not None and cluster.read_until - stop.completed_at > HOLD_DOWN
    return None if is_alive else ReportedEnd(RunState.FINISHED, stop.completed_at, SavepointReason.STOPPED())


def has_ended_unsaved(stop: Savepoint, cluster: Cluster) -> bool:
    """Return whether the search for the savepoint of the stop found none, in the present silence of the cluster."""
    why, since = stop.failure_value, cluster.unreachable_since
    if stop.state != SavepointState.FAILED or why is None or since is None:
        return False
    unfound = (SavepointReason.ENDED_UNFOUND, SavepointReason.ENDED_UNSEARCHED)
    return why.code in unfound and why.args["since"] == since.isoformat()
