"""What an account may see, and where it may act: its role everywhere, and what its grants add to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Model, Q, QuerySet

from dashboard.access.roles import Role, role_of
from monitoring.alerts.scope import watched_jobs
from monitoring.alerts.selector import BadSelector, parse

M = TypeVar("M", bound=Model)
_ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}


@dataclass(frozen=True)
class Reach:
    """`everywhere`: the role on everything, None for an account that has only its grants. `clusters` and `jobs`: the
    roles that grants give on some, by id; a cluster's includes its jobs."""

    everywhere: Role | None
    clusters: Mapping[int, Role] = field(default_factory=dict)
    jobs: Mapping[int, Role] = field(default_factory=dict)

    @property
    def sees_everything(self) -> bool:
        return self.everywhere is not None

    def role_on(self, job_id: int | None, cluster_id: int | None) -> Role | None:
        """On a job, or on a cluster (`job_id` None), or on what belongs to neither; None: it is not to be seen."""
        found = [self.everywhere, self.jobs.get(job_id or 0), self.clusters.get(cluster_id or 0)]
        return max((role for role in found if role is not None), default=None)

    def on_jobs(self, path: str = "", least: Role = Role.VIEWER) -> Q:
        """A condition on rows whose job is at `path` ("": rows are jobs): those on which it has at least that role."""
        to = f"{path}__" if path else ""
        clusters = [pk for pk, role in self.clusters.items() if role >= least]
        jobs = [pk for pk, role in self.jobs.items() if role >= least]
        return Q(**{f"{to}cluster__in": clusters}) | Q(**{f"{to}pk__in": jobs})

    def narrow(self, rows: QuerySet[M], path: str = "") -> QuerySet[M]:
        """Those of `rows` whose job (at `path`) may be seen."""
        return rows if self.sees_everything else rows.filter(self.on_jobs(path))

    def narrow_clusters(self, rows: QuerySet[M], path: str = "") -> QuerySet[M]:
        """Those of `rows` whose cluster (at `path`) may be seen: one that was granted, as a whole."""
        return rows if self.sees_everything else rows.filter(**{f"{path}__in" if path else "pk__in": [*self.clusters]})

    def narrow_to_clusters_or_all(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Of rows about a cluster or about everything (`cluster` None), those that concern the reader."""
        return rows if self.sees_everything else rows.filter(Q(cluster=None) | Q(cluster__in=[*self.clusters]))

    def narrow_to_jobs_or_all(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Of rows about a job or about all (`job` None), those that concern the reader."""
        return rows if self.sees_everything else rows.filter(self.on_jobs("job") | Q(job=None))

    def narrow_either(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Of rows that have a job, or only a cluster, those of which that may be seen."""
        if self.sees_everything:
            return rows
        return rows.filter(self.on_jobs("job") | Q(job=None, cluster__in=[*self.clusters]))


NOWHERE = Reach(None)
EVERYTHING = Reach(Role.VIEWER)


def reach_of(user: AbstractBaseUser | AnonymousUser) -> Reach:
    """One query for most; an account with grants by label costs reading every job's labels."""
    role = role_of(user)
    if role is None or user.pk is None:
        return NOWHERE
    if role is Role.ADMIN:
        return Reach(role)
    names = ("account__granted_only", "grants__role", "grants__cluster", "grants__selector")
    rows = list(User.objects.filter(pk=user.pk).values_list(*names))
    everywhere = None if any(only_granted for only_granted, *_ in rows) else role
    clusters = {cluster: _ROLES[granted] for _, granted, cluster, _ in rows if cluster is not None}
    by_label = [(selector, _ROLES[granted]) for _, granted, _, selector in rows if selector]
    return Reach(everywhere, clusters, _jobs(by_label))


def _jobs(granted: Sequence[tuple[str, Role]]) -> dict[int, Role]:
    """Each job by the highest role that a selector gives on it; one that cannot be understood gives none."""
    chosen = []
    for text, role in granted:
        try:
            chosen.append((parse(text), role))
        except BadSelector:
            continue
    found: dict[int, Role] = {}
    for job in watched_jobs() if chosen else ():
        roles = [role for selector, role in chosen if selector.matches(job.labels)]
        if roles:
            found[job.pk] = max(roles)
    return found
