"""Do the work of the archive: archive old partitions, add late rows, merge small files, remove files.

`manage.py archive advance` runs it, which `due.look` starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.conf import settings
from django.db import OperationalError, connection, transaction

from checkpointing.storage.layout import is_temporary
from monitoring.history.archive import archiving, due, location, parquet, rewriting, spans
from monitoring.history.archive.moving import ChangedMeanwhile, Mover
from monitoring.history.archive.spans import Span
from monitoring.models import ArchivedFile, ArchivedState
from monitoring.reasons.reason import Reason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

BUDGET_S = 60.0
_ADVISORY = 6_801_674
_AT_ONCE = 500  # files that one call removes


class ArchivingElsewhere(Exception):
    """Another process works on the archive."""


def advance(now: datetime, monotonic: Callable[[], float] = time.monotonic, budget_s: float = BUDGET_S) -> CycleReport:
    """Do work that is due until the budget is spent. Only one process works at a time; a second one returns at once."""
    until = monotonic() + budget_s

    def is_time_left() -> bool:
        return monotonic() < until

    with _alone() as is_alone, Mover() as mover:
        if not is_alone:
            return CycleReport(left=(WorkReason.ARCHIVING_ELSEWHERE(),))
        said = [forget(now)]
        for span in spans.due(now):
            held = spans.holds(span)
            said.append(due.held(span, held) if held else _archive(span, mover, is_time_left))
        if is_time_left():
            said += [*rewriting.take_up(mover, is_time_left), rewriting.merge(mover, is_time_left)]
    return CycleReport(tuple(each for each in said if each))


def add_operators() -> tuple[int, list[str]]:
    """Compute the roll-ups of operators of archived days without them, month by month.

    A process that is killed leaves each month with or without them, and the next one continues. Return how many
    roll-ups were stored, and the problems of months whose files cannot be read. Raise ArchivingElsewhere.
    """
    added, problems = 0, list[str]()
    with _alone() as is_alone, Mover() as mover:
        if not is_alone:
            raise ArchivingElsewhere(str(WorkReason.ARCHIVING_ELSEWHERE()))
        for month, days in rewriting.months_without_operators():
            try:
                added += rewriting.add_operators(month, days, mover)
            except parquet.Damaged as why:
                problems.append(str(why))
    return added, problems


def _archive(span: Span, mover: Mover, is_time_left: Callable[[], bool]) -> Reason:
    try:
        for step in archiving.steps(span, mover):
            if not is_time_left():
                return WorkReason.ARCHIVING(what=due.named(span), step=step)
    except ChangedMeanwhile as changed:
        return WorkReason.ARCHIVING_AGAIN(what=due.named(span), why=changed.reason)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") != "55P03":
            raise
        return WorkReason.ARCHIVING_WAITS(what=due.named(span))
    if span.missing:
        return WorkReason.ARCHIVED_WITHOUT(what=str(span), missing=[str(kind) for kind in span.missing])
    return WorkReason.ARCHIVED(what=str(span))


@contextmanager
def _alone() -> Iterator[bool]:
    """Lock the archive, and yield whether that succeeded: False if another process works on the archive."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_ADVISORY])
        is_alone = bool(cursor.fetchone()[0])
    try:
        yield is_alone
    finally:
        if is_alone:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY])


def forget(now: datetime) -> Reason | None:
    """Remove files that were replaced, or are older than WAYMARK_ARCHIVE_KEPT: first the file, then its row.

    The row of a file that was too old stays as REMOVED, so that the roll-ups of its day stay unchanged. Return what was
    removed, or None if no file was too old.
    """
    old = due.old(now).update(state=ArchivedState.EXPIRED)
    for row in due.gone()[:_AT_ONCE]:
        _remove(row)
    return WorkReason.FILES_REMOVED(count=old, days=settings.ARCHIVE_KEPT.days) if old else None


def _remove(row: ArchivedFile) -> None:
    """Remove the file, also if it is unfinished, and its directory if only the manifest or nothing is left in it.

    The row is locked, so that a process that has just written the file notices its removal, and does not use it.
    """
    files, place = location.files(), location.place(row.path)
    with transaction.atomic():
        locked = ArchivedFile.objects.select_for_update().filter(pk=row.pk, state=row.state)
        if not locked.exists():
            return
        directory, _, name = place.rpartition("/")
        unfinished = [each for each in files.names(directory) if is_temporary(each) and name in each]
        for each in (name, *unfinished):
            files.remove_file(f"{directory}/{each}")
        if row.state == ArchivedState.GOING:
            locked.delete()
        else:
            locked.update(state=ArchivedState.REMOVED)
    if set(files.names(directory)) <= {location.MANIFEST}:
        files.remove_tree(directory)


def check(now: datetime) -> tuple[int, list[str]]:
    """Read every file. Return the number of files, and the problems of damaged or missing ones."""
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
