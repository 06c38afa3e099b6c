"""Assess and rank every job by one statement, so that a list of thousands of jobs reads only its shown rows in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from dashboard.access.reach import Reach
from dashboard.health import Assessment, JobSigns, assess, urgency, why_unknown
from dashboard.queries.facts import OPEN_ATTEMPT_STATES, newest_completed
from monitoring.models import Cluster, IncidentKind, IncidentState, Severity

# The values of JobSigns, with the newest completed checkpoint of the current run. PostgreSQL converts times to numbers,
# because Python would take as long for it as for all else.
_SIGNS = """
SELECT j.id, j.name, j.cluster_id, j.labels, r.state, r.missing_since IS NOT NULL,
       date_part('epoch', r.started_at),
       CASE jsonb_typeof(r.checkpoint_config -> 'interval')
           WHEN 'number' THEN (r.checkpoint_config ->> 'interval')::float8 END,
       date_part('epoch', newest.latest_ack_at), newest.end_to_end_duration, newest.state_size,
       incident.job_id IS NOT NULL, coalesce(incident.is_critical, FALSE), coalesce(incident.failed_restart, FALSE),
       restart.job_id IS NOT NULL
FROM monitoring_job j
LEFT JOIN monitoring_run r ON r.id = j.current_run_id
LEFT JOIN monitoring_newestcompleted newest ON newest.run_id = r.id
LEFT JOIN (
    SELECT job_id, bool_or(severity = %(critical)s) AS is_critical, bool_or(kind = %(not_restarted)s) AS failed_restart
    FROM monitoring_incident WHERE state <> %(resolved)s GROUP BY job_id
) incident ON incident.job_id = j.id
LEFT JOIN (
    SELECT DISTINCT job_id FROM monitoring_restartattempt WHERE state = ANY(%(open)s)
) restart ON restart.job_id = j.id
WHERE j.cluster_id = ANY(%(clusters)s)
  AND (%(all)s OR j.cluster_id = ANY(%(granted_clusters)s) OR j.id = ANY(%(granted_jobs)s))
"""


class RankedJob(NamedTuple):
    """A job of a list. Only `read_in_full` of dashboard.queries.fleet adds its facts, sentence and figures."""

    signs: JobSigns
    health: Assessment


def rank_jobs(clusters: Mapping[int, Cluster], now: datetime, reach: Reach) -> list[RankedJob]:
    """Return the jobs of the clusters within `reach`, the most urgent first."""
    unknown = {pk: bool(why_unknown(cluster, now)) for pk, cluster in clusters.items()}
    watched = {pk: cluster.only_watched for pk, cluster in clusters.items()}
    moment = now.timestamp()
    rows = [
        RankedJob(
            signs,
            assess(signs, moment, is_unknown=unknown[signs.cluster_id], only_watched=watched[signs.cluster_id]),
        )
        for signs in _read_signs(clusters, reach)
    ]
    rows.sort(key=lambda row: row.signs.name)  # many are equally urgent: sorting sorted rows takes half the time
    rows.sort(key=lambda row: urgency(*row))
    return rows


def _read_signs(clusters: Iterable[int], reach: Reach) -> list[JobSigns]:
    parameters: dict[str, Any] = {
        "critical": Severity.CRITICAL.value,
        "not_restarted": IncidentKind.NOT_RESTARTED.value,
        "resolved": IncidentState.RESOLVED.value,
        "open": OPEN_ATTEMPT_STATES,
        "clusters": list(clusters),
        "all": reach.is_unrestricted,
        "granted_clusters": list(reach.clusters),
        "granted_jobs": list(reach.jobs),
    }
    with connection.cursor() as cursor:
        cursor.execute(_SIGNS, parameters)
        found = [JobSigns._make(row) for row in cursor.fetchall()]
    earlier = newest_completed([signs.pk for signs in found if signs.completed_at is None])
    return [_with_earlier(signs, earlier[signs.pk]) if signs.pk in earlier else signs for signs in found]


def _with_earlier(signs: JobSigns, completed: Mapping[str, Any]) -> JobSigns:
    """Return the signs with a checkpoint of an earlier run. The current run has not completed one."""
    at = completed["latest_ack_at"]
    return signs._replace(
        completed_at=at.timestamp() if at else None,
        duration_ms=completed["end_to_end_duration"],
        state_size=completed["state_size"],
    )
