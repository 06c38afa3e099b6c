"""Find a savepoint in the stored checkpoint history, which is kept longer than the engine remembers a request."""

from __future__ import annotations

import re
from datetime import timedelta

from monitoring.models import Checkpoint, CheckpointStatus, Savepoint

# The engine's clock and Waymark's may differ by this much. A savepoint that belongs to another row is never matched.
CLOCK_SKEW = timedelta(seconds=5)


def find_requested(savepoint: Savepoint) -> Checkpoint | None:
    """Return the checkpoint row that the request started: of its run, not triggered earlier, and of no other request.

    Completed ones come first, then those in progress, then failed ones.
    """
    taken = Savepoint.objects.filter(job=savepoint.job).exclude(pk=savepoint.pk)
    found = list(
        Checkpoint.objects.filter(
            run=savepoint.run, is_savepoint=True, triggered_at__gte=savepoint.requested_at - CLOCK_SKEW
        )
        .exclude(external_path__in=taken.exclude(path="").values("path"))
        .exclude(pk__in=taken.filter(checkpoint__isnull=False).values("checkpoint"))
        .order_by("triggered_at")
    )
    order = (CheckpointStatus.COMPLETED, CheckpointStatus.IN_PROGRESS, CheckpointStatus.FAILED)
    return min(found, key=lambda each: order.index(CheckpointStatus(each.status)), default=None)


def find_by_path(savepoint: Savepoint) -> Checkpoint | None:
    """Return the checkpoint row of a completed savepoint, or None if it was not polled yet."""
    completed = Checkpoint.objects.filter(run=savepoint.run, is_savepoint=True, status=CheckpointStatus.COMPLETED)
    return next((each for each in completed if plain_path(each.external_path) == plain_path(savepoint.path)), None)


def plain_path(path: str) -> str:
    """Return the path in one form: `file:///x`, `file:/x` and `/x` are the same location."""
    return re.sub(r"^file:/+", "/", path).rstrip("/")


def spellings(path: str) -> list[str]:
    """Return all forms in which engines and people write the path."""
    plain = plain_path(path)
    named = [plain, f"file:{plain}", f"file://{plain}"] if plain.startswith("/") else [plain]
    return [*named, *(f"{each}/" for each in named)]
