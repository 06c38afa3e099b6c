"""Read one checkpoint or one operator from PostgreSQL, else from the archive.

The job of an archived row is known only after its file is read, so these functions call the access check themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from django.http import Http404, HttpRequest

from dashboard.access.guard import reach_at, set_archived_job
from monitoring.history.archive import reading
from monitoring.history.archive.parquet import Unreadable
from monitoring.models import Checkpoint, OperatorCheckpoint

T = TypeVar("T")


def find_checkpoint(request: HttpRequest, pk: int) -> Checkpoint:
    """Return the checkpoint with its run and job.

    Raises:
        Http404: The checkpoint does not exist, or the reader may not see it.
        Unreadable: The archive may have the checkpoint, but cannot be read.
    """
    with_job = Checkpoint.objects.select_related("run__job__cluster", "run__job__configuration")
    found = with_job.filter(pk=pk).first()
    if found is None:
        found = _archived(request, reading.checkpoint, pk)
        set_archived_job(request, found.run.job)
    return found


def operators_of(checkpoint: Checkpoint) -> Sequence[OperatorCheckpoint]:
    """Return the operators of a checkpoint in their order. Raise Unreadable as `find_checkpoint` does."""
    return reading.operators(checkpoint) if checkpoint.archived else list(checkpoint.operators.all())


def find_operator(request: HttpRequest, pk: int) -> OperatorCheckpoint:
    """Return the operator with its checkpoint and run. Raises the errors of `find_checkpoint`."""
    found = OperatorCheckpoint.objects.select_related("checkpoint__run").filter(pk=pk).first()
    if found is None:
        found = _archived(request, reading.operator, pk)
        set_archived_job(request, found.checkpoint.run.job)
    return found


def _archived(request: HttpRequest, read: Callable[[int], T | None], pk: int) -> T:
    """Read a row from the archive, or raise Http404.

    An unreadable file may belong to jobs that the reader may not see. Only a reader of everything gets `Unreadable`.
    """
    try:
        found = read(pk)
    except Unreadable:
        if not reach_at(request).is_unrestricted:
            raise Http404 from None
        raise
    if found is None:
        raise Http404
    return found
