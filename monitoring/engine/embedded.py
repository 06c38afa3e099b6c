"""The job manager that `up` starts is a cluster like any other, under a name of its own."""

from __future__ import annotations

from monitoring.models import Authentication, Cluster, Engine

NAME = "waymark"


def register(url: str, token: str = "") -> Cluster:
    """Point the embedded cluster at `url`, creating it the first time; it is polled at once.

    Without a `token` the row keeps what it has: a job manager that runs elsewhere may have got one on its page.
    """
    values = {"rest_url": url, "engine": Engine.SPARK, "next_poll_at": None}
    if token:
        values |= {"authentication": Authentication.BEARER, "token": token}
    return Cluster.objects.update_or_create(name=NAME, defaults=values)[0]
