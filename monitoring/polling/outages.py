"""Times in which nothing was learned of a cluster, as rows: rules that find something missing must know of them."""

from __future__ import annotations

from datetime import datetime, timedelta

from monitoring.models import Cluster, Outage, OutageKind

# A worker that dies with a claim holds up the next poll for the claim's lease; that is no outage yet.
LATE = timedelta(seconds=90)


def note_silence(cluster: Cluster, why: str, now: datetime) -> None:
    """The cluster did not answer; the first time in a row begins its outage."""
    Outage.objects.get_or_create(
        cluster=cluster, kind=OutageKind.NO_ANSWER, ended_at=None, defaults={"began_at": now, "why": why[:1000]}
    )


def note_answer(cluster: Cluster, now: datetime) -> None:
    Outage.objects.filter(cluster=cluster, kind=OutageKind.NO_ANSWER, ended_at=None).update(ended_at=now)


def is_late(cluster: Cluster, asked_at: datetime) -> bool:
    """It was due long before: Waymark itself was away. `next_poll_at` is still that of the last poll."""
    return cluster.next_poll_at is not None and asked_at - cluster.next_poll_at > LATE


def note_lateness(cluster: Cluster, asked_at: datetime) -> None:
    if cluster.next_poll_at is not None and is_late(cluster, asked_at):
        Outage.objects.create(
            cluster=cluster, kind=OutageKind.NOT_ASKED, began_at=cluster.next_poll_at, ended_at=asked_at
        )
