"""Is every file of the archive still what was written?"""

from __future__ import annotations

from datetime import datetime

from monitoring.history.archive import parquet
from monitoring.models import ArchivedFile, ArchivedState


def check(now: datetime) -> tuple[int, list[str]]:
    """How many files there are, and what is wrong with those that are damaged or missing. Reads all of them."""
    problems: list[str] = []
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    for row in live.iterator(chunk_size=500):
        try:
            parquet.checked(row, whole=True)
        except parquet.Damaged as why:
            problems.append(str(why))
        else:
            ArchivedFile.objects.filter(pk=row.pk).update(checked_at=now)
    return live.count(), problems
