"""Adding a cluster: look at what answers there before anything is stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from monitoring.engine.client import client_for
from monitoring.models import Authentication, Cluster


class BadCluster(ValueError):
    """A field has a value that is not allowed; the text names field, value and what is allowed."""

    def __init__(self, field: str, value: str, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} is not allowed; {allowed}")
        self.field = field


@dataclass(frozen=True)
class Found:
    """What answered at a cluster's address."""

    version: str
    jobs: int


def add_cluster(name: str, rest_url: str, token: str = "") -> tuple[Cluster, Found]:
    """Store a cluster that answers as Flink's REST API does. BadCluster; EngineError when nothing like it is there."""
    name, rest_url = name.strip(), rest_url.strip().rstrip("/")
    if not name or len(name) > 100:
        raise BadCluster("name", name, "1 to 100 characters")
    if Cluster.objects.filter(name=name).exists():
        raise BadCluster("name", name, "a name that no other cluster has")
    parts = urlsplit(rest_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise BadCluster("url", rest_url, "http://host:port or https://host, without user, query or fragment")
    authentication = Authentication.BEARER if token else Authentication.NONE
    cluster = Cluster(name=name, rest_url=rest_url, token=token, authentication=authentication)
    found = asyncio.run(look_at(cluster))
    cluster.save()
    return cluster, found


async def look_at(cluster: Cluster) -> Found:
    async with client_for(cluster) as client:
        overview = await client.overview()
        return Found(overview.version, len(await client.jobs_overview()))
