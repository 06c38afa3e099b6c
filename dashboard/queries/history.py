"""The checkpoint history of a job over all its runs, paged by keyset, so that every page costs the same.

Older rows are in the archive (monitoring/history/archive), which is read only where PostgreSQL's rows end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from dashboard.language import rendered
from dashboard.queries.facts import select
from dashboard.queries.history_marks import Mark, Marks, marks_of
from monitoring.history.archive import reading
from monitoring.history.archive.parquet import Silent, Unreadable
from monitoring.history.archive.reading import Wish
from monitoring.models import (
    ArchivedFile,
    ArchivedKind,
    ArchivedState,
    Checkpoint,
    CheckpointGap,
    CheckpointType,
    Job,
)

PAGE_SIZE = 25
COUNT_LIMIT = 10_000
FEW = 100

# PostgreSQL reads the next page of each run by the index of the runs, and merges these pages to that of the job.
_PAGE = """
SELECT c.id, c.triggered_at FROM monitoring_run r
CROSS JOIN LATERAL (
    SELECT id, triggered_at FROM monitoring_checkpoint
    WHERE run_id = r.id {conditions} {cursor}
    ORDER BY triggered_at {direction}, id {direction} LIMIT %(limit)s
) c
WHERE r.job_id = %(job)s
ORDER BY c.triggered_at {direction}, c.id {direction} LIMIT %(limit)s
"""

_COUNT = """
SELECT count(*) AS n FROM (
    SELECT 1 FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
    WHERE r.job_id = %(job)s {conditions} LIMIT %(most)s
) counted
"""


# The values of `HistoryFilter.kind` and their labels: two of Flink's types, and the two groups of types.
KINDS = {
    "checkpoint": _("checkpoints"),
    CheckpointType.UNALIGNED_CHECKPOINT.value: _("unaligned checkpoints"),
    "savepoint": _("savepoints"),
    CheckpointType.SYNC_SAVEPOINT.value: _("savepoints on stop"),
}


_COLUMNS = {"number": "r.number"}


@dataclass(frozen=True)
class HistoryFilter:
    """Conditions that a checkpoint must all meet.

    `status` is a CheckpointStatus value, and `kind` a key of KINDS. Durations are in ms, sizes in bytes.
    """

    status: str = ""
    kind: str = ""
    run: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    least_duration: int | None = None
    least_alignment: int | None = None
    least_size: int | None = None

    def conditions(self) -> tuple[str, dict[str, Any]]:
        """Return SQL conditions and their parameters, for a statement in which `r` is the run."""
        found = list(enumerate(self.wishes()))
        sql = "".join(f" AND {_COLUMNS.get(w.column, w.column)} {w.operator} %(wish{n})s" for n, w in found)
        return sql, {f"wish{n}": wish.value for n, wish in found}

    def wishes(self) -> list[Wish]:
        wished = [
            Wish("status", "=", self.status),
            self._kind(),
            Wish("number", "=", self.run),
            Wish("triggered_at", ">=", self.since),
            Wish("triggered_at", "<=", self.until),
            Wish("end_to_end_duration", ">=", self.least_duration),
            Wish("alignment_max", ">=", self.least_alignment),
            Wish("state_size", ">=", self.least_size),
        ]
        return [wish for wish in wished if wish.value not in ("", None)]

    def _kind(self) -> Wish:
        if self.kind in ("checkpoint", "savepoint"):
            return Wish("is_savepoint", "=", self.kind == "savepoint")
        return Wish("checkpoint_type", "=", self.kind)

    @property
    def narrows(self) -> bool:
        return bool(self.conditions()[0])

    @property
    def is_contiguous(self) -> bool:
        """Return whether the filter hides no checkpoint between two shown ones."""
        return not (self.status or self.kind or self.least_duration or self.least_alignment or self.least_size)


@dataclass(frozen=True)
class Cursor:
    """The position of a row: older rows follow it, newer rows precede it."""

    at: datetime
    pk: int

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Return the cursor of a text that `str()` made, or None for any other text."""
        moment, _, pk = text.rpartition("_")
        try:
            at = datetime.fromisoformat(moment)
            return cls(at, int(pk)) if at.tzinfo else None
        except ValueError:
            return None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Cursor:
        return cls(checkpoint.triggered_at, checkpoint.pk)

    @classmethod
    def beginning(cls) -> Cursor:
        """Return a cursor that is older than every row. The page that is newer than it is the oldest page."""
        return cls(datetime(1970, 1, 1, tzinfo=UTC), 0)

    def __str__(self) -> str:
        return f"{self.at.isoformat()}_{self.pk}"


@dataclass(frozen=True)
class HistoryRow:
    checkpoint: Checkpoint
    gap: CheckpointGap | None = None  # unknown checkpoint ids directly before this one
    marks: tuple[Mark, ...] = ()  # lines above the row: the heading of its run, and later restarts


@dataclass(frozen=True)
class HistoryPage:
    rows: list[HistoryRow]
    marks_below: tuple[Mark, ...]
    newer: Cursor | None
    older: Cursor | None
    total: int  # the number of matching checkpoints in PostgreSQL
    archived: int  # the number of all checkpoints in the archive
    unreadable: Sequence[Unreadable]

    @property
    def total_is_capped(self) -> bool:
        return self.total > COUNT_LIMIT


def read_history(job: Job, chosen: HistoryFilter, *, before: Cursor | None, after: Cursor | None) -> HistoryPage:
    """Return one page, newest first: rows older than `before`, rows newer than `after`, or the newest rows."""
    upwards = after is not None
    checkpoints, unreadable = _next(job, chosen, after or before, upwards=upwards, limit=PAGE_SIZE + 1)
    more = len(checkpoints) > PAGE_SIZE
    checkpoints = checkpoints[:PAGE_SIZE]
    if upwards:
        checkpoints.reverse()
    newest, oldest = after is None and before is None, after == Cursor.beginning() or not (upwards or more)
    marks = marks_of(job, checkpoints, chosen.is_contiguous and not chosen.run, newest, oldest)
    first, last = (Cursor.of(checkpoints[0]), Cursor.of(checkpoints[-1])) if checkpoints else (None, None)
    return HistoryPage(
        rows=_rows(checkpoints, marks),
        marks_below=marks.below,
        newer=first if (more if upwards else not newest) else None,
        older=None if oldest else last,
        total=count_history(job, chosen),
        archived=reading.count(job),
        unreadable=unreadable,
    )


def listed(
    job: Job, chosen: HistoryFilter, before: Cursor | None, limit: int
) -> tuple[list[Checkpoint], list[Unreadable]]:
    """Return the newest checkpoints, only those older than `before` if it is set, and the unreadable archive files."""
    return _next(job, chosen, before, upwards=False, limit=limit)


def _next(
    job: Job, chosen: HistoryFilter, cursor: Cursor | None, *, upwards: bool, limit: int
) -> tuple[list[Checkpoint], list[Unreadable]]:
    """Return the checkpoints next to the cursor, the nearest first, from PostgreSQL and if necessary the archive."""
    stored = read_checkpoints(_ids(job, chosen, cursor, upwards, limit))
    until = _archived_until(job)
    if until is None or (chosen.since is not None and chosen.since >= until):
        return stored, []
    reaches = (cursor is None or cursor.at < until) if upwards else len(stored) < limit or _at(stored[-1]) < until
    if not reaches:
        return stored, []
    place = (cursor.at, cursor.pk) if cursor else None
    found = reading.checkpoints(job, chosen.wishes(), place, upwards=upwards, limit=limit)
    both = sorted([*stored, *found.checkpoints], key=lambda each: (each.triggered_at, each.pk), reverse=not upwards)
    return both[:limit], found.unreadable


def _at(checkpoint: Checkpoint) -> datetime:
    return checkpoint.triggered_at


def _archived_until(job: Job) -> datetime | None:
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE, kind=ArchivedKind.CHECKPOINTS)
    newest = live.filter(cluster_id=job.cluster_id).order_by("-day", "-since").values_list("until", flat=True)
    return newest.first()


def count_history(job: Job, chosen: HistoryFilter) -> int:
    """Count the rows in PostgreSQL, up to COUNT_LIMIT + 1."""
    conditions, parameters = chosen.conditions()
    counted = select(_COUNT.format(conditions=conditions), {**parameters, "job": job.pk, "most": COUNT_LIMIT + 1})
    return int(counted[0]["n"])


def newest_checkpoint(job: Job) -> Cursor | None:
    found = _ids(job, HistoryFilter(), None, upwards=False, limit=1)
    return Cursor(found[0]["triggered_at"], found[0]["id"]) if found else None


def neighbours(job: Job, checkpoint: Checkpoint) -> tuple[Checkpoint | None, Checkpoint | None]:
    """Return the next newer and the next older checkpoint of the job, also of another run."""
    place = Cursor(checkpoint.triggered_at, checkpoint.pk)
    newer, older = (_next(job, HistoryFilter(), place, upwards=up, limit=1)[0] for up in (True, False))
    return (newer[0] if newer else None, older[0] if older else None)


def newest_per_filter(job: Job, wanted: Sequence[tuple[HistoryFilter, int]]) -> list[list[Checkpoint]]:
    """Return, for each filter and limit, the newest matching checkpoints. All checkpoints are read in one query."""
    found = [_ids(job, chosen, None, upwards=False, limit=limit) for chosen, limit in wanted]
    by_id = {each.pk: each for each in read_checkpoints([row for rows in found for row in rows])}
    return [[by_id[row["id"]] for row in rows if row["id"] in by_id] for rows in found]


class ArchiveUnreadable(Exception):
    """The result is incomplete. The message names the unreadable files of the archive and the reasons."""

    def __init__(self, reasons: Sequence[Unreadable]) -> None:
        super().__init__("; ".join(map(unreadable_text, reasons)))


def unreadable_text(why: Unreadable) -> str:
    quoted: dict[str, object] = {"day": why.row.day.isoformat(), "path": why.row.path, "problem": rendered(why.why)}
    if isinstance(why, Silent):
        quoted |= {"seconds": f"{why.limit_s:g}"}
        text = gettext(
            "The storage of the archive did not answer within %(seconds)s s. Checkpoints of %(day)s and other archived"
            " checkpoints are missing here (%(path)s)."
        )
    else:
        text = gettext("Checkpoints of %(day)s cannot be read from the archive: %(path)s: %(problem)s")
    return text % quoted


def unreadable_files(job: Job, chosen: HistoryFilter) -> list[str]:
    """Return a sentence for each unreadable archive file of a download. The check precedes the first line."""
    return [unreadable_text(why) for why in reading.unreadable(job, chosen.wishes())]


def all_checkpoints(job: Job, chosen: HistoryFilter, a_time: int = 1_000) -> Iterator[Checkpoint]:
    """Yield every matching checkpoint, newest first.

    Rows are read in blocks of `a_time`, so that a slow client does not hold a database connection.

    Raises:
        ArchiveUnreadable: More checkpoints match, but the archive cannot be read.
    """
    cursor: Cursor | None = None
    while True:
        found, unreadable = _next(job, chosen, cursor, upwards=False, limit=a_time)
        if unreadable:
            raise ArchiveUnreadable(unreadable)
        yield from found
        if len(found) < a_time:
            return
        cursor = Cursor.of(found[-1])


def _ids(
    job: Job, chosen: HistoryFilter, cursor: Cursor | None, upwards: bool, limit: int = PAGE_SIZE + 1
) -> list[dict[str, Any]]:
    conditions, parameters = chosen.conditions()
    way = ">" if upwards else "<"
    statement = _PAGE.format(
        conditions=conditions,
        # The first condition is redundant, but PostgreSQL skips partitions only by a comparison of one column.
        cursor=f"AND triggered_at {way}= %(at)s AND (triggered_at, id) {way} (%(at)s, %(pk)s)" if cursor else "",
        direction="ASC" if upwards else "DESC",
    )
    place = {"at": cursor.at, "pk": cursor.pk} if cursor else {}
    return select(statement, {**parameters, **place, "job": job.pk, "limit": limit})


def read_checkpoints(found: Sequence[Mapping[str, Any]]) -> list[Checkpoint]:
    """Return the checkpoints with their runs, in the order of `found`, which has `id` and `triggered_at` of each."""
    if not found:
        return []
    times = [row["triggered_at"] for row in found]
    # For a few checkpoints, PostgreSQL reads only the partitions that have one of their times.
    then = Q(triggered_at__in=times) if len(times) <= FEW else Q(triggered_at__range=(min(times), max(times)))
    rows = Checkpoint.objects.filter(then, pk__in={row["id"] for row in found})
    read = rows.select_related("run").defer("run__exceptions", "run__summary", "run__vertices")
    by_id = {checkpoint.pk: checkpoint for checkpoint in read}
    return [by_id[row["id"]] for row in found if row["id"] in by_id]


def _rows(checkpoints: Sequence[Checkpoint], marks: Marks) -> list[HistoryRow]:
    gaps = _gaps(checkpoints)
    return [
        HistoryRow(each, gaps.get((each.run_id, each.checkpoint_id)), marks.above.get(each.pk, ()))
        for each in checkpoints
    ]


def rows_of(job: Job, keys: Collection[int]) -> list[HistoryRow]:
    """Return the rows of the job's checkpoints with these keys, without the lines between the rows."""
    found = Checkpoint.objects.filter(run__job=job, pk__in=keys).select_related("run")
    return [HistoryRow(each) for each in found.defer("run__exceptions", "run__summary", "run__vertices")]


def _gaps(checkpoints: Sequence[Checkpoint]) -> dict[tuple[int, int], CheckpointGap]:
    """Return the gaps by run and by the checkpoint id that follows the gap."""
    if not checkpoints:
        return {}
    before = {each.checkpoint_id - 1 for each in checkpoints}
    found = CheckpointGap.objects.filter(run__in={each.run_id for each in checkpoints}, last_id__in=before)
    return {(gap.run_id, gap.last_id + 1): gap for gap in found}
