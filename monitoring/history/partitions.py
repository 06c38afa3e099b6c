"""The partitions of the history. They are created ahead, so that every row has one.

All tables have the same bounds: a partition `_before` all others, one for each week or day
(WAYMARK_HISTORY_PARTITION), and one `_after` them, without a gap. The first and the last take rows of wrong clocks and
stay small. A default partition would take these, too, but would prevent PostgreSQL from reading a job's newest rows
partition by partition until it has enough (decision 67).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Max

from monitoring.models import FINAL, ArchivedFile
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

DAY, WEEK = timedelta(days=1), timedelta(days=7)
WIDTHS = {"day": DAY, "week": WEEK}
AHEAD = 2  # number of partitions that are created before their time begins
# If a clock is years ahead, each call creates only this many partitions. Until then its rows are in `_after`.
MOST_AT_ONCE = 8
# A change of partitions waits this long for readers, and readers wait for it. The next tick tries again.
LOCK_TIMEOUT = "2s"
_ADVISORY = 6_801_673
_BOUND = re.compile(r"FROM \((?:'(?P<start>[^']+)'|MINVALUE)\) TO \((?:'(?P<end>[^']+)'|MAXVALUE)\)")

_PARTITIONS = """
SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass(%s)
"""


@dataclass(frozen=True)
class PartitionedTable:
    """A partitioned table. `key`: the column by whose time its rows are partitioned."""

    name: str
    key: str


TABLES = (
    PartitionedTable("monitoring_checkpoint", "triggered_at"),
    PartitionedTable("monitoring_operatorcheckpoint", "triggered_at"),
    PartitionedTable("monitoring_countersample", "at"),
)


@dataclass(frozen=True)
class Partition:
    """A partition for rows from `start` to before `end`. None as `start` or `end` means no bound.

    `rows` is PostgreSQL's last estimate; `size` is in bytes and includes indexes.
    """

    name: str
    start: datetime | None
    end: datetime | None
    rows: int
    size: int


def partitions_of(table: PartitionedTable) -> list[Partition]:
    """Return the table's partitions, oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(_PARTITIONS, [table.name])
        found = [_partition(*row) for row in cursor.fetchall()]
    return sorted(found, key=lambda each: each.start or datetime.min.replace(tzinfo=UTC))


def make_ahead(now: datetime) -> CycleReport:
    """Create missing partitions up to AHEAD after the present one."""
    made = [name for table in TABLES for name in _make(table, now)]
    return CycleReport((WorkReason.PARTITIONS_MADE(names=made),) if made else ())


def cover(since: datetime) -> list[str]:
    """Create partitions from `since` on for an imported history, but none for an archived time. Return their names."""
    archived = ArchivedFile.objects.filter(state__in=FINAL).aggregate(until=Max("until"))["until"]
    since = max(since, archived + WEEK) if archived else since
    return [name for table in TABLES for name in _make_back(table, since)]


def drop_oldest(table: PartitionedTable, name: str | None, end: datetime, column: str, kept: Sequence[int]) -> None:
    """Drop the oldest dated partition, `name`, which ends at `end`. If `name` is None, the partition is missing.

    Rows whose `column` is in `kept` move to `_before`, which then ends at `end`. The caller's transaction must have
    called `alone`.
    """
    before = f"{table.name}_before"
    dated = [each for each in partitions_of(table) if each.start is not None]
    if name is not None and (dated[0].name, dated[0].end) != (name, end):
        raise RuntimeError(f"{name} is not the oldest partition of {table.name} that ends at {end}")
    if name is None and dated[0].start is not None and dated[0].start < end:
        raise RuntimeError(f"{table.name} has a partition before {end}, {dated[0].name}, which is unexpected")
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a table with pending checks cannot be attached
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {before}")
        if name is not None:
            cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {name}")
            # `waymark.moving` tells the triggers that these rows are moved: they are neither changed nor late.
            cursor.execute("SET LOCAL waymark.moving = 'on'")
            cursor.execute(
                f"INSERT INTO {before} OVERRIDING SYSTEM VALUE SELECT * FROM {name} WHERE {column} = ANY(%s)",  # noqa: S608 (our names)
                [list(kept)],
            )
            cursor.execute("SET LOCAL waymark.moving = ''")
            cursor.execute(f"DROP TABLE {name}")
        cursor.execute(
            f"ALTER TABLE {table.name} ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ('{end.isoformat()}')"
        )


def bounds(last: datetime, until: datetime, width: timedelta) -> list[tuple[datetime, datetime]]:
    """Return the bounds of the partitions after `last`, so that one contains `until` and AHEAD more exist.

    They end at midnight UTC, those of weeks on Mondays, even if `last` does not because the width has changed.
    """
    wanted = _aligned(until, width) + (1 + AHEAD) * width
    found: list[tuple[datetime, datetime]] = []
    while last < wanted and len(found) < MOST_AT_ONCE:
        end = _aligned(last, width) + width
        found.append((last, end))
        last = end
    return found


def _make(table: PartitionedTable, now: datetime) -> list[str]:
    width = WIDTHS[settings.HISTORY_PARTITION]
    if not bounds(_end(table), now, width):
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        alone(cursor)
        missing = bounds(_end(table), now, width)  # another worker may have created the partitions meanwhile
        if not missing:
            return []
        after, end = f"{table.name}_after", missing[-1][1]
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {after}")
        made = [_create(cursor, table, *each) for each in missing]
        _bring_home(table, after, "<", end)
        cursor.execute(
            f"ALTER TABLE {table.name} ATTACH PARTITION {after} FOR VALUES FROM ('{end.isoformat()}') TO (MAXVALUE)"
        )
    return made


def _make_back(table: PartitionedTable, since: datetime) -> list[str]:
    width, before, made = WIDTHS[settings.HISTORY_PARTITION], f"{table.name}_before", []
    begin = _aligned(since, width)
    with transaction.atomic(), connection.cursor() as cursor:
        alone(cursor)
        first = partitions_of(table)[0].end
        if first is None or begin >= first:
            return []
        cursor.execute(f"ALTER TABLE {table.name} DETACH PARTITION {before}")
        start = begin
        while start < first:
            end = min(start + width, first)
            made.append(_create(cursor, table, start, end))
            start = end
        _bring_home(table, before, ">=", begin)
        cursor.execute(
            f"ALTER TABLE {table.name} ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ('{begin.isoformat()}')"
        )
    return made


def alone(cursor: CursorWrapper) -> None:
    """Lock the change of partitions for this transaction, and set LOCK_TIMEOUT for its locks."""
    cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY])


def _create(cursor: CursorWrapper, table: PartitionedTable, start: datetime, end: datetime) -> str:
    name = f"{table.name}_{start:%Y%m%d}"
    cursor.execute(
        f"CREATE TABLE {name} PARTITION OF {table.name}"
        f" FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
    )
    return name


def _bring_home(table: PartitionedTable, outside: str, side: str, moment: datetime) -> None:
    """Move rows of the partition `outside` that are on this `side` (< or >=) of the moment to their own partitions."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH astray AS (DELETE FROM {outside} WHERE {table.key} {side} %s RETURNING *)"  # noqa: S608 (our names)
            f" INSERT INTO {table.name} OVERRIDING SYSTEM VALUE SELECT * FROM astray",
            [moment],
        )


def _end(table: PartitionedTable) -> datetime:
    last = partitions_of(table)[-1]
    if last.start is None:
        raise RuntimeError(f"{table.name} has no partition {table.name}_after")
    return last.start


def _aligned(moment: datetime, width: timedelta) -> datetime:
    """Return the last midnight UTC at which a partition of this width may begin; weeks begin on Mondays."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday()) if width == WEEK else day


def _partition(name: str, bound: str, rows: int, size: int) -> Partition:
    found = _BOUND.search(bound)
    if found is None:
        raise RuntimeError(f"partition {name}: Waymark did not create its bounds {bound!r}")
    start, end = (datetime.fromisoformat(text) if text else None for text in found.group("start", "end"))
    return Partition(name, start, end, rows, size)
