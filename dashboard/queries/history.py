"""The checkpoint history of a job over all its runs, paged by keyset, so that every page costs the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from dashboard.language import rendered
from dashboard.queries.history_marks import Mark, Marks, marks_of
from monitoring.history import rows
from monitoring.history.rows import Found, Place, Unreadable, Wish
from monitoring.models import Checkpoint, CheckpointGap, CheckpointType, Job

PAGE_SIZE = 25
COUNT_LIMIT = 10_000

# The values of `HistoryFilter.kind` and their labels: two of Flink's types, and the two groups of types.
KINDS = {
    "checkpoint": _("checkpoints"),
    CheckpointType.UNALIGNED_CHECKPOINT.value: _("unaligned checkpoints"),
    "savepoint": _("savepoints"),
    CheckpointType.SYNC_SAVEPOINT.value: _("savepoints on stop"),
}


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
        return bool(self.wishes())

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

    @property
    def place(self) -> Place:
        return self.at, self.pk

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
    gap: CheckpointGap | None = None  # the unknown checkpoint IDs between this row and the one before it
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
    found = listed(job, chosen, after or before, upwards=upwards)
    more = len(found.checkpoints) > PAGE_SIZE
    checkpoints = found.checkpoints[:PAGE_SIZE]
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
        total=rows.count(job, chosen.wishes(), COUNT_LIMIT + 1),
        archived=rows.count_archived(job),
        unreadable=found.unreadable,
    )


def listed(
    job: Job, chosen: HistoryFilter, cursor: Cursor | None, *, upwards: bool = False, limit: int = PAGE_SIZE + 1
) -> Found:
    """Return the checkpoints next to the cursor, the nearest first, and the unreadable files of the archive."""
    return rows.page(job, chosen.wishes(), cursor.place if cursor else None, upwards=upwards, limit=limit)


def newest_checkpoint(job: Job) -> Cursor | None:
    found = rows.newest_place(job)
    return Cursor(*found) if found else None


def neighbours(job: Job, checkpoint: Checkpoint) -> tuple[Checkpoint | None, Checkpoint | None]:
    """Return the next newer and the next older checkpoint of the job, also of another run."""
    place = checkpoint.triggered_at, checkpoint.pk
    newer, older = (rows.page(job, [], place, upwards=up, limit=1).checkpoints for up in (True, False))
    return (newer[0] if newer else None, older[0] if older else None)


class ArchiveUnreadable(Exception):
    """The result is incomplete. The message names the unreadable files of the archive and the reasons."""

    def __init__(self, reasons: Sequence[Unreadable]) -> None:
        super().__init__("; ".join(map(unreadable_text, reasons)))


def unreadable_text(why: Unreadable) -> str:
    quoted: dict[str, object] = {"month": f"{why.row.month:%Y-%m}", "path": why.row.path, "problem": rendered(why.why)}
    if why.limit_s is not None:
        quoted |= {"seconds": f"{why.limit_s:g}"}
        text = gettext(
            "The storage of the archive did not answer within %(seconds)s s. Checkpoints of %(month)s and other"
            " archived checkpoints are missing here (%(path)s)."
        )
    else:
        text = gettext("Checkpoints of %(month)s cannot be read from the archive: %(path)s: %(problem)s")
    return text % quoted


def unreadable_files(job: Job, chosen: HistoryFilter) -> list[str]:
    """Return a sentence for each unreadable archive file of a download. The check precedes the first line."""
    return [unreadable_text(why) for why in rows.unreadable(job, chosen.wishes())]


def all_checkpoints(job: Job, chosen: HistoryFilter, a_time: int = 1_000) -> Iterator[Checkpoint]:
    """Yield every matching checkpoint, newest first.

    Rows are read in blocks of `a_time`, so that a slow client does not hold a database connection.

    Raises:
        ArchiveUnreadable: More checkpoints match, but the archive cannot be read.
    """
    cursor: Cursor | None = None
    while True:
        found = listed(job, chosen, cursor, limit=a_time)
        if found.unreadable:
            raise ArchiveUnreadable(found.unreadable)
        yield from found.checkpoints
        if len(found.checkpoints) < a_time:
            return
        cursor = Cursor.of(found.checkpoints[-1])


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
