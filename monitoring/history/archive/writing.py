"""Write one file of the archive, compare it row by row with a second reading of the database, and move it in place."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from django.db import connection, transaction
from pyarrow import compute as pc

from checkpointing.storage.checksums import sha256_of
from monitoring.history.archive import location, parquet
from monitoring.history.archive.kinds import KINDS, Kind
from monitoring.history.archive.spans import Slice
from monitoring.models import ArchivedFile, ArchivedState
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

_ROWS = """
SELECT {columns} FROM {partition} k {joins}
WHERE j.cluster_id = %s AND k.{key} >= %s AND k.{key} < %s ORDER BY {order}
"""


class ChangedMeanwhile(Exception):
    """Raised if rows changed between two readings of the database: the caller tries again later."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class Draft:
    """A written file that is not yet in its final place."""

    path: Path
    kind: Kind
    rows: int
    least_id: int
    greatest_id: int
    runs: dict[int, int]  # run → its number of rows


def rows_of(piece: Slice) -> Iterator[pa.Table]:
    """Yield the slice's rows from the database, one row group at a time."""
    kind = KINDS[piece.kind]
    statement = _ROWS.format(
        columns=kind.selected,
        partition=piece.partition,
        joins=kind.joins,
        key=kind.table.key,
        order=", ".join(f"k.{column}" for column in kind.order),
    )
    with transaction.atomic(), connection.connection.cursor(name="archive", binary=True) as cursor:
        cursor.itersize = parquet.ROWS_A_GROUP
        cursor.execute(statement, [piece.cluster_id, piece.since, piece.until])
        while found := cursor.fetchmany(parquet.ROWS_A_GROUP):
            yield _table(kind, found)


def in_groups(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, parquet.ROWS_A_GROUP):
        yield table.slice(start, parquet.ROWS_A_GROUP).combine_chunks()


def write(path: Path, kind: Kind, tables: Iterator[pa.Table]) -> Draft:
    """Write the tables to a file, each as one row group."""
    rows, least, greatest, runs = 0, [], [], dict[int, int]()
    with parquet.writer(path, kind) as file:
        for table in tables:
            file.write_table(table, row_group_size=parquet.ROWS_A_GROUP)
            rows += table.num_rows
            least.append(pc.min(table["id"]).as_py())
            greatest.append(pc.max(table["id"]).as_py())
            _count_runs(runs, table)
    return Draft(path, kind, rows, min(least), max(greatest), runs)


def compare(draft: Draft, tables: Iterator[pa.Table]) -> None:
    """Compare the file with the tables, and raise ChangedMeanwhile if anything differs."""
    pairs = itertools.zip_longest(parquet.groups(draft.path, draft.kind), tables)
    if not all(read is not None and read.equals(there) for read, there in pairs):
        raise ChangedMeanwhile(WorkReason.FILE_DIFFERS(file=draft.path.name))


def place(draft: Draft, piece: Slice) -> ArchivedFile:
    """Store the file in its final place, durably, and return its row, which is not saved yet."""
    row = _row(draft, piece)
    location.put(draft.path, row.path)
    return row


def place_on_trial(draft: Draft, piece: Slice) -> ArchivedFile:
    """Save the file's row with the state GOING, and then store the file in its final place.

    The caller sets the state to LIVE. If the process is killed before that, the next run removes the file.
    """
    row = _row(draft, piece)
    row.state = ArchivedState.GOING
    replace_row(row)
    location.put(draft.path, row.path)
    return row


def replace_row(row: ArchivedFile) -> None:
    """Save the row. A row with the same path has the same content: a killed process left it, or it is being deleted."""
    ArchivedFile.objects.filter(path=row.path).exclude(state=ArchivedState.LIVE).delete()
    row.save(force_insert=True)


def _row(draft: Draft, piece: Slice) -> ArchivedFile:
    digest = sha256_of(draft.path)
    directory = location.directory_of(piece.kind, piece.day, piece.cluster_id)
    return ArchivedFile(
        kind=piece.kind,
        cluster_id=piece.cluster_id,
        month=piece.day.replace(day=1),
        since=piece.since,
        until=piece.until,
        path=f"{directory}/{piece.since:%H%M}-{digest[:16]}.parquet",
        rows=draft.rows,
        size=draft.path.stat().st_size,
        sha256=digest,
        footer_sha256=parquet.footer_sha256(draft.path),
        least_id=draft.least_id,
        greatest_id=draft.greatest_id,
        runs=list(draft.runs),
        rows_by_run=list(draft.runs.values()),
    )


def _table(kind: Kind, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [_array(column, field.type) for column, field in zip(columns, kind.schema, strict=True)], schema=kind.schema
    )


def _array(column: tuple[Any, ...], wanted: pa.DataType) -> pa.Array:
    """Return the column as an array. Times are given as microseconds."""
    if pa.types.is_timestamp(wanted):
        return pa.array(column, pa.int64()).cast(wanted)
    if pa.types.is_list(wanted) and pa.types.is_timestamp(wanted.value_type):
        return pa.array(column, pa.list_(pa.int64())).cast(wanted)
    return pa.array(column, wanted)


def _count_runs(runs: dict[int, int], table: pa.Table) -> None:
    if "run_id" in table.column_names:
        for each in table["run_id"].value_counts().to_pylist():
            runs[each["values"]] = runs.get(each["values"], 0) + each["counts"]
