"""The job manager that `up` starts beside us is a cluster like any other, under a name of its own."""

from __future__ import annotations

from monitoring.models import Cluster, Engine

NAME = "waymark"


def register(url: str) -> Cluster:
    """Point the embedded cluster at `url`, creating it the first time; it is polled at once."""
    cluster, _ = Cluster.objects.update_or_create(
        name=NAME, defaults={"rest_url": url, "engine": Engine.SPARK, "next_poll_at": None}
    )
    return cluster
