"""Find the job or cluster of a URL: its first part names a type of rows, and its first number is the key of a row.

So every new page below `jobs/<int:pk>/` is protected by default. URLs of the REST API have the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Model

from monitoring.history.catalogue import clusters_with
from monitoring.models import (
    AlertRule,
    AutomationPause,
    Checkpoint,
    Cluster,
    Incident,
    Job,
    MaintenanceWindow,
    Objective,
    OperatorCheckpoint,
    RestartAttempt,
    RestartDecision,
    Run,
    Savepoint,
)

API = "api/v1/"


@dataclass(frozen=True)
class Kind:
    """A type of rows, and the relations from a row to its job and cluster.

    `job` is "" if rows belong to a cluster only. With `visible_to_all`, every account may see a row without
    job and cluster, because it applies to the account's jobs too.
    """

    model: type[Model]
    job: str
    cluster: str
    visible_to_all: bool = False


_JOB = ("job", "job__cluster")
KINDS: Mapping[str, Kind] = {
    "jobs": Kind(Job, "pk", "cluster"),
    "clusters": Kind(Cluster, "", "pk"),
    "runs": Kind(Run, *_JOB),
    "checkpoints": Kind(Checkpoint, "run__job", "run__job__cluster"),
    "operators": Kind(OperatorCheckpoint, "checkpoint__run__job", "checkpoint__run__job__cluster"),
    "savepoints": Kind(Savepoint, *_JOB),
    "restarts": Kind(RestartAttempt, *_JOB),
    "decisions": Kind(RestartDecision, *_JOB),
    "incidents": Kind(Incident, "job", "cluster"),
    "rules": Kind(AlertRule, *_JOB, visible_to_all=True),
    "objectives": Kind(Objective, *_JOB, visible_to_all=True),
    "maintenance": Kind(MaintenanceWindow, "job", "cluster"),
    "pauses": Kind(AutomationPause, "", "cluster", visible_to_all=True),
    "automation/pauses": Kind(AutomationPause, "", "cluster", visible_to_all=True),
}
# Only administrators may change these: clusters, sources that find clusters, and the programs that run on them.
ADMIN_ROUTES = ("clusters", "discoveries", "jobs/<int:job_id>/programs")
# These belong to the account that sends the request.
OWN_ROUTES = ("views",)
# The endpoint itself checks its tokens, which have no other right.
REPORT_ROUTES = ("agent",)
# These concern all jobs, so only accounts that may see all jobs may see them.
GLOBAL_ROUTES = ("audit", "channels", "discoveries", "health/page", "mail", "code", "runbooks")


@dataclass(frozen=True)
class Subject:
    """The job and the cluster of a URL. Both are None if the URL concerns everything or no job.

    With `is_global`, only accounts that may see everything may see it.
    """

    job_id: int | None = None
    cluster_id: int | None = None
    is_global: bool = False


@dataclass(frozen=True)
class Archived:
    """The URL names a row that may be in an archive file of one of these clusters.

    Only the file says to which job the row belongs, and this check reads no files. The view that reads the file calls
    `guard.set_job` with the job.
    """

    clusters: frozenset[int]


@dataclass(frozen=True)
class Absent:
    """The URL names a row that does not exist."""


NO_SUBJECT = Subject()


def subject_of(route: str, arguments: Mapping[str, Any]) -> Subject | Archived | Absent:
    """Return the subject of a URL, from its route in the URL configuration and its arguments."""
    route = route.removeprefix(API)
    if route.startswith(GLOBAL_ROUTES):
        return Subject(is_global=True)
    kind = _kind(route)
    pk = next((value for value in arguments.values() if isinstance(value, int)), None)
    if kind is None or pk is None:
        return NO_SUBJECT
    if pk >= 2**63:
        return Absent()
    wanted = [name for name in (kind.job, kind.cluster) if name] or ["pk"]
    row = kind.model._default_manager.filter(pk=pk).values_list(*wanted).first()
    if row is None:
        clusters = clusters_with(kind.model, pk)
        return Archived(clusters) if clusters else Absent()
    found = dict(zip(wanted, row, strict=True))
    cluster = found.get(kind.cluster) if kind.cluster else None
    job = found.get(kind.job) if kind.job else None
    if cluster is None and job is not None:
        cluster = Job.objects.filter(pk=job).values_list("cluster", flat=True).first()
    return Subject(job, cluster, is_global=job is None and cluster is None and not kind.visible_to_all)


def _kind(route: str) -> Kind | None:
    start, number, _ = route.partition("/<int:")
    if not number:
        start, number, _ = route.partition("/{")
    return KINDS.get(start) if number else None
