"""The jobs and clusters that an account may see or operate, by its role everywhere and its grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Model, Q, QuerySet

from dashboard.access.roles import Role, role_of
from monitoring.alerts.scope import labels_of, watched_jobs
from monitoring.alerts.selector import parse_stored, selects
from monitoring.models import Cluster, Grant, Job

M = TypeVar("M", bound=Model)
_ROLES = {"viewer": Role.VIEWER, "operator": Role.OPERATOR}


@dataclass(frozen=True)
class Reach:
    """The roles of an account.

    `global_role` is its role on everything, or None for an account with grants only. `clusters` and `jobs` have the
    roles of its grants by id. The role on a cluster includes the jobs of the cluster.
    """

    global_role: Role | None
    clusters: Mapping[int, Role] = field(default_factory=dict)
    jobs: Mapping[int, Role] = field(default_factory=dict)

    @property
    def is_unrestricted(self) -> bool:
        return self.global_role is not None

    def role_on(self, job_id: int | None, cluster_id: int | None) -> Role | None:
        """Return the role on a job, a cluster (`job_id` None) or something without both, or None if it is hidden."""
        found = [self.global_role, self.jobs.get(job_id or 0), self.clusters.get(cluster_id or 0)]
        return max((role for role in found if role is not None), default=None)

    def on_jobs(self, path: str = "", least: Role = Role.VIEWER) -> Q:
        """Return a condition for rows on whose jobs a grant gives at least the role `least`.

        `path` is the relation from a row to its job, or "" if the rows are jobs.
        """
        to = f"{path}__" if path else ""
        clusters = [pk for pk, role in self.clusters.items() if role >= least]
        jobs = [pk for pk, role in self.jobs.items() if role >= least]
        return Q(**{f"{to}cluster__in": clusters}) | Q(**{f"{to}pk__in": jobs})

    def narrow(self, rows: QuerySet[M], path: str = "") -> QuerySet[M]:
        """Return the rows whose job (at `path`) the account may see."""
        return rows if self.is_unrestricted else rows.filter(self.on_jobs(path))

    def narrow_clusters(self, rows: QuerySet[M], path: str = "") -> QuerySet[M]:
        """Return the rows whose cluster (at `path`) the account may see as a whole."""
        return rows if self.is_unrestricted else rows.filter(**{f"{path}__in" if path else "pk__in": [*self.clusters]})

    def narrow_to_clusters_or_all(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Return the rows about everything (`cluster` None) or about a cluster that the account may see."""
        return rows if self.is_unrestricted else rows.filter(Q(cluster=None) | Q(cluster__in=[*self.clusters]))

    def narrow_to_jobs_or_all(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Return the rows about all jobs (`job` None) or about a job that the account may see."""
        return rows if self.is_unrestricted else rows.filter(self.on_jobs("job") | Q(job=None))

    def narrow_either(self, rows: QuerySet[M]) -> QuerySet[M]:
        """Return the rows whose job, or whose cluster for rows without a job, the account may see."""
        if self.is_unrestricted:
            return rows
        return rows.filter(self.on_jobs("job") | Q(job=None, cluster__in=[*self.clusters]))


NO_REACH = Reach(None)
FULL_REACH = Reach(Role.VIEWER)


def reach_of(user: AbstractBaseUser | AnonymousUser) -> Reach:
    """Return the reach of an account, by one query. Grants by labels also read the labels of every job."""
    role = role_of(user)
    if role is None or user.pk is None:
        return NO_REACH
    if role is Role.ADMIN:
        return Reach(role)
    names = ("account__granted_only", "grants__role", "grants__cluster", "grants__selector")
    rows = list(User.objects.filter(pk=user.pk).values_list(*names))
    global_role = None if any(only_granted for only_granted, *_ in rows) else role
    clusters = {cluster: _ROLES[granted] for _, granted, cluster, _ in rows if cluster is not None}
    by_label = [(selector, _ROLES[granted]) for _, granted, _, selector in rows if selector]
    return Reach(global_role, clusters, _jobs(by_label))


def operators_of(job: Job | None, cluster: Cluster | None) -> list[str]:
    """Return the names of the active accounts that may operate the job, or the cluster if there is no job."""
    active = User.objects.filter(is_active=True)
    everywhere = Q(is_superuser=True) | (Q(is_staff=True) & ~Q(account__granted_only=True))
    names = set(active.filter(everywhere).values_list("username", flat=True))
    granted = Grant.objects.filter(role="operator", user__in=active)
    labels = labels_of(job.name, job.labels, cluster) if job and cluster else None
    for name, cluster_id, selector in granted.values_list("user__username", "cluster", "selector"):
        on_cluster = cluster is not None and cluster_id == cluster.pk
        if on_cluster or (selector and labels is not None and selects(selector, labels)):
            names.add(name)
    return sorted(names, key=str.casefold)


def _jobs(granted: Sequence[tuple[str, Role]]) -> dict[int, Role]:
    """Return the highest role that the selectors give on each job. An invalid selector gives no role."""
    chosen = [(selector, role) for text, role in granted if (selector := parse_stored(text)) is not None]
    found: dict[int, Role] = {}
    for job in watched_jobs() if chosen else ():
        roles = [role for selector, role in chosen if selector.matches(job.labels)]
        if roles:
            found[job.pk] = max(roles)
    return found
