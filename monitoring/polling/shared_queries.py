"""Store a query that several clusters see as one job.

Each cluster that lists a query is one of its sources. One source leads: only its polls store runs of the job. A poll
does this for each query that it has read:

1. Lock the query's row, and store how this source lists the query.
2. Give a new query its job.
3. Make this source the leading one if it is a better kind of source, or if the leading one lost sight of the query.
4. If this source leads, store its runs. Otherwise, only add batches and figures that the leading source does not have.

A poll locks its own cluster, then its queries in the order of their IDs, and no other cluster: polls cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Max, Q

from monitoring.continuing import cancel_live_runs, continue_watched
from monitoring.engine.answers import TERMINAL_STATES, CheckpointStats, JobOverview
from monitoring.engine.evidence import Answered
from monitoring.models import (
    WATCHED_DISCOVERIES,
    Checkpoint,
    CheckpointGap,
    CheckpointStatus,
    Cluster,
    Discovery,
    Job,
    QuerySource,
    Run,
    RunState,
    RunStateChange,
    WatchedQuery,
)
from monitoring.polling.known import KnownRun
from monitoring.polling.observation import ClusterObservation, RunObservation
from monitoring.polling.plan import PollSchedule
from monitoring.polling.rows import checkpoint_columns
from monitoring.polling.runs import job_name, jobs_of
from monitoring.reasons import columns as reasons
from monitoring.reasons.engines import EngineReason

# Sources have the clocks of drivers and of storage. They measure the end of a batch at different places.
CLOCKS_DIFFER = timedelta(seconds=10)
# A leading source that does not answer keeps its jobs for this long.
SILENT = timedelta(minutes=2)
# From the worst kind of source to the best one.
_KINDS: tuple[str, ...] = (Discovery.DIRECTORY, Discovery.EVENT_LOG, Discovery.AGENT)
_UNKNOWN = (RunState.RECONCILING, RunState.LOST)
_FIGURES = ("latest_ack_at", "end_to_end_duration", "state_size")
_LISTED = ("engine_job_id", "name", "state", "moved_at")


@dataclass(frozen=True)
class _Seen:
    """A query as this cluster's poll sees it.

    `newest`: its newest listed run. `read`: its runs that this poll has read. `others`: the kinds of its other sources,
    without disabled clusters. `earlier`: how this cluster listed the query before, None if it did not.
    """

    query: WatchedQuery
    newest: JobOverview
    read: tuple[RunObservation, ...]
    others: tuple[str, ...]
    earlier: QuerySource | None

    @property
    def name(self) -> str:
        return job_name(self.newest.name)

    @property
    def newest_end(self) -> datetime | None:
        """When the newest completed batch ended, as far as this poll has read."""
        ends = (batch.totals.latest_ack_at for run in self.read for batch in run.listed.values())
        return max((at for at in ends if at is not None), default=None)


def settle(cluster: Cluster, observation: ClusterObservation, now: datetime) -> ClusterObservation:
    """Return the part of the observation that this cluster's poll stores as runs, and do the rest.

    Must be called in the transaction that stores the observation, after the cluster's row was locked.
    """
    if not cluster.only_watched or not (observation.runs or observation.missing):
        return observation
    seen = _lock(cluster, observation)
    _note_source(cluster, seen)
    _give_jobs(cluster, seen)
    jobs = Job.objects.select_related("cluster", "current_run").in_bulk({each.query.job_id for each in seen})
    runs, known = dict(observation.runs), dict(observation.known.runs)
    elsewhere: set[str] = set()
    for each in seen:
        job = jobs[each.query.job_id or 0]
        if job.cluster_id != cluster.pk and _should_lead(cluster, job, each, now):
            job = _make_leading(cluster, job, each, now)
            known = {key: run for key, run in known.items() if not run.elsewhere}
        leads = job.cluster_id == cluster.pk
        if job.cluster.only_watched and (each.others or not leads):
            is_best = leads and all(_is_better(cluster.discovery, other) for other in each.others)
            _add_figures(job, each.read, is_best=is_best)
        ids = {run.job.id for run in each.read}
        stored = _unstored(cluster, job, each) if leads else []
        runs = {key: run for key, run in runs.items() if key not in ids} | {run.job.id: run for run in stored}
        if not leads:
            elsewhere |= ids
    _end_copies(cluster, elsewhere, now)
    known = {key: run for key, run in known.items() if key not in elsewhere}
    for key in observation.runs.keys() - runs.keys():
        if _is_read_to_its_end(observation.runs[key]):
            known[key] = _remembered(cluster, observation.runs[key].job)
    return replace(observation, runs=runs, known=replace(observation.known, runs=known))


def continue_imported(cluster: Cluster, observation: ClusterObservation, now: datetime) -> None:
    """Give new jobs of this cluster that continue watched queries the history of the watched jobs."""
    new = {
        job_name(each.job.name): each.job_config.imported_queries
        for key, each in observation.runs.items()
        if key not in observation.known.runs and each.job_config is not None and each.job_config.imported_queries
    }
    continue_watched(cluster, new, now)


# --- 1. lock the queries ---------------------------------------------------------------------------------------------


def _lock(cluster: Cluster, observation: ClusterObservation) -> list[_Seen]:
    """Lock the rows of the queries that this poll has read, after creating new ones, and those of missing runs."""
    read: dict[str, list[RunObservation]] = {}
    for run in observation.runs.values():
        read.setdefault(run.job.query_id, []).append(run)
    listed = observation.answer.jobs.values() if isinstance(observation.answer, Answered) else ()
    in_order = sorted(listed, key=lambda job: (job.started_at, job.id))
    newest = {job.query_id: job for job in in_order if job.query_id and job.query_id in read}
    queries = _locked_rows(cluster, sorted(newest), observation.missing)
    earlier = {each.query_id: each for each in QuerySource.objects.filter(cluster=cluster, query__in=queries)}
    others: dict[int, list[str]] = {query.pk: [] for query in queries}
    enabled = QuerySource.objects.filter(query__in=queries, cluster__enabled=True).exclude(cluster=cluster)
    for source in enabled.select_related("cluster"):
        others[source.query_id].append(source.cluster.discovery)
    return [
        _Seen(
            query, newest[query.query_id], tuple(read[query.query_id]), tuple(others[query.pk]), earlier.get(query.pk)
        )
        for query in queries
    ]


def _locked_rows(cluster: Cluster, query_ids: list[str], missing: Collection[str]) -> list[WatchedQuery]:
    stored = set(WatchedQuery.objects.filter(query_id__in=query_ids).values_list("query_id", flat=True))
    new = [WatchedQuery(query_id=each) for each in query_ids if each not in stored]
    WatchedQuery.objects.bulk_create(new, ignore_conflicts=True)
    gone = Run.objects.filter(job__cluster=cluster, engine_job_id__in=missing).values("job")
    rows = WatchedQuery.objects.filter(Q(query_id__in=query_ids) | Q(job__in=gone)).order_by("query_id")
    return [each for each in rows.select_for_update() if each.query_id in query_ids]


def _note_source(cluster: Cluster, seen: Iterable[_Seen]) -> None:
    """Store how this cluster lists the queries, as far as it has changed."""
    rows = []
    for each in seen:
        listed = (each.newest.id, each.name, each.newest.state, each.newest.moved_at)
        if each.earlier is None or listed != tuple(getattr(each.earlier, column) for column in _LISTED):
            row = dict(zip(_LISTED, listed, strict=True))
            rows.append(QuerySource(cluster=cluster, query=each.query, **row))
    QuerySource.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["cluster", "query"], update_fields=_LISTED
    )


# --- 2. give new queries their jobs ----------------------------------------------------------------------------------


def _give_jobs(cluster: Cluster, seen: Iterable[_Seen]) -> None:
    """Give each new query the job of this cluster's earlier query with this name, or else the cluster's job of it."""
    jobs = Job.objects.select_related("cluster", "current_run").in_bulk({each.query.job_id for each in seen} - {None})
    new = [each for each in seen if _needs_job(cluster, jobs.get(each.query.job_id or 0), each)]
    if not new:
        return
    names = {each.name for each in new}
    earlier = QuerySource.objects.filter(
        cluster=cluster,
        name__in=names,
        query__job__cluster__archived_at=None,
        query__job__cluster__discovery__in=WATCHED_DISCOVERIES,
    )
    earlier = earlier.exclude(query__in=[each.query for each in new])
    found = dict(earlier.order_by("pk").values_list("name", "query__job"))
    created = jobs_of(cluster, names - found.keys())
    for each in new:
        each.query.job_id = found.get(each.name) or created[each.name].pk
    WatchedQuery.objects.bulk_update([each.query for each in new], ["job"])


def _needs_job(cluster: Cluster, job: Job | None, seen: _Seen) -> bool:
    """Return whether the query is new, or does not belong to its job any more."""
    if job is None:
        return True
    if job.cluster_id == cluster.pk:  # the only source has renamed the query
        return seen.earlier is not None and not seen.others and seen.earlier.name != seen.name
    if job.cluster.only_watched:  # this cluster was added after the job's cluster was removed
        return job.cluster.archived_at is not None and seen.earlier is None
    # Waymark ran the job. The query may continue without Waymark after the end of that run.
    run = job.current_run
    has_ended = run is not None and not run.live and _is_after_end(seen.newest_end, run.ended_at)
    return has_ended or job.cluster.archived_at is not None


def _is_after_end(batch_ended_at: datetime | None, ended_at: datetime | None) -> bool:
    """Return whether a batch certainly ended after the end of a run."""
    return ended_at is not None and batch_ended_at is not None and batch_ended_at > ended_at + CLOCKS_DIFFER


# --- 3. choose the leading source ------------------------------------------------------------------------------------


def _is_better(kind: str, other: str) -> bool:
    return _KINDS.index(kind) > _KINDS.index(other)


def _should_lead(cluster: Cluster, job: Job, seen: _Seen, now: datetime) -> bool:
    """Return whether this source leads from now on: it knows the query's status, and the leading one does not.

    If both know it, the better kind of source leads. An end is known only if no other source sees a later batch.
    """
    leading, run, newest = job.cluster, job.current_run, seen.newest
    if leading.archived_at is not None or not leading.only_watched:
        return leading.only_watched
    if newest.state in _UNKNOWN:
        return False
    is_silent = leading.unreachable_since is not None and now - leading.unreachable_since > SILENT
    if run is None or is_silent or not leading.enabled or run.missing_since is not None or run.state in _UNKNOWN:
        return True
    if _is_better(cluster.discovery, leading.discovery):
        stored: datetime | None = Checkpoint.objects.filter(run=run).aggregate(at=Max("latest_ack_at"))["at"]
        return not _is_after_end(stored, newest.ended_at)
    return not run.live and newest.state not in TERMINAL_STATES and _is_after_end(seen.newest_end, run.ended_at)


def _make_leading(cluster: Cluster, job: Job, seen: _Seen, now: datetime) -> Job:
    """Make this cluster the leading source, and return the job.

    A live run continues under this cluster's ID for it. The job gets this source's name only if this is a better kind
    of source. If the cluster already has a job of this name, a better source merges the query into that job.
    """
    is_better = _is_better(cluster.discovery, job.cluster.discovery)
    name = seen.name if is_better else job.name
    namesake = Job.objects.filter(cluster=cluster, name=name).exclude(pk=job.pk).first()
    if namesake is not None and is_better:
        _end(job, now)
        WatchedQuery.objects.filter(pk=seen.query.pk).update(job=namesake)
        return namesake
    if namesake is not None:
        name = f"{name[:480]} {seen.query.query_id[:8]}"
    job.cluster, job.name = cluster, name
    job.save(update_fields=["cluster", "name"])
    _continue_run(job, cluster, seen.newest.id, now)
    return job


def _continue_run(job: Job, cluster: Cluster, engine_job_id: str, now: datetime) -> None:
    """Let the job's run continue under another ID, if it has not ended."""
    run = job.current_run
    if run is None or run.engine_job_id == engine_job_id or not (run.live or run.state == RunState.LOST):
        return
    why = reasons.columns("why", EngineReason.SEEN_THROUGH(cluster=str(cluster)))
    RunStateChange.objects.create(run=run, at=now, source=run.state, target=run.state, **why)
    Run.objects.filter(job=job, engine_job_id=engine_job_id).update(superseded=True)
    Run.objects.filter(pk=run.pk).update(
        engine_job_id=engine_job_id, counts={}, missing_since=None, missing_polls=0, final_read_done=False
    )
    Checkpoint.objects.filter(run=run, status=CheckpointStatus.IN_PROGRESS).delete()


def _end_copies(cluster: Cluster, ids: Collection[str], now: datetime) -> None:
    """End this cluster's own jobs of queries that now belong to jobs of other clusters.

    An earlier version of Waymark stored one job for each cluster that saw a query.
    """
    runs = Run.objects.filter(engine_job_id__in=ids, job__cluster=cluster, superseded=False, ended_at=None)
    for job in Job.objects.filter(pk__in=runs.values("job")) if ids else ():
        _end(job, now)


def _end(job: Job, now: datetime) -> None:
    """End a job whose query belongs to another job. The job keeps its history under another name."""
    cancel_live_runs(job, EngineReason.SEEN_AS_ANOTHER(), now)
    Job.objects.filter(pk=job.pk).update(name=f"{job.name[:480]} ({job.pk})")


# --- 4. as the leading source: choose the runs to store --------------------------------------------------------------


def _unstored(cluster: Cluster, job: Job, seen: _Seen) -> list[RunObservation]:
    """Return the runs under the job's name, without parts that were stored through another source.

    Another source may have stored them as parts of another run, because a directory does not show where runs end.
    """
    left = list(seen.read)
    if seen.others:
        stored = list(Run.objects.filter(job__watched_queries=seen.query, superseded=False))
        parts = (_unstored_part(cluster, run, stored, seen.newest.id) for run in seen.read)
        left = [part for part in parts if part is not None]
    if job.name == seen.name:
        return left
    return [replace(run, job=replace(run.job, name=job.name)) for run in left]


def _unstored_part(
    cluster: Cluster, observed: RunObservation, stored: Collection[Run], newest_id: str
) -> RunObservation | None:
    others = [run for run in stored if run.engine_job_id != observed.job.id]
    is_new = len(others) == len(stored)
    if is_new and observed.job.id != newest_id and any(_overlaps(observed.job, run) for run in others):
        return None
    ends = [run.ended_at for run in others if run.ended_at is not None]
    return _after(observed, max(ends)) if ends and cluster.discovery == Discovery.DIRECTORY else observed


def _overlaps(listed: JobOverview, run: Run) -> bool:
    return (listed.ended_at is None or listed.ended_at > run.started_at) and (
        run.ended_at is None or run.ended_at > listed.started_at
    )


def _after(observed: RunObservation, end: datetime) -> RunObservation:
    """Return the part of the run after the end of the earlier runs."""
    later = {key: each for key, each in observed.listed.items() if _ended_or_began(each) > end}
    read = {key: each for key, each in observed.readings.items() if not each.stats or _ended_or_began(each.stats) > end}
    job = replace(observed.job, started_at=max(observed.job.started_at, end))
    return replace(observed, job=job, listed=later, readings=read)


def _ended_or_began(batch: CheckpointStats) -> datetime:
    return batch.totals.latest_ack_at or batch.triggered_at


# --- 4. as another source: add missing batches and figures -----------------------------------------------------------


def _add_figures(job: Job, read: Iterable[RunObservation], *, is_best: bool) -> None:
    """Add completed batches and figures that other sources did not report. The best source also corrects theirs."""
    listed = {
        key: batch
        for observed in read
        for key, batch in observed.listed.items()
        if batch.status == CheckpointStatus.COMPLETED and batch.totals.latest_ack_at is not None
    }
    run = job.current_run
    if not listed or run is None:
        return
    rows = list(Checkpoint.objects.filter(run__job=job, checkpoint_id__in=listed))
    for row in rows:
        found = {name: getattr(listed[row.checkpoint_id].totals, name) for name in _FIGURES}
        news = {
            name: value
            for name, value in found.items()
            if value is not None and value != getattr(row, name) and (is_best or getattr(row, name) is None)
        }
        if news and row.status == CheckpointStatus.COMPLETED and _is_same(row, listed[row.checkpoint_id]):
            Checkpoint.objects.filter(pk=row.pk).update(**news)
    if not is_best:
        _add_missed(run, listed, {row.checkpoint_id for row in rows})


def _add_missed(run: Run, listed: Mapping[int, CheckpointStats], stored: Collection[int]) -> None:
    """Add batches before the newest one of the run: the leading source would have listed them by now."""
    newest = Checkpoint.objects.filter(run=run).aggregate(newest=Max("checkpoint_id"))["newest"] or 0
    missed = [key for key in listed.keys() - stored if key < newest and _ended_or_began(listed[key]) > run.started_at]
    Checkpoint.objects.bulk_create([_row(run, listed[key]) for key in sorted(missed)])
    for gap in CheckpointGap.objects.filter(run=run) if missed else ():
        ids = range(gap.first_id, gap.last_id + 1)
        if Checkpoint.objects.filter(run=run, checkpoint_id__in=ids).count() == len(ids):
            gap.delete()


def _is_same(row: Checkpoint, batch: CheckpointStats) -> bool:
    """Return whether both are one batch. Numbers begin again if a checkpoint was deleted or restored."""
    ends = row.latest_ack_at, batch.totals.latest_ack_at
    return None in ends or abs(ends[0] - ends[1]) <= CLOCKS_DIFFER  # type: ignore[operator]


def _row(run: Run, batch: CheckpointStats) -> Checkpoint:
    columns = checkpoint_columns(batch, None, settled_before=run.started_at)
    return Checkpoint(run=run, checkpoint_id=batch.id, **{**(columns or {}), "final": True})


# --- ended runs that this cluster does not store ---------------------------------------------------------------------


def _is_read_to_its_end(observed: RunObservation) -> bool:
    return observed.due and not observed.problem and observed.job.state in TERMINAL_STATES


def _remembered(cluster: Cluster, job: JobOverview) -> KnownRun:
    """Return a copy for an ended run without a row, so that the next polls do not read the run again."""
    return KnownRun(
        key=0,
        name=job_name(job.name),
        state=job.state,
        moved_at=job.moved_at,
        vertices=(),
        has_config=True,
        restored_at=None,
        newest_checkpoint=None,
        unfinished=frozenset(),
        in_progress=0,
        next_read_at=None,
        missing=False,
        final_read_done=True,
        schedule=PollSchedule.of(job.id, cluster.poll_interval_s),
        elsewhere=True,
    )
