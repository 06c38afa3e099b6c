"""What is due in the archive, and the periodic task that starts a process for it, for a limited time per call.

The process (`manage.py archive advance`) does the work. So the work does not slow down the worker, which also polls,
and does not end the worker if it runs out of memory. Without work, no process is started. This module needs no Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from django.conf import settings
from django.db.models import Count, QuerySet, Sum

from monitoring.history.archive import spans
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.spans import Span
from monitoring.history.catalogue import Month
from monitoring.history.partitions import partitions_of
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, PartitionTouch
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.reason import Reason, from_text
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

BEFORE = f"{KINDS[ArchivedKind.CHECKPOINTS].table.name}_before"
ROWS_A_FILE = 500_000
# A month is merged if it has more files than this for each full file that its rows need.
MOST_FILES = 2
_LIMIT_S = 900.0  # a process that takes longer counts as hung
_MOST_DETAIL = 400  # characters of the process's error output


class NotArchived(Exception):
    """The process failed, or did not end in time."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def look(now: datetime) -> CycleReport:
    """Start the process if there is work, and return its report.

    Raises:
        NotArchived: the process failed, or did not end in time.
    """
    held = [held(span, why) for span in spans.due(now) if (why := spans.holds(span))]
    if not _anything_to_do(now):
        return CycleReport(tuple(held))
    command = ["nice", sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), "archive", "advance", "--json"]
    return report_of(command, _LIMIT_S)


def report_of(command: Sequence[str], limit_s: float) -> CycleReport:
    """Run the command and return the report that it writes as JSON.

    If the command fails, it writes a reason instead. Other programs, such as Spark, may end it without one: then the
    reason quotes the last line of the error output.

    Raises:
        NotArchived: the command failed, or did not end within `limit_s` seconds.
    """
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotArchived(ArchiveReason.PROCESS_HUNG(limit_s=limit_s)) from None
    if process.returncode:
        raise NotArchived(from_text(process.stdout) or _how_it_ended(process))
    return CycleReport.from_json(json.loads(process.stdout))


def _how_it_ended(process: subprocess.CompletedProcess[str]) -> Reason:
    lines = process.stderr.strip().splitlines()
    if not lines:
        return ArchiveReason.PROCESS_ENDED_SILENTLY(code=process.returncode)
    return ArchiveReason.PROCESS_ENDED(code=process.returncode, detail=lines[-1].strip()[:_MOST_DETAIL])


def _anything_to_do(now: datetime) -> bool:
    ready = any(not spans.holds(span) for span in spans.due(now))
    others = gone().exists() or old(now).exists() or anything_late() or next_small() is not None
    return ready or others


def anything_late() -> bool:
    return PartitionTouch.objects.filter(partition=BEFORE).exists()


def next_small() -> Month | None:
    """Return the oldest complete month with many small files. A file that cannot be read keeps its month as it is."""
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    grouped = live.values_list("kind", "cluster_id", "month").annotate(files=Count("pk"), total=Sum("rows"))
    for kind, cluster_id, first, files, total in grouped.filter(files__gt=MOST_FILES).order_by("month", "kind"):
        month = Month(ArchivedKind(kind), cluster_id, first)
        unreadable = month.files.filter(state=ArchivedState.LIVE).exclude(problem="")
        if files > MOST_FILES * -(-total // ROWS_A_FILE) and _is_complete(month) and not unreadable.exists():
            return month
    return None


def _is_complete(month: Month) -> bool:
    """Return whether no partition that will be archived has rows of the month."""
    dated = [each.start for each in partitions_of(KINDS[month.kind].table) if each.start is not None]
    following = (month.month + timedelta(days=31)).replace(day=1)
    return not dated or datetime.combine(following, time(), UTC) <= dated[0]


def held(span: Span, why: Reason) -> Reason:
    return WorkReason.NOT_ARCHIVED_YET(what=named(span), why=why)


def named(span: Span) -> str:
    text = str(span)
    return text[0].upper() + text[1:]


def gone() -> QuerySet[ArchivedFile]:
    """Return the rows whose files must be deleted."""
    return ArchivedFile.objects.filter(state__in=(ArchivedState.GOING, ArchivedState.EXPIRED))


def old(now: datetime) -> QuerySet[ArchivedFile]:
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    return live.filter(until__lt=now - settings.ARCHIVE_KEPT) if settings.ARCHIVE_KEPT else live.none()
