"""One checkpoint, one operator: from PostgreSQL, else from the archive.

Only a file of the archive has the job of an archived row, so these functions tell the access check what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from django.http import Http404, HttpRequest

from dashboard.access.guard import reach_at, settle
from monitoring.history.archive import reading
from monitoring.history.archive.parquet import Unreadable
from monitoring.models import Checkpoint, OperatorCheckpoint

T = TypeVar("T")


def find_checkpoint(request: HttpRequest, pk: int) -> Checkpoint:
    """Return the checkpoint with its run and job.

    Raises:
        Http404: There is none, or the reader may not see it.
        Unreadable: The archive may have it, and cannot be read.
    """
    with_job = Checkpoint.objects.select_related("run__job__cluster", "run__job__configuration")
    found = with_job.filter(pk=pk).first()
    if found is None:
        found = _archived(request, reading.checkpoint, pk)
        settle(request, found.run.job)
    return found


def operators_of(checkpoint: Checkpoint) -> Sequence[OperatorCheckpoint]:
    """Return them in their order. Raise Unreadable as `find_checkpoint` does."""
    return reading.operators(checkpoint) if checkpoint.archived else list(checkpoint.operators.all())


def find_operator(request: HttpRequest, pk: int) -> OperatorCheckpoint:
    """Return the operator with its checkpoint and run. Raises as `find_checkpoint`."""
    found = OperatorCheckpoint.objects.select_related("checkpoint__run").filter(pk=pk).first()
    if found is None:
        found = _archived(request, reading.operator, pk)
        settle(request, found.checkpoint.run.job)
    return found


def _archived(request: HttpRequest, read: Callable[[int], T | None], pk: int) -> T:
    """A reader of some jobs learns nothing of a file that cannot be read: it may have none of them."""
    try:
        found = read(pk)
    except Unreadable:
        if not reach_at(request).sees_everything:
            raise Http404 from None
        raise
    if found is None:
        raise Http404
    return found
