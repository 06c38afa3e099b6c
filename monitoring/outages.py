"""Store the times without information about a cluster: rules that find something missing need them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import QuerySet

from monitoring.models import Cluster, Outage, OutageKind
from monitoring.reasons.reason import Reason

# If a worker dies with a claim, the next poll waits for the end of the lease. That is not an outage yet.
LATE = timedelta(seconds=90)


_SILENT = (OutageKind.NO_ANSWER, OutageKind.ANOTHER_CLUSTER)


def note_silence(cluster: Cluster, why: Reason | str, now: datetime) -> None:
    """Store that the cluster did not answer, or that another cluster answered at its address.

    The first such poll in a row begins the outage. Once another cluster has answered, the outage has this kind until
    the cluster itself answers.
    """
    kind = OutageKind.NO_ANSWER if cluster.stranger is None else OutageKind.ANOTHER_CLUSTER
    _open(cluster).exclude(kind=kind).update(ended_at=now)
    Outage.objects.get_or_create(
        cluster=cluster, kind=kind, ended_at=None, defaults={"began_at": now, "why": str(why)[:1000]}
    )


def note_answer(cluster: Cluster, now: datetime) -> None:
    """The cluster answers, or it has ended with its job, so that its silence is no outage."""
    _open(cluster).update(ended_at=now)


def _open(cluster: Cluster) -> QuerySet[Outage]:
    return Outage.objects.filter(cluster=cluster, kind__in=_SILENT, ended_at=None)


def is_late(cluster: Cluster, polled_at: datetime) -> bool:
    """Return whether the poll is late by more than LATE, because Waymark was down. `next_poll_at` must be unchanged."""
    return cluster.next_poll_at is not None and polled_at - cluster.next_poll_at > LATE


def note_lateness(cluster: Cluster, polled_at: datetime) -> None:
    if cluster.next_poll_at is not None and is_late(cluster, polled_at):
        Outage.objects.create(
            cluster=cluster, kind=OutageKind.NOT_POLLED, began_at=cluster.next_poll_at, ended_at=polled_at
        )
