"""Read the catalogue of the archive, which is in PostgreSQL. No file is read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from django.db import connection
from django.db.models import Model, QuerySet

from monitoring.history.pipeline.columns import DAY
from monitoring.models import FINAL, ArchivedFile, ArchivedKind, ArchivedState, Checkpoint, Job, OperatorCheckpoint

WHOLE_DAY = timedelta(days=1)
_KINDS: dict[type[Model], ArchivedKind] = {
    Checkpoint: ArchivedKind.CHECKPOINTS,
    OperatorCheckpoint: ArchivedKind.OPERATORS,
}
_COUNT = """
SELECT coalesce(sum(n), 0)::bigint FROM monitoring_archivedfile, unnest(runs, rows_by_run) AS of_run (run, n)
WHERE kind = 'checkpoints' AND state = 'live' AND cluster_id = %s
  AND run IN (SELECT id FROM monitoring_run WHERE job_id = %s)
"""


class Month(NamedTuple):
    """What the files of one directory have: rows of a kind, cluster and month (UTC), given as its first day."""

    kind: ArchivedKind
    cluster_id: int
    month: date

    @property
    def files(self) -> QuerySet[ArchivedFile]:
        """Return the files of the month, with any state."""
        return ArchivedFile.objects.filter(kind=self.kind, cluster_id=self.cluster_id, month=self.month)

    def live_on(self, days: Collection[date]) -> list[ArchivedFile]:
        """Return the files that are read and may have rows from the first to the last of these days (UTC)."""
        since, until = day_range(min(days))[0], day_range(max(days))[1]
        return list(self.files.filter(state=ArchivedState.LIVE, since__lt=until, until__gt=since).order_by("path"))

    def has_removed(self, day: date) -> bool:
        """Return whether files with rows of the day (UTC) were removed, because they were too old."""
        since, until = day_range(day)
        removed = (ArchivedState.EXPIRED, ArchivedState.REMOVED)
        return self.files.filter(state__in=removed, since__lt=until, until__gt=since).exists()


def live(kind: ArchivedKind) -> QuerySet[ArchivedFile]:
    """Return the files that are read, without their runs, which are many."""
    return ArchivedFile.objects.filter(kind=kind, state=ArchivedState.LIVE).defer("runs", "rows_by_run")


def clusters_with(model: type[Model], pk: int) -> frozenset[int]:
    """Return the clusters with archived files that may have the row, by the range of keys of each file."""
    if model not in _KINDS:
        return frozenset()
    files = live(_KINDS[model]).filter(least_id__lte=pk, greatest_id__gte=pk)
    return frozenset(files.values_list("cluster_id", flat=True))


def count(job: Job) -> int:
    """Return the number of the job's checkpoints in the archive."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [job.cluster_id, job.pk])
        return int(cursor.fetchone()[0])


def archived_days(
    job: Job, start: datetime, end: datetime, states: Collection[ArchivedState] = FINAL
) -> frozenset[datetime]:
    """Return the midnights (UTC) of days from `start` to before `end` that files of checkpoints cover, even partly."""
    first, last = floor(start, DAY), floor(end - timedelta(microseconds=1), DAY) + WHOLE_DAY
    files = ArchivedFile.objects.filter(kind=ArchivedKind.CHECKPOINTS, cluster_id=job.cluster_id, state__in=states)
    ranges = files.filter(since__lt=last, until__gt=first).order_by().values_list("since", "until").distinct()
    return frozenset(day for since, until in ranges for day in days_between(max(since, first), min(until, last)))


def day_range(day: date) -> tuple[datetime, datetime]:
    """Return the start and the end of a day (UTC)."""
    midnight = datetime.combine(day, time(), UTC)
    return midnight, midnight + WHOLE_DAY


def days_between(start: datetime, end: datetime) -> list[datetime]:
    """Return the midnights (UTC) of all days from `start` to before `end`."""
    first = floor(start, DAY)
    return [first + number * WHOLE_DAY for number in range(-(-(end - first) // WHOLE_DAY))]


def floor(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)
