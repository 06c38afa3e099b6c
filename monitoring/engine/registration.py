"""People's actions on clusters: add, change, pause, remove, confirm. The audit log records each, without secrets.

The job manager that `up` starts is a normal cluster with a fixed name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from monitoring import audit
from monitoring.engine.identity import Identity
from monitoring.models import Authentication, Cluster, Engine, Job, QuerySource
from monitoring.models.secret_field import SecretField
from monitoring.reasons.columns import store
from monitoring.reasons.reason import Reason

EMBEDDED = "waymark"
# The fields that a person sets. Waymark observes all other fields of a cluster.
SETTINGS = (
    *("name", "discovery", "rest_url", "zookeeper_hosts", "zookeeper_root", "zookeeper_cluster_id"),
    *("zookeeper_authentication", "zookeeper_username", "zookeeper_password", "zookeeper_tls"),
    *("authentication", "token", "username", "password", "ca_bundle", "client_certificate", "client_key"),
    *("labels", "poll_interval_s", "request_limit_s", "requests_at_once", "savepoints_at_once", "savepoint_jitter_s"),
    *("savepoint_target", "history_server"),
)
_LONG = frozenset({"ca_bundle", "client_certificate"})
# A change of these fields may lead to another leader, so the stored knowledge about the leader is cleared.
_ZOOKEEPER = frozenset({"zookeeper_authentication", "zookeeper_username", "zookeeper_password", "zookeeper_tls"})
_WHERE = frozenset({"discovery", "rest_url", "zookeeper_hosts", "zookeeper_root", "zookeeper_cluster_id"}) | _ZOOKEEPER
_ENABLED = ("enabled", "disabled_reason", "disabled_reason_value")
_SILENCE = ("unreachable_since", "consecutive_failures", "last_error", "last_error_value")

Described = Mapping[str, object]


def describe(cluster: Cluster) -> Described:
    """Return the settings for an audit entry or a page. A secret appears only as "set" or ""."""
    return {name: _shown(cluster, name) for name in SETTINGS}


@transaction.atomic
def add(cluster: Cluster, actor: str) -> None:
    cluster.save()
    changed = {name: value for name, value in describe(cluster).items() if value not in ("", {})}
    audit.record(actor, "cluster.add", _target(cluster), now=changed)


@transaction.atomic
def change(cluster: Cluster, actor: str) -> tuple[str, ...]:
    """Store changed settings and return their names. Polling uses them from the next tick."""
    stored = Cluster.objects.select_for_update().get(pk=cluster.pk)
    changed = tuple(name for name in SETTINGS if getattr(stored, name) != getattr(cluster, name))
    if not changed:
        return ()
    before, now = describe(stored), describe(cluster)
    fields = [*changed, "next_poll_at"]
    cluster.next_poll_at = None
    if _WHERE & set(changed):
        cluster.leader_named_at, cluster.scan = None, {}
        store(cluster, "leader_problem", "")
        fields += ["leader_problem", "leader_problem_value", "leader_named_at", "scan"]
    cluster.save(update_fields=fields)
    secrets = {name: "changed" for name in changed if before[name] == now[name]}
    audit.record(
        actor,
        "cluster.change",
        _target(stored),
        before={name: before[name] for name in changed},
        now={name: now[name] for name in changed} | secrets,
    )
    return changed


@transaction.atomic
def watch(cluster: Cluster, *, watched: bool, actor: str, reason: Reason | str = "") -> None:
    """Start or stop watching the cluster. A start also unarchives it; a stop keeps its jobs and their history."""
    cluster.enabled, cluster.archived_at, cluster.next_poll_at = watched, None, None
    store(cluster, "disabled_reason", "" if watched else reason)
    if not watched:
        _forget_silence(cluster)
    cluster.save(update_fields=["archived_at", "next_poll_at", *_ENABLED, *_SILENCE])
    audit.record(actor, "cluster.resume" if watched else "cluster.pause", _target(cluster), reason)


@transaction.atomic
def remove(cluster: Cluster, *, actor: str, reason: Reason | str, now: datetime) -> bool:
    """Delete the cluster, or archive it if it has jobs. Return whether it is deleted.

    An archived cluster keeps the history of its jobs, is not watched, and loses its secrets. If other clusters see the
    same query, its job moves to one of them with that cluster's next poll.
    """
    Cluster.objects.select_for_update().filter(pk=cluster.pk).first()  # a poll may be about to add the first job
    if not Job.objects.filter(cluster=cluster).exists():
        audit.record(actor, "cluster.remove", _target(cluster), reason)
        cluster.delete()
        return True
    QuerySource.objects.filter(cluster=cluster).delete()
    cluster.token = cluster.password = cluster.client_key = cluster.zookeeper_password = ""
    cluster.save(update_fields=["token", "password", "client_key", "zookeeper_password"])
    archive(cluster, actor=actor, reason=reason, now=now)
    return False


@transaction.atomic
def archive(cluster: Cluster, *, actor: str, reason: Reason | str, now: datetime) -> None:
    """Stop watching the cluster and hide it. Its settings, its secrets and the history of its jobs stay."""
    audit.record(actor, "cluster.archive", _target(cluster), reason)
    cluster.enabled, cluster.archived_at, cluster.next_poll_at = False, now, None
    store(cluster, "disabled_reason", reason)
    _forget_silence(cluster)
    cluster.save(update_fields=["archived_at", "next_poll_at", *_ENABLED, *_SILENCE])


def _forget_silence(cluster: Cluster) -> None:
    """Clear the record of failed polls: the health of a cluster without polling is unknown, not unreachable."""
    cluster.unreachable_since, cluster.consecutive_failures = None, 0
    store(cluster, "last_error", "")


@transaction.atomic
def confirm_same(cluster: Cluster, actor: str, reason: Reason | str = "", found: Identity | None = None) -> None:
    """Store that the engine at the address is confirmed as this cluster: its answers count again.

    `found` is its identity, if the caller has read it. Otherwise it is that of the stranger that a poll has seen.
    """
    stored = Cluster.objects.select_for_update().get(pk=cluster.pk)
    was, is_now = stored.identity, stored.stranger if found is None else found.as_row()
    if is_now is None:
        return
    Cluster.objects.filter(pk=stored.pk).update(identity=is_now, stranger=None, next_poll_at=None)
    named = {"was": str(Identity.from_row(was)) if was else "", "now": str(Identity.from_row(is_now))}
    audit.record(actor, "cluster.same", _target(stored), reason, **named)


def _target(cluster: Cluster) -> str:
    return f"cluster {cluster.name}"


def _shown(cluster: Cluster, name: str) -> object:
    if isinstance(Cluster._meta.get_field(name), SecretField):
        return "set" if getattr(cluster, name) else ""
    value = getattr(cluster, name)
    return "set" if name in _LONG and value else value


def register_embedded(url: str, token: str = "") -> Cluster:
    """Set the URL of the embedded cluster, which is created if necessary and polled at once.

    Without a `token` the row keeps its own: a person may have set one for a job manager on another machine.
    """
    values = {"rest_url": url, "engine": Engine.SPARK, "next_poll_at": None}
    if token:
        values |= {"authentication": Authentication.BEARER, "token": token}
    return Cluster.objects.update_or_create(name=EMBEDDED, defaults=values)[0]
