"""Make clusters of what a source has found: add, change, archive and restore them. One transaction for each change.

A change may be applied twice, because the successor of a killed worker repeats the last one. A value that a person has
changed stays: discovery changes only values that it has written itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime, timedelta
from enum import Enum

from django.db import transaction
from django.db.models import QuerySet

from monitoring.discovery import claims
from monitoring.discovery.claims import Claim
from monitoring.discovery.found import Found, Key
from monitoring.engine import registration
from monitoring.engine.errors import Malformed
from monitoring.models import Cluster, DiscoverySource, Engine, FoundResource, Job
from monitoring.reasons.columns import store
from monitoring.reasons.discoveries import DiscoveryReason

ACTOR = "discovery"
# Resources of one kind in one source. A server that is not what it should be must not fill the database.
MOST = 20_000
GONE_KEPT = timedelta(days=7)
_LONGEST_NAME = 100
_GIVEN = ("rest_url", "labels")


class Change(Enum):
    """What happened to a cluster."""

    ADDED = DiscoveryReason.ADDED
    CHANGED = DiscoveryReason.CHANGED
    ARCHIVED = DiscoveryReason.ARCHIVED
    RESTORED = DiscoveryReason.RESTORED


@transaction.atomic
def apply(claim: Claim, found: Found, now: datetime) -> Change | None:
    """Store a resource that exists, and add, change or restore its cluster.

    Raises:
        ClaimLost: another worker reads the source now.
        Malformed: there are too many resources.
    """
    claims.require(claim)
    row = _rows(claim.source, found.key).first()
    if row is not None and row.gone_at is None and (row.uid, row.version) == (found.uid, found.version):
        return None
    if row is None and _live(claim.source, found.key.kind).count() >= MOST:
        raise Malformed(DiscoveryReason.TOO_MANY(most=MOST, resource=found.key.kind))
    row = row or FoundResource(source=claim.source, **found.key._asdict(), found_at=now)
    gone_at, is_another, said = row.gone_at, row.uid not in ("", found.uid), row.state
    row.uid, row.version, row.rest_url, row.deployment = found.uid, found.version, found.rest_url, found.deployment
    row.labels, row.state, row.changed_at, row.gone_at = dict(found.labels), dict(found.state), now, None
    store(row, "problem", found.problem or "")
    row.problem_since = (row.problem_since or now) if found.problem else None
    if is_another and row.cluster is None and "rest_url" in row.given:
        row.given = {}  # a person has removed the cluster of the former resource
    change = _follow(row, gone_at, is_another) if found.rest_url or row.cluster else None
    if row.cluster is not None and row.state != said:
        Cluster.objects.filter(pk=row.cluster.pk).update(next_poll_at=None)  # it may report the end of the job
    row.save()
    return change


@transaction.atomic
def forget(
    claim: Claim, key: Key, now: datetime, why: DiscoveryReason = DiscoveryReason.DEPLOYMENT_GONE
) -> Change | None:
    """Note that a resource is gone, and archive its cluster. Raise ClaimLost."""
    claims.require(claim)
    row = _rows(claim.source, key).filter(gone_at=None).first()
    if row is None:
        return None
    # A poll adds a job only while it holds this lock. A removal takes it before the lock of the resource, too.
    cluster = Cluster.objects.select_for_update(of=("self",)).filter(found_resources=row).first()
    row.gone_at = now
    row.save(update_fields=["gone_at"])
    if cluster is None or cluster.archived_at is not None or cluster.found_resources.filter(gone_at=None).exists():
        return None
    reason = why(deployment=str(row), source=claim.source.name)
    if _is_as_given(cluster, row) and not Job.objects.filter(cluster=cluster).exists():
        registration.remove(cluster, actor=ACTOR, reason=reason, now=now)
    else:
        registration.archive(cluster, actor=ACTOR, reason=reason, now=now)
    return Change.ARCHIVED


def known_versions(source: DiscoverySource, kind: str, namespace: str) -> dict[Key, str]:
    """Return the versions of the resources that are not gone. `namespace`: "" for all."""
    rows = _live(source, kind)
    if namespace:
        rows = rows.filter(namespace=namespace)
    return {Key(kind, *row[:2]): row[2] for row in rows.values_list("namespace", "name", "version")}


def outside(source: DiscoverySource, kinds: Collection[str]) -> list[Key]:
    """Return the resources that are not gone and that the source no longer selects by kind or namespace."""
    rows = source.found_resources.filter(gone_at=None)
    inside = rows.filter(kind__in=kinds)
    if source.namespaces:
        inside = inside.filter(namespace__in=source.namespace_list)
    return [Key(*row) for row in rows.exclude(pk__in=inside.values("pk")).values_list("kind", "namespace", "name")]


def accept_rebuilt(source: DiscoverySource) -> None:
    """Confirm the identity of clusters that were redeployed, if their address names the deployment.

    Otherwise, another cluster may have taken the address. A person confirms the identity of a cluster whose address a
    person has entered.
    """
    if "{name}" not in source.address_pattern:
        return
    rows = source.found_resources.filter(gone_at=None, cluster__stranger__isnull=False).select_related("cluster")
    for row in rows:
        if row.cluster is not None and row.cluster.rest_url == row.rest_url:
            reason = DiscoveryReason.FOUND(source=source.name, deployment=str(row))
            registration.confirm_same(row.cluster, ACTOR, reason)


def discard_old(source: DiscoverySource, now: datetime) -> None:
    """Delete what is known about resources that are gone for long and have no cluster."""
    source.found_resources.filter(gone_at__lt=now - GONE_KEPT, cluster=None).delete()


def _live(source: DiscoverySource, kind: str) -> QuerySet[FoundResource]:
    return source.found_resources.filter(kind=kind, gone_at=None)


def _follow(row: FoundResource, gone_at: datetime | None, is_another: bool) -> Change | None:
    """Bring the cluster of a deployment up to date. `is_another`: the resource was created again under its name.

    A deployment that does not run yet, or no longer, has no address, so its cluster keeps the former one.
    """
    wanted = {"rest_url": row.rest_url or row.given.get("rest_url", ""), "labels": row.labels}
    # The lock keeps what a person saves at this moment.
    cluster = row.cluster and Cluster.objects.select_for_update().filter(pk=row.cluster.pk).first()
    row.cluster = cluster
    if cluster is None:
        if not row.rest_url or (row.given and gone_at is None):
            return None  # not running, or a person has removed the cluster
        return _add(row, wanted)
    restored = gone_at is not None and cluster.archived_at == gone_at
    for name in _GIVEN:
        if getattr(cluster, name) == row.given.get(name):
            setattr(cluster, name, wanted[name])
    row.given = wanted
    changed = registration.change(cluster, ACTOR)
    if is_another or "rest_url" in changed:
        # Another process with another identity answers now.
        Cluster.objects.filter(pk=cluster.pk).update(identity=None, stranger=None, next_poll_at=None)
    if restored:
        reason = DiscoveryReason.DEPLOYMENT_BACK(deployment=str(row), source=row.source.name)
        registration.watch(cluster, watched=True, actor=ACTOR, reason=reason)
        return Change.RESTORED
    return Change.CHANGED if changed else None


def _add(row: FoundResource, wanted: dict[str, object]) -> Change | None:
    """Add the cluster, or adopt the one that a person has added with the same address.

    The former address of a deployment that does not run is free.
    """
    former = FoundResource.objects.filter(gone_at=None, rest_url="").exclude(cluster=None).values("cluster")
    same = Cluster.objects.filter(rest_url=row.rest_url, archived_at=None).exclude(pk__in=former)
    cluster = same.order_by("pk").first()
    if cluster is None:
        name = _free_name(row)
        cluster = Cluster(name=name, engine=Engine.FLINK, rest_url=row.rest_url, labels=row.labels)
        registration.add(cluster, ACTOR)
        row.cluster, row.given = cluster, wanted
        return Change.ADDED
    if cluster.found_resources.exclude(uid=row.uid).filter(gone_at=None).exists():
        store(row, "problem", DiscoveryReason.ADDRESS_TAKEN(cluster=cluster.name, url=row.rest_url))
        return None
    row.cluster, row.given = cluster, wanted
    return None


def _free_name(row: FoundResource) -> str:
    for text in (str(row), f"{row.source.name}/{row}", f"{row.source.name}/{row}/{row.uid}"):
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 9]}-{digest}"
        if not Cluster.objects.filter(name=name).exists():
            break
    return name


def _is_as_given(cluster: Cluster, row: FoundResource) -> bool:
    """Return whether no person has changed the cluster."""
    given = Cluster(name=cluster.name, **row.given)
    return registration.describe(given) == registration.describe(cluster)


def _rows(source: DiscoverySource, key: Key) -> QuerySet[FoundResource]:
    rows = FoundResource.objects.filter(source=source, kind=key.kind, namespace=key.namespace, name=key.name)
    return rows.select_related("cluster", "source")
