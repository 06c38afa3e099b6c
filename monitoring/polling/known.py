"""A worker's copy of a cluster's rows, which decides what must be read from the engine.

The rows are the source of truth. The copy is valid while the cluster's `revision` is unchanged: every poll that changes
a run or a checkpoint, by any worker, increases it. Only polls write these rows, but a copy is still discarded after
five minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from sys import intern

from django.db import connection
from django.db.models import OuterRef, Subquery

from monitoring.engine.answers import DEFAULT_HISTORY, CheckpointStats, JobOverview
from monitoring.engine.identity import Identity
from monitoring.models import Checkpoint, Cluster, QuerySource, RunState
from monitoring.polling.plan import PollSchedule, read_every_s
from monitoring.polling.starts import NO_STARTS, Starts, starts_among

REMEMBERED = timedelta(minutes=5)
TERMINAL = tuple(state for state in RunState if state.terminal)
_TERMINAL = frozenset(TERMINAL)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """The copy of a run's row.

    `vertices`: IDs of its operators. `unfinished`: IDs of stored checkpoints that are pending or whose figures per
    subtask are not read yet. `in_progress`: the engine's number of pending checkpoints at the last read.
    `elsewhere`: the run of a query whose job another cluster has, so the copy is of its QuerySource.
    """

    key: int
    name: str
    state: str
    moved_at: datetime | None
    vertices: tuple[str, ...]
    has_config: bool
    restored_at: datetime | None
    newest_checkpoint: int | None
    unfinished: frozenset[int]
    in_progress: int
    next_read_at: datetime | None
    missing: bool
    final_read_done: bool
    schedule: PollSchedule
    elsewhere: bool = False

    @property
    def live(self) -> bool:
        return self.state not in _TERMINAL

    def moved(self, job: JobOverview) -> bool:
        """Return whether the job's status has changed since the last read, even if it is now the same again."""
        return job.state != self.state or job.moved_at != self.moved_at

    def due(self, job: JobOverview, since: datetime | None, now: datetime) -> bool:
        """Return whether the run must be read, given the engine's present report. `since`: see Cluster.read_until."""
        if self.moved(job):  # also read a dead run, which may have restarted and died again between two polls
            return True
        if not self.live:
            return not self.final_read_done
        if since is None:
            return True
        asked_for = self.next_read_at is not None and self.next_read_at <= now
        return asked_for or self.schedule.polls_between(since, now)

    @property
    def is_expected(self) -> bool:
        """Return whether the engine should list the run."""
        return not self.elsewhere and (self.live or not self.final_read_done)

    @property
    def has_backlog(self) -> bool:
        """Return whether figures must be read before they are due by the run's schedule.

        They must if there are more unfinished checkpoints than pending ones, and the last read had no problem.
        """
        return self.live and len(self.unfinished) > max(1, self.in_progress) and self.next_read_at is None


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The last answer about a run's checkpoints, which is already stored.

    `entries`: all listed checkpoints by ID. For unfinished ones, the figures per subtask are not read yet.
    """

    digest: int | None = None
    entries: Mapping[int, CheckpointStats] = field(default_factory=dict)


@dataclass(frozen=True)
class KnownCluster:
    """The copy of a cluster's rows, by engine job ID.

    `runs`: runs that live, are not completely read, or are listed by the engine. `jobs`: the last answer. `starts`:
    starts of listed jobs without a known run.
    """

    revision: int
    read_at: datetime
    settings: tuple[object, ...] = ()
    needs_version: bool = False
    read_until: datetime | None = None
    runs: Mapping[str, KnownRun] = field(default_factory=dict)
    jobs: Mapping[str, JobOverview] = field(default_factory=dict)
    answers: Mapping[str, StoredAnswer] = field(default_factory=dict)
    adopted_at: datetime | None = None
    identity: Identity | None = None
    starts: Starts = NO_STARTS

    def holds(self, cluster: Cluster, now: datetime) -> bool:
        return (
            self.revision == cluster.revision
            and self.settings == _settings(cluster)
            and self.read_at <= now < self.read_at + REMEMBERED
        )

    def differs_from(self, jobs: Mapping[str, JobOverview]) -> bool:
        """Return whether jobs appeared or disappeared.

        Then the poller first checks that it is still the same cluster.
        """
        gone = any(job_id not in jobs for job_id, run in self.runs.items() if run.live and not run.elsewhere)
        return gone or any(job_id not in self.runs and not self.starts.hide(job) for job_id, job in jobs.items())

    def expected(self) -> set[str]:
        """Return the engine job IDs of runs that the engine should list."""
        return {job_id for job_id, run in self.runs.items() if run.is_expected}


def recall(cluster: Cluster, remembered: KnownCluster | None, now: datetime) -> KnownCluster:
    """Return the copy for a cluster that was just claimed: the remembered one if valid, else one from the rows."""
    # A time in the future was written while the clock was wrong.
    read_until = cluster.read_until if cluster.read_until is None or cluster.read_until <= now else None
    reported = {
        "needs_version": not cluster.version or not cluster.reachable,
        "read_until": read_until,
        "identity": Identity.from_row(cluster.identity) if cluster.identity else None,
    }
    if remembered is not None and remembered.holds(cluster, now):
        return replace(remembered, **reported)  # type: ignore[arg-type]
    runs = unread_runs(cluster)
    if remembered is None and cluster.identity is None:
        reported["needs_version"] = True
    # Another worker may have written since. A stored answer is used only if its job ID still belongs to the same run.
    before = remembered.runs if remembered is not None else {}
    same = {job_id for job_id, run in runs.items() if job_id in before and before[job_id].key == run.key}
    answers = remembered.answers if remembered is not None else {}
    return KnownCluster(
        cluster.revision,
        now,
        _settings(cluster),
        runs=runs,
        answers={job_id: answer for job_id, answer in answers.items() if job_id in same},
        **reported,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Stored:
    """The rows of engine job IDs that are not in the copy."""

    runs: Mapping[str, KnownRun] = field(default_factory=dict)
    starts: Starts = NO_STARTS


def stored_of(cluster: Cluster, job_ids: AbstractSet[str]) -> Stored:
    runs = named_runs(cluster, job_ids)
    if cluster.only_watched:
        runs |= _seen_elsewhere(cluster, job_ids - runs.keys())
    return Stored(runs, starts_among(cluster, job_ids - runs.keys()))


def named_runs(cluster: Cluster, job_ids: Collection[str]) -> dict[str, KnownRun]:
    """Return the stored runs of these engine job IDs."""
    return _stored(cluster, "run.engine_job_id = ANY(%(ids)s)", ids=list(job_ids)) if job_ids else {}


def unread_runs(cluster: Cluster) -> dict[str, KnownRun]:
    """Return the stored runs that live or are not completely read."""
    which = "(run.state <> ALL(%(terminal)s) OR NOT run.final_read_done)"
    return _stored(cluster, which, terminal=[state.value for state in TERMINAL])


# After a rename, two jobs may have a run with the same engine job ID: the later run counts.
_STORED = """
SELECT run.engine_job_id, run.id, {name}, run.state, run.moved_at,
       ARRAY(SELECT vertex ->> 'id' FROM jsonb_array_elements(run.vertices) vertex),
       run.checkpoint_config -> 'timeout' IS NOT NULL, run.restored_at, newest.checkpoint_id,
       ARRAY(SELECT checkpoint_id FROM monitoring_checkpoint WHERE run_id = run.id AND NOT final),
       run.next_read_at, run.missing_since IS NOT NULL, run.final_read_done,
       (run.checkpoint_config ->> 'interval')::float8, coalesce((run.counts ->> 'in_progress')::bigint, 0)
FROM monitoring_run run
JOIN monitoring_job job ON job.id = run.job_id
LEFT JOIN LATERAL (
    SELECT checkpoint_id FROM monitoring_checkpoint WHERE run_id = run.id ORDER BY checkpoint_id DESC LIMIT 1
) newest ON TRUE
WHERE job.cluster_id = %(cluster)s AND NOT run.superseded AND {which}
ORDER BY run.started_at
"""


# The name of the job of a watched query may come from another cluster. This is the cluster's own name of it.
_OWN_NAME = """coalesce((
    SELECT source.name
    FROM monitoring_querysource source JOIN monitoring_watchedquery query ON query.id = source.query_id
    WHERE query.job_id = job.id AND source.cluster_id = job.cluster_id ORDER BY source.id DESC LIMIT 1
), job.name)"""


def _stored(cluster: Cluster, which: str, **given: list[str]) -> dict[str, KnownRun]:
    with connection.cursor() as cursor:
        name = _OWN_NAME if cluster.only_watched else "job.name"
        cursor.execute(_STORED.format(which=which, name=name), {"cluster": cluster.pk, **given})
        return {row[0]: _known_run(cluster, *row) for row in cursor.fetchall()}


def _known_run(
    cluster: Cluster,
    job_id: str,
    key: int,
    name: str,
    state: str,
    moved_at: datetime | None,
    vertices: list[str],
    has_config: bool,
    restored_at: datetime | None,
    newest_checkpoint: int | None,
    unfinished: list[int],
    next_read_at: datetime | None,
    missing: bool,
    final_read_done: bool,
    interval_ms: float | None,
    in_progress: int,
) -> KnownRun:
    history = cluster.history_length or DEFAULT_HISTORY
    every_s = read_every_s(interval_ms, cluster.poll_interval_s, history, pending=in_progress > 0)
    return KnownRun(
        key=key,
        name=name,
        state=state,
        moved_at=moved_at,
        vertices=tuple(map(intern, vertices)),
        has_config=has_config,
        restored_at=restored_at,
        newest_checkpoint=newest_checkpoint,
        unfinished=frozenset(unfinished),
        in_progress=in_progress,
        next_read_at=next_read_at,
        missing=missing,
        final_read_done=final_read_done,
        schedule=_poll_schedule(cluster, job_id, every_s),
    )


def _seen_elsewhere(cluster: Cluster, job_ids: Collection[str]) -> dict[str, KnownRun]:
    """Return runs of these IDs that this cluster also sees, but whose jobs other clusters have."""
    newest = Checkpoint.objects.filter(run=OuterRef("query__job__current_run")).order_by("-checkpoint_id")
    rows = QuerySource.objects.filter(cluster=cluster, engine_job_id__in=job_ids).exclude(query__job__cluster=cluster)
    read = rows.annotate(newest=Subquery(newest.values("checkpoint_id")[:1]))
    return {
        each.engine_job_id: KnownRun(
            key=0,
            name=each.name,
            state=each.state,
            moved_at=each.moved_at,
            vertices=(),
            has_config=True,
            restored_at=None,
            newest_checkpoint=each.newest,
            unfinished=frozenset(),
            in_progress=0,
            next_read_at=None,
            missing=False,
            final_read_done=True,
            schedule=_poll_schedule(
                cluster, each.engine_job_id, read_every_s(None, cluster.poll_interval_s, pending=False)
            ),
            elsewhere=True,
        )
        for each in read
    }


def _poll_schedule(cluster: Cluster, job_id: str, every_s: float) -> PollSchedule:
    """Return the schedule of the run's polls.

    For a run that is read at each tick, its moments are halfway between the ticks, so that a late tick misses none.
    """
    if every_s == cluster.poll_interval_s:
        return PollSchedule.of(cluster.name, every_s).halfway()
    return PollSchedule.of(job_id, every_s)


def _settings(cluster: Cluster) -> tuple[object, ...]:
    """Return the settings that determine the schedules."""
    return cluster.poll_interval_s, cluster.history_length
