"""Which job a watched query belongs to, and through which clusters Waymark sees it."""

from __future__ import annotations

from django.db import models

from monitoring.models.clusters import Cluster
from monitoring.models.jobs import Job


class WatchedQuery(models.Model):
    """A query by Spark's id, as 32 hexadecimal digits. Polls lock the row before they change its job.

    `job.cluster` is the leading source: its polls store the runs. `job` is None only within a transaction.
    """

    query_id = models.CharField(max_length=32, unique=True)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, related_name="watched_queries")

    def __str__(self) -> str:
        return self.query_id


class QuerySource(models.Model):
    """A cluster through which Waymark sees the query, and the query's newest run as that cluster lists it."""

    query = models.ForeignKey(WatchedQuery, on_delete=models.CASCADE, related_name="sources")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="query_sources")
    engine_job_id = models.CharField(max_length=32)
    name = models.CharField(max_length=500)
    state = models.CharField(max_length=20)
    moved_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "query"), name="one_source_per_cluster_and_query"),)
        indexes = (models.Index(fields=("cluster", "name"), name="query_sources_by_name"),)

    def __str__(self) -> str:
        return f"{self.query} through {self.cluster}"
