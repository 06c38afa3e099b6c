"""Small files of one day become one: fewer to open, and smaller together. The old ones go when the new one is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import NamedTuple

import pyarrow as pa
from django.db import transaction
from django.db.models import Count, Min

from monitoring.history.archive import location, parquet
from monitoring.history.archive.archiving import write_manifests
from monitoring.history.archive.kinds import KINDS, Kind
from monitoring.history.archive.spans import Slice
from monitoring.history.archive.writing import compare, in_groups, place, replace_row, write
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

# What is merged is sorted in memory.
MOST_ROWS = 1_000_000


class Small(NamedTuple):
    """Files, one after the other in time, that can be one."""

    kind: ArchivedKind
    day: date
    cluster_id: int
    keys: tuple[int, ...]


def next_small() -> Small | None:
    """The oldest ones. Nothing is merged where a file cannot be read."""
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    grouped = live.values_list("kind", "day", "cluster_id").annotate(least=Min("rows"), files=Count("pk"))
    several = grouped.filter(files__gt=1, least__lt=MOST_ROWS).order_by("day", "kind", "cluster_id")
    for kind, day, cluster, *_ in several:
        rows = live.filter(kind=kind, day=day, cluster_id=cluster).order_by("since")
        if keys := _first_that_fit(list(rows.values_list("pk", "rows", "problem"))):
            return Small(ArchivedKind(kind), day, cluster, keys)
    return None


def _first_that_fit(files: list[tuple[int, int, str]]) -> tuple[int, ...]:
    """Keys of the first files in a row that have no more than MOST_ROWS together; at least two, or none."""
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
    """Merge as long as there is time. Returns what was done, None when there was nothing to do."""
    done = 0
    while monotonic() < until and (found := next_small()) is not None:
        for _ in steps(found):
            pass
        done += 1
    return WorkReason.FILES_MERGED(count=done) if done else None


def steps(small: Small) -> Iterator[str]:
    """As archiving's: says what it is about to do. A file that cannot be read is marked, and nothing is merged."""
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
    """All rows, sorted as a file is. Damaged."""
    tables = [parquet.whole(row, kind) for row in rows]
    return pa.concat_tables(tables).sort_by([(column, "ascending") for column in kind.order])
