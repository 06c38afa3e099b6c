"""Merge small files of a day into one, which is smaller and faster to open. The old files are then deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

import pyarrow as pa
from django.db import transaction
from django.db.models import Count, Min
from django.db.models.functions import TruncDate

from monitoring.history.archive import location, parquet
from monitoring.history.archive.archiving import write_manifests
from monitoring.history.archive.kinds import KINDS, Kind
from monitoring.history.archive.spans import Slice
from monitoring.history.archive.writing import compare, in_groups, place, replace_row, write
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

# The rows of a merged file are sorted in memory.
MOST_ROWS = 1_000_000


class Small(NamedTuple):
    """Consecutive files that can be merged."""

    kind: ArchivedKind
    day: date
    cluster_id: int
    keys: tuple[int, ...]


def next_small() -> Small | None:
    """Return the oldest files to merge. If a file of the directory cannot be read, none of them is merged."""
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE).annotate(day=TruncDate("since"))
    grouped = live.values_list("kind", "day", "cluster_id").annotate(least=Min("rows"), files=Count("pk"))
    several = grouped.filter(files__gt=1, least__lt=MOST_ROWS).order_by("day", "kind", "cluster_id")
    for kind, day, cluster, *_ in several:
        rows = live.filter(kind=kind, day=day, cluster_id=cluster).order_by("since")
        if keys := _first_that_fit(list(rows.values_list("pk", "rows", "problem"))):
            return Small(ArchivedKind(kind), day, cluster, keys)
    return None


def _first_that_fit(files: list[tuple[int, int, str]]) -> tuple[int, ...]:
    """Return the keys of the first consecutive files with at most MOST_ROWS together: at least two files, or none."""
    if any(problem for *_, problem in files):
        return ()
    begun: list[int] = []
    together = 0
    for key, rows, _ in files:
        if together + rows > MOST_ROWS:
            if len(begun) > 1:
                break
            begun, together = [], 0
        begun.append(key)
        together += rows
    return tuple(begun) if len(begun) > 1 else ()


def compact(monotonic: Callable[[], float], until: float) -> Reason | None:
    """Merge files until the time is up. Return what was done, or None if nothing was merged."""
    done = 0
    while monotonic() < until and (found := next_small()) is not None:
        for _ in steps(found):
            pass
        done += 1
    return WorkReason.FILES_MERGED(count=done) if done else None


def steps(small: Small) -> Iterator[str]:
    """Merge step by step: yield the name of each step before it is done. An unreadable file is marked and ends this."""
    yield "read"
    rows = list(ArchivedFile.objects.filter(pk__in=small.keys).order_by("since"))
    kind = KINDS[small.kind]
    try:
        merged = _merged(kind, rows)
    except parquet.Damaged:
        return
    with location.workshop() as workshop:
        yield "write"
        draft = write(workshop / "draft.parquet", kind, in_groups(merged))
        yield "compare"
        compare(draft, in_groups(merged))
        yield "place"
        row = place(draft, _together(small, rows))
    yield "replace"
    with transaction.atomic():
        ArchivedFile.objects.filter(pk__in=small.keys).update(state=ArchivedState.GOING)
        row.state = ArchivedState.LIVE
        replace_row(row)
    yield "manifest"
    write_manifests([(small.kind, small.day, small.cluster_id)])


def _together(small: Small, rows: Sequence[ArchivedFile]) -> Slice:
    return Slice(
        small.kind, "", small.cluster_id, small.day, rows[0].since, rows[-1].until, sum(row.rows for row in rows)
    )


def _merged(kind: Kind, rows: Sequence[ArchivedFile]) -> pa.Table:
    """Return all rows in the order of a file. Raises Damaged."""
    tables = [parquet.whole(row, kind) for row in rows]
    return pa.concat_tables(tables).sort_by([(column, "ascending") for column in kind.order])
