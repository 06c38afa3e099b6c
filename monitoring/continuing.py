"""Let a job that Waymark starts from the checkpoint location of a watched query continue the watched job's history."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from monitoring.models import Cluster, Job, Run, RunState, RunStateChange, WatchedQuery
from monitoring.reasons import columns as reasons
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason


def continue_watched(cluster: Cluster, new: Mapping[str, Collection[str]], now: datetime) -> None:
    """Make watched jobs the jobs of this cluster that continue their queries. Must be called in a transaction.

    A job of this cluster that exists already, or that continues queries of several jobs, keeps its own history.

    Args:
        cluster: the job manager's.
        new: Spark's ids of the imported queries, as 32 hexadecimal digits, by the name of the job.
        now: when the runs of the watched jobs end.
    """
    ids = {query_id for imported in new.values() for query_id in imported}
    if not ids:
        return
    locked = list(WatchedQuery.objects.filter(query_id__in=ids).order_by("query_id").select_for_update())
    taken = set(Job.objects.filter(cluster=cluster, name__in=new).values_list("name", flat=True))
    for name in new.keys() - taken:
        keys = {query.job_id or 0 for query in locked if query.query_id in new[name]}
        for job in Job.objects.filter(pk__in=keys).select_related("cluster") if len(keys) == 1 else ():
            if job.cluster.only_watched:
                cancel_live_runs(job, EngineReason.CONTINUED_BY(cluster=str(cluster)), now)
                Job.objects.filter(pk=job.pk).update(cluster=cluster, name=name)


def cancel_live_runs(job: Job, reason: Reason, now: datetime) -> None:
    """Store that the runs of the job end, because another job or another cluster has the query."""
    live = Run.objects.filter(job=job, superseded=False, ended_at=None)
    why = reasons.columns("why", reason)
    changes = [RunStateChange(run=run, at=now, source=run.state, target=RunState.CANCELED, **why) for run in live]
    RunStateChange.objects.bulk_create(changes)
    live.update(state=RunState.CANCELED, ended_at=now, end_seen_at=now, final_read_done=True, superseded=True)
