"""Find the checkpoint or operator of a URL in the history, and check that the reader may see it.

The job of an archived row is known only after its file is read, so the check of the URL cannot know it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.http import Http404, HttpRequest

from dashboard.access.guard import reach_at, set_job
from monitoring.history import rows
from monitoring.models import Checkpoint, OperatorCheckpoint

T = TypeVar("T")


def find_checkpoint(request: HttpRequest, pk: int) -> Checkpoint:
    """Return the checkpoint with its run and job.

    Raises:
        Http404: The checkpoint does not exist, or the reader may not see it.
        Unreadable: The archive may have the checkpoint, but cannot be read.
    """
    found = _found(request, rows.checkpoint, pk)
    set_job(request, found.run.job)
    return found


def find_operator(request: HttpRequest, pk: int) -> OperatorCheckpoint:
    """Return the operator with its checkpoint and run. Raises the errors of `find_checkpoint`."""
    found = _found(request, rows.operator, pk)
    set_job(request, found.checkpoint.run.job)
    return found


def _found(request: HttpRequest, read: Callable[[int], T | None], pk: int) -> T:
    """Return the row, or raise Http404.

    An unreadable file may belong to jobs that the reader may not see. Only a reader of everything gets `Unreadable`.
    """
    try:
        found = read(pk)
    except rows.Unreadable:
        if not reach_at(request).is_unrestricted:
            raise Http404 from None
        raise
    if found is None:
        raise Http404
    return found
