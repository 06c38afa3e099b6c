"""Savepoints of watched queries, which Waymark takes itself: it copies the checkpoint location."""

from __future__ import annotations

from django.db import models

from monitoring.models.clusters import Cluster
from monitoring.reasons.columns import ReasonField


class CopyState(models.TextChoices):
    QUEUED = "queued"
    COPYING = "copying"
    COMPLETED = "completed"
    FAILED = "failed"


class LocationCopy(models.Model):
    """A copy of the location of the query `query_id` (32 hexadecimal digits) to a savepoint below `target`.

    WatchedTransport stores the request, and answers from this row. A worker copies (monitoring.savepoints.copies). It
    holds a claim until `claimed_until`, and renews it. `tries`: the number of claims, so it names the worker that may
    change the row. `leftovers`: the copy failed, and its files could not be removed yet.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="location_copies")
    query_id = models.CharField(max_length=32)
    trigger_id = models.CharField(max_length=32, unique=True)
    location = models.TextField()
    target = models.TextField()
    state = models.CharField(max_length=10, choices=CopyState.choices, default=CopyState.QUEUED)
    tries = models.PositiveIntegerField(default=0)
    claimed_until = models.DateTimeField(null=True)
    leftovers = models.BooleanField(default=False)
    path = models.TextField(blank=True, default="")
    failure = models.TextField(blank=True, default="")
    failure_value = ReasonField(null=True)
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.location} to {self.target} ({self.state})"
