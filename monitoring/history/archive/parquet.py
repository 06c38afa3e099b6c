"""One Parquet file: written row group by row group, read in part, and never believed when anything of it is damaged.

Each page of it carries a checksum, which reading compares; that the end, which says where pages lie, is the one that
was written is known by its SHA-256, kept in the database. So a part is read without reading all, and no wrong number
is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet as pq

from checkpointing.storage.checksums import sha256_of
from monitoring.history.archive import location
from monitoring.history.archive.kinds import KINDS, Kind
from monitoring.models import ArchivedFile, ArchivedKind
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason

T = TypeVar("T")

ROWS_A_GROUP = 32_768
_LEVEL = 9
_TAIL = 8  # the length of what stands before it, and the format's name


class Unreadable(Exception):
    """Nothing is known of what the file of the archive has; says which and why."""

    def __init__(self, row: ArchivedFile, why: Reason | str) -> None:
        self.reason = ArchiveReason.FILE(path=location.place(row.path), problem=why)
        super().__init__(str(self.reason))
        self.row = row
        self.why = why


class Damaged(Unreadable):
    """It is missing, or not what was written."""


class Silent(Unreadable):
    """Its storage did not answer within `limit_s`: nobody knows."""

    def __init__(self, row: ArchivedFile, limit_s: float) -> None:
        super().__init__(row, ArchiveReason.STORAGE_SILENT(limit_s=limit_s))
        self.limit_s = limit_s


class Differs(Exception):
    """Bytes that are not what was written; says in what."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def writer(path: Path, kind: Kind) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        kind.schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=kind.by_dictionary,
        column_encoding=kind.encodings,
        write_page_checksum=True,
        write_statistics=True,
        store_schema=False,
    )


def footer_sha256(path: Path) -> str:
    """Of the end of the file: where its pages lie, and how many rows they have. OSError, Differs."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or length + _TAIL > size:
            raise Differs(ArchiveReason.NO_PARQUET())
        file.seek(size - _TAIL - length)
        return hashlib.sha256(file.read()).hexdigest()


def checked(row: ArchivedFile, *, whole: bool = False) -> Path:
    """Where the file lies on this machine, and is what was written: its end, or with `whole` all of it. Damaged."""
    return told(row, lambda: verified(row, whole=whole))


def verified(row: ArchivedFile, *, whole: bool = False) -> Path:
    """As `checked`, and leaves the database alone: whoever reads may be left behind. OSError, Differs."""
    path = location.here(row.path, row.sha256)
    size = path.stat().st_size
    if size != row.size:
        raise Differs(ArchiveReason.OTHER_SIZE(size=size, expected=row.size))
    if footer_sha256(path) != row.footer_sha256 or (whole and sha256_of(path) != row.sha256):
        raise Differs(ArchiveReason.OTHER_CONTENT())
    return path


def told(row: ArchivedFile, read: Callable[[], T]) -> T:
    """What is read of the file. Damaged, and then the row says so until it can be read again: whoever looks after
    Waymark sees it on its health page."""
    try:
        found = read()
    except FileNotFoundError:
        raise _noted(row, ArchiveReason.MISSING()) from None
    except Differs as error:
        raise _noted(row, error.reason) from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _noted(row, str(error)) from error
    if row.problem:
        ArchivedFile.objects.filter(pk=row.pk).update(**columns("problem", ""))
    return found


def _noted(row: ArchivedFile, why: Reason | str) -> Damaged:
    problem = why if isinstance(why, Reason) else why[:1000]
    ArchivedFile.objects.filter(pk=row.pk).update(**columns("problem", problem))
    return Damaged(row, why)


def groups(path: Path, kind: Kind) -> Iterator[pa.Table]:
    """All of the file, by row group."""
    with closing(_opened(path)) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, use_threads=False).cast(kind.schema)


def whole(row: ArchivedFile, kind: Kind) -> pa.Table:
    """All of the file, compared with its checksum first. Damaged."""

    def read() -> pa.Table:
        found = pa.concat_tables(groups(verified(row, whole=True), kind))
        if found.num_rows != row.rows:
            raise Differs(ArchiveReason.OTHER_ROWS(rows=found.num_rows, expected=row.rows))
        return found

    return told(row, read)


def rows_where(row: ArchivedFile, column: str, wanted: Collection[int]) -> pa.Table:
    """All columns of the rows whose `column` is one of `wanted`, however long that takes. OSError, ValueError, Differs;
    the database is left alone."""
    return matching(verified(row), KINDS[ArchivedKind(row.kind)], column, wanted)


def matching(path: Path, kind: Kind, column: str, wanted: Collection[int]) -> pa.Table:
    """The rows whose `column` is one of `wanted`. Row groups that cannot have any are not read."""
    place = kind.schema.get_field_index(column)
    with closing(_opened(path)) as file:
        columns = [file.metadata.row_group(n).column(place) for n in range(file.num_row_groups)]
        found = [n for n, each in enumerate(columns) if _may_have(each, wanted)]
        read = file.read_row_groups(found, use_threads=False).cast(kind.schema)
    return read.filter(pc.is_in(read[column], pa.array(sorted(wanted), pa.int64())))


def _may_have(column: Any, wanted: Collection[int]) -> bool:
    told = column.statistics
    return told is None or not told.has_min_max or any(told.min <= value <= told.max for value in wanted)


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, page_checksum_verification=True, memory_map=False)
