"""Read the end of a job from what its platform reports: an operator of Kubernetes, or YARN.

In application mode a cluster ends with its job, so that its REST API cannot report the end. A report counts only if it
is about this run and newer than the last answer of the cluster, because every answer lists the runs that are alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime

from monitoring.engine.evidence import ReportedEnd
from monitoring.engine.identity import application_in
from monitoring.models import Cluster, FoundResource, Run, RunState
from monitoring.reasons.discoveries import DiscoveryReason

_TERMINAL = tuple(state.value for state in RunState if state.terminal)
# YARN's `finalStatus` of an application, and Flink's state of its job.
_FINAL_STATUSES = {"SUCCEEDED": "FINISHED", "FAILED": "FAILED", "KILLED": "CANCELED"}


@dataclass(frozen=True)
class UnseenRun:
    """A run that began and ended before Waymark saw it. `job_id`: the engine's, "" if the platform does not report it.

    `started_at` is None if the platform does not report it.
    """

    end: ReportedEnd
    job_id: str = ""
    started_at: datetime | None = None


def reported_ends(cluster: Cluster) -> dict[str, ReportedEnd]:
    """Return the ends of the cluster's current runs, by engine job ID. Only for a cluster that does not answer."""
    rows = [row for row in _resources(cluster) if _is_over(row)]
    if not rows:
        return {}
    current = Run.objects.filter(pk__in=cluster.jobs.values("current_run"))
    ends = ((run, reported_end(cluster, run, rows)) for run in current)
    return {run.engine_job_id: end for run, end in ends if end is not None}


def still_reports_end(cluster: Cluster, run: Run, since: datetime) -> bool:
    """Return whether the platform was read after `since` and reports the end of this run, and of no later one."""
    rows = [row for row in _resources(cluster) if (row.source.last_answer_at or row.changed_at) > since]
    return reported_end(cluster, run, rows) is not None


def unseen_run(cluster: Cluster, last: Run, since: datetime) -> UnseenRun | None:
    """Return the run that followed `last` and has ended, None if no platform reports one or a job may live.

    `since`: when the run may have been started at the earliest, by Waymark's clock.
    """
    rows = _resources(cluster)
    if not all(map(_is_over, rows)):
        return None
    found = (_unseen_run(row, last) for row in rows if row.changed_at > since)
    return next(filter(None, found), None)


def is_over(cluster: Cluster) -> bool:
    """Return whether a platform reports that the cluster's only job has ended, and none that it may live."""
    rows = _resources(cluster)
    return bool(rows) and all(map(_is_over, rows))


def may_live(cluster: Cluster) -> bool:
    """Return whether a platform reports a job that has not ended, such as one that it has just started."""
    return any(not _is_over(row) for row in _resources(cluster))


def has_one_job(cluster: Cluster) -> bool:
    """Return whether the cluster has one job and ends with it, by its configuration or by what a platform reports."""
    return application_in(cluster.identity) is not None or bool(_resources(cluster))


def _resources(cluster: Cluster) -> list[FoundResource]:
    """Return the resources with the cluster's only job: a deployment with a job, or an application of YARN."""
    rows = cluster.found_resources.filter(gone_at=None).select_related("source")
    return [row for row in rows if row.state.get("job") or row.state.get("application")]


def _is_over(row: FoundResource) -> bool:
    return row.state.get("job") in _TERMINAL or row.state.get("final_status") in _FINAL_STATUSES


def reported_end(cluster: Cluster, run: Run, rows: Iterable[FoundResource]) -> ReportedEnd | None:
    """Return the end of the run in one of these resources of its cluster, None if no resource reports it. Pure."""
    for row in rows:
        if row.changed_at <= (cluster.read_until or run.started_at):
            continue
        state, at = _end_of_job(row, run) or _end_of_application(row, run, cluster) or ("", row.changed_at)
        if state:
            return _report(row, state, at)
    return None


def _report(row: FoundResource, state: str, at: datetime) -> ReportedEnd:
    why = DiscoveryReason.JOB_ENDED(source=row.source.name, resource=str(row), state=state)
    return ReportedEnd(state, at, why, error="" if row.problem_value is None else row.problem)


def _unseen_run(row: FoundResource, last: Run) -> UnseenRun | None:
    """Return the run in the resource if it is a later one than `last`. Deployments may share a job ID."""
    job_id, state = row.state.get("job_id", ""), row.state.get("job")
    started_at, ended_at = _time(row.state.get("started_at", "")), _time(row.state.get("ended_at", ""))
    is_later = started_at is not None and started_at > max(last.started_at, last.ended_at or last.started_at)
    if state in _TERMINAL:
        is_later = is_later or job_id != last.engine_job_id
        return UnseenRun(_report(row, state, row.changed_at), job_id, started_at) if job_id and is_later else None
    state = _FINAL_STATUSES.get(row.state.get("final_status", ""))
    if state is None or ended_at is None or not is_later:
        return None
    return UnseenRun(_report(row, state, ended_at), started_at=started_at)


def _end_of_job(row: FoundResource, run: Run) -> tuple[str, datetime] | None:
    """Return the end that an operator of Flink reports for the job's ID."""
    state = row.state.get("job")
    return (state, row.changed_at) if state in _TERMINAL and row.state.get("job_id") == run.engine_job_id else None


def _end_of_application(row: FoundResource, run: Run, cluster: Cluster) -> tuple[str, datetime] | None:
    """Return the end that YARN reports for the application, which has no other job, and whose ID is the cluster's."""
    state, at = _FINAL_STATUSES.get(row.state.get("final_status", "")), _time(row.state.get("ended_at", ""))
    if state is None or at is None or at <= run.started_at or application_in(cluster.identity) is None:
        return None
    known = (cluster.identity or {}).get("names", {}).get("cluster-id", "")
    return None if known.startswith("application_") and known != row.uid else (state, at)


def _time(text: str) -> datetime | None:
    try:
        found = parse_datetime(text)
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
