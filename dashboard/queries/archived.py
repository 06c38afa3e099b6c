"""One checkpoint, one operator: from PostgreSQL, else from the archive."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import Http404

from monitoring.history.archive import reading
from monitoring.models import Checkpoint, OperatorCheckpoint


def find_checkpoint(pk: int) -> Checkpoint:
    """With its job. Http404; parquet.Unreadable: the archive may have it, and cannot be read."""
    with_job = Checkpoint.objects.select_related("run__job__cluster", "run__job__configuration")
    found = with_job.filter(pk=pk).first() or reading.checkpoint(pk)
    if found is None:
        raise Http404
    return found


def operators_of(checkpoint: Checkpoint) -> Sequence[OperatorCheckpoint]:
    """As `find_checkpoint`."""
    return reading.operators(checkpoint) if checkpoint.archived else list(checkpoint.operators.all())


def find_operator(pk: int) -> OperatorCheckpoint:
    """As `find_checkpoint`."""
    stored = OperatorCheckpoint.objects.select_related("checkpoint__run")
    found = stored.filter(pk=pk).first() or reading.operator(pk)
    if found is None:
        raise Http404
    return found
