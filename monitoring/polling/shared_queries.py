"""Give a query that several clusters see one job, whose runs the polls of one cluster store: the leading source.

The leading source is the best one that knows how the query is. The other sources add what it does not know.

Polls of several clusters may see a query at the same time. Each poll holds the lock of its own cluster, and then locks
the rows of its queries in the order of their ids. It locks no row of another cluster, so polls cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
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
from monitoring.polling.observation import ClusterObservation, RunObservation
from monitoring.polling.rows import checkpoint_columns
from monitoring.polling.runs import job_name, jobs_of
from monitoring.reasons import columns as reasons
from monitoring.reasons.engines import EngineReason

# Sources have the clocks of drivers and of storage. They measure the end of a batch at different places.
CLOCKS_DIFFER = timedelta(seconds=10)
# A leading source that does not answer keeps its jobs for this long.
SILENT = timedelta(minutes=2)
_RANKS: tuple[str, ...] = (Discovery.DIRECTORY, Discovery.EVENT_LOG, Discovery.AGENT)
_UNKNOWN = (RunState.RECONCILING, RunState.LOST)
_FIGURES = ("latest_ack_at", "end_to_end_duration", "state_size")

Seen = Mapping[str, list[RunObservation]]


def settle(cluster: Cluster, observation: ClusterObservation, now: datetime) -> ClusterObservation:
    """Return what the poll of this cluster stores: the runs of queries of which it is the leading source.

    Must be called in the transaction that stores the observation, after the cluster's row was locked.
    """
    if not cluster.only_watched or not (observation.runs or observation.missing):
        return observation
    seen: dict[str, list[RunObservation]] = defaultdict(list)
    for each in observation.runs.values():
        seen[each.job.query_id].append(each)
    newest = _newest(observation, seen)
    queries = _locked(cluster, newest.keys(), observation.missing)
    others = QuerySource.objects.filter(query__in=queries, cluster__enabled=True).exclude(cluster=cluster)
    shared: dict[int, list[str]] = defaultdict(list)
    for source in others.select_related("cluster"):
        shared[source.query_id].append(source.cluster.discovery)
    known = _note_sources(cluster, queries, newest)
    _give_jobs(cluster, queries, newest, known, shared.keys(), seen)
    jobs = Job.objects.select_related("cluster", "current_run").in_bulk({query.job_id for query in queries})
    runs: dict[str, RunObservation | None] = dict(observation.runs)
    elsewhere: set[str] = set()
    for query in queries:
        job, listed, mine = jobs[query.job_id or 0], newest[query.query_id], seen[query.query_id]
        if job.cluster_id != cluster.pk and _takes_over(cluster, job, listed, mine, now):
            job = _take_over(cluster, query, job, listed, now)
        leads, ranks = job.cluster_id == cluster.pk, [_RANKS.index(each) for each in shared[query.pk]]
        if job.cluster.only_watched and (ranks or not leads):
            _add_figures(job, mine, is_best=leads and _RANKS.index(cluster.discovery) > max(ranks))
        if not leads:
            elsewhere.update(each.job.id for each in mine)
            continue
        if ranks:
            runs |= _unstored(cluster, query, listed, mine)
        if job.name != job_name(listed.name):
            runs |= {each.job.id: _with_name(runs[each.job.id], job.name) for each in mine}
    _end_copies(cluster, elsewhere, now)
    copies = {key: each for key, each in observation.known.runs.items() if key not in elsewhere}
    left = {key: each for key, each in runs.items() if each is not None and key not in elsewhere}
    return replace(observation, runs=left, known=replace(observation.known, runs=copies))


def continue_imported(cluster: Cluster, observation: ClusterObservation, now: datetime) -> None:
    """Let new jobs of this cluster that continue watched queries have the history of the watched jobs."""
    new = {
        job_name(each.job.name): each.job_config.imported_queries
        for key, each in observation.runs.items()
        if key not in observation.known.runs and each.job_config is not None and each.job_config.imported_queries
    }
    continue_watched(cluster, new, now)


def _with_name(observed: RunObservation | None, name: str) -> RunObservation | None:
    return observed and replace(observed, job=replace(observed.job, name=name))


def _newest(observation: ClusterObservation, seen: Collection[str]) -> dict[str, JobOverview]:
    """Return the newest listed run of each query."""
    listed = observation.answer.jobs.values() if isinstance(observation.answer, Answered) else ()
    in_order = sorted(listed, key=lambda job: (job.started_at, job.id))
    return {job.query_id: job for job in in_order if job.query_id and job.query_id in seen}


def _locked(cluster: Cluster, query_ids: Iterable[str], missing: Collection[str]) -> list[WatchedQuery]:
    """Return the rows of the queries, which are created if necessary. Those of missing runs are locked, too."""
    ids = sorted(query_ids)
    stored = set(WatchedQuery.objects.filter(query_id__in=ids).values_list("query_id", flat=True))
    new = [WatchedQuery(query_id=each) for each in ids if each not in stored]
    WatchedQuery.objects.bulk_create(new, ignore_conflicts=True)
    gone = Run.objects.filter(job__cluster=cluster, engine_job_id__in=missing).values("job")
    rows = WatchedQuery.objects.filter(Q(query_id__in=ids) | Q(job__in=gone)).order_by("query_id")
    return [each for each in rows.select_for_update() if each.query_id in ids]


def _note_sources(
    cluster: Cluster, queries: Collection[WatchedQuery], newest: Mapping[str, JobOverview]
) -> dict[int, QuerySource]:
    """Store how the cluster lists the queries. Return the earlier rows, by query."""
    known = {each.query_id: each for each in QuerySource.objects.filter(cluster=cluster, query__in=queries)}
    rows = []
    for query in queries:
        job, before = newest[query.query_id], known.get(query.pk)
        values = (job.id, job_name(job.name), job.state, job.moved_at)
        if before is None or values != (before.engine_job_id, before.name, before.state, before.moved_at):
            row = dict(zip(_LISTED, values, strict=True))
            rows.append(QuerySource(cluster=cluster, query=query, **row))
    QuerySource.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["cluster", "query"], update_fields=_LISTED
    )
    return known


_LISTED = ("engine_job_id", "name", "state", "moved_at")


def _give_jobs(
    cluster: Cluster,
    queries: Iterable[WatchedQuery],
    newest: Mapping[str, JobOverview],
    known: Mapping[int, QuerySource],
    shared: Collection[int],
    seen: Seen,
) -> None:
    """Give each new query its job: that of the earlier query with this name, or the one of this cluster.

    A query is also new if its only source has renamed it, if its job is of a removed cluster and this one did not see
    it then, or if Waymark ran the job and the query continues without Waymark. `known`: this cluster's earlier sources.
    `shared`: queries with others.
    """
    keys = {query.job_id for query in queries} - {None}
    jobs = Job.objects.select_related("cluster", "current_run").in_bulk(keys)
    fresh = []
    for query in queries:
        job, before = jobs.get(query.job_id or 0), known.get(query.pk)
        if job is not None and job.cluster_id == cluster.pk:
            is_new = (
                before is not None and query.pk not in shared and before.name != job_name(newest[query.query_id].name)
            )
        elif job is not None and not job.cluster.only_watched:
            run = job.current_run
            has_ended = run is not None and not run.live and _continues(run.ended_at, _newest_of(seen[query.query_id]))
            is_new = has_ended or job.cluster.archived_at is not None
        else:
            is_new = job is None or (job.cluster.archived_at is not None and before is None)
        if is_new:
            fresh.append(query)
    if not fresh:
        return
    names = {query.pk: job_name(newest[query.query_id].name) for query in fresh}
    earlier = QuerySource.objects.filter(
        cluster=cluster,
        name__in=names.values(),
        query__job__cluster__archived_at=None,
        query__job__cluster__discovery__in=WATCHED_DISCOVERIES,
    )
    earlier = earlier.exclude(query__in=fresh)
    found = dict(earlier.order_by("pk").values_list("name", "query__job"))
    created = jobs_of(cluster, set(names.values()) - found.keys())
    for query in fresh:
        name = names[query.pk]
        query.job_id = found.get(name) or created[name].pk
    WatchedQuery.objects.bulk_update(fresh, ["job"])


def _takes_over(
    cluster: Cluster,
    job: Job,
    listed: JobOverview,
    mine: Iterable[RunObservation],
    now: datetime,
) -> bool:
    """Return whether this cluster becomes the leading source: it knows how the query is, and the leading one does not.

    Or it knows more. An end is known only if no other source sees a later batch.
    """
    lead, run = job.cluster, job.current_run
    if lead.archived_at is not None or not lead.only_watched:
        return lead.only_watched
    if listed.state in _UNKNOWN:
        return False
    is_silent = lead.unreachable_since is not None and now - lead.unreachable_since > SILENT
    if run is None or is_silent or not lead.enabled or run.missing_since is not None or run.state in _UNKNOWN:
        return True
    if _RANKS.index(cluster.discovery) > _RANKS.index(lead.discovery):
        return not _continues(listed.ended_at, _newest_commit(run))
    return not run.live and listed.state not in TERMINAL_STATES and _continues(run.ended_at, _newest_of(mine))


def _continues(ended_at: datetime | None, committed_at: datetime | None) -> bool:
    return ended_at is not None and committed_at is not None and committed_at > ended_at + CLOCKS_DIFFER


def _newest_commit(run: Run) -> datetime | None:
    at: datetime | None = Checkpoint.objects.filter(run=run).aggregate(at=Max("latest_ack_at"))["at"]
    return at


def _newest_of(observed: Iterable[RunObservation]) -> datetime | None:
    ends = (entry.totals.latest_ack_at for each in observed for entry in each.listed.values())
    return max((at for at in ends if at is not None), default=None)


def _take_over(cluster: Cluster, query: WatchedQuery, job: Job, listed: JobOverview, now: datetime) -> Job:
    """Make this cluster the leading source, and return the job.

    The run that lives continues under this cluster's ID of it. The job has the name from the best source that led. If
    that cluster already has a job of this name, the query belongs to that one.
    """
    is_better, run = _RANKS.index(cluster.discovery) > _RANKS.index(job.cluster.discovery), job.current_run
    name = job_name(listed.name) if is_better else job.name
    rival = Job.objects.filter(cluster=cluster, name=name).exclude(pk=job.pk).first()
    if rival is not None and is_better:
        _end(job, now)
        WatchedQuery.objects.filter(pk=query.pk).update(job=rival)
        return rival
    if rival is not None:
        name = f"{name[:480]} {query.query_id[:8]}"
    job.cluster, job.name = cluster, name
    job.save(update_fields=["cluster", "name"])
    if run is None or run.engine_job_id == listed.id or not (run.live or run.state == RunState.LOST):
        return job
    why = reasons.columns("why", EngineReason.SEEN_THROUGH(cluster=str(cluster)))
    RunStateChange.objects.create(run=run, at=now, source=run.state, target=run.state, **why)
    Run.objects.filter(job=job, engine_job_id=listed.id).update(superseded=True)
    Run.objects.filter(pk=run.pk).update(
        engine_job_id=listed.id, counts={}, missing_since=None, missing_polls=0, final_read_done=False
    )
    Checkpoint.objects.filter(run=run, status=CheckpointStatus.IN_PROGRESS).delete()
    return job


def _end_copies(cluster: Cluster, ids: Collection[str], now: datetime) -> None:
    """End this cluster's jobs of queries that belong to jobs of other clusters now, such as of an older Waymark."""
    runs = Run.objects.filter(engine_job_id__in=ids, job__cluster=cluster, superseded=False, ended_at=None)
    for job in Job.objects.filter(pk__in=runs.values("job")) if ids else ():
        _end(job, now)


def _end(job: Job, now: datetime) -> None:
    """End a job whose query belongs to another job. Its history stays, under another name."""
    cancel_live_runs(job, EngineReason.SEEN_AS_ANOTHER(), now)
    Job.objects.filter(pk=job.pk).update(name=f"{job.name[:480]} ({job.pk})")


def _unstored(
    cluster: Cluster, query: WatchedQuery, newest: JobOverview, mine: Iterable[RunObservation]
) -> dict[str, RunObservation | None]:
    """Return the runs without what was stored through another source, as a part of another run of the job."""
    stored = list(Run.objects.filter(job__watched_queries=query, superseded=False))
    left: dict[str, RunObservation | None] = {}
    for each in mine:
        others = [run for run in stored if run.engine_job_id != each.job.id]
        ends = [run.ended_at for run in others if run.ended_at is not None]
        is_new = len(others) == len(stored)
        if is_new and each.job.id != newest.id and any(_overlaps(each.job, run) for run in others):
            left[each.job.id] = None
        elif ends and cluster.discovery == Discovery.DIRECTORY:
            left[each.job.id] = _after(each, max(ends))
    return left


def _after(observed: RunObservation, end: datetime) -> RunObservation:
    """Return a run that begins after the end of the earlier ones, with its batches."""
    later = {key: each for key, each in observed.listed.items() if _ended_or_began(each) > end}
    read = {key: each for key, each in observed.readings.items() if not each.stats or _ended_or_began(each.stats) > end}
    job = replace(observed.job, started_at=max(observed.job.started_at, end))
    return replace(observed, job=job, listed=later, readings=read)


def _ended_or_began(batch: CheckpointStats) -> datetime:
    return batch.totals.latest_ack_at or batch.triggered_at


def _overlaps(listed: JobOverview, run: Run) -> bool:
    return (listed.ended_at is None or listed.ended_at > run.started_at) and (
        run.ended_at is None or run.ended_at > listed.started_at
    )


def _add_figures(job: Job, mine: Iterable[RunObservation], *, is_best: bool = False) -> None:
    """Add completed batches and figures that other sources did not report. The best source corrects theirs."""
    listed = {
        key: each
        for observed in mine
        for key, each in observed.listed.items()
        if each.status == CheckpointStatus.COMPLETED and each.totals.latest_ack_at is not None
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
