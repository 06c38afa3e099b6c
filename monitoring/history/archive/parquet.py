"""One Parquet file: written row group by row group, read in part, and never believed when anything of it is damaged.

Each page of it carries a checksum, which reading compares; that the end, which says where pages lie, is the one that
was written is known by its SHA-256, kept in the database. So a part is read without reading all, and no wrong number
is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet as pq

from monitoring.history.archive import location
from monitoring.history.archive.kinds import Kind
from monitoring.models import ArchivedFile

ROWS_A_GROUP = 32_768
_LEVEL = 9
_TAIL = 8  # the length of what stands before it, and the format's name


class Damaged(Exception):
    """A file of the archive that is missing or not what was written; says which and why."""


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
    """Of the end of the file: where its pages lie, and how many rows they have. OSError, Damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != b"PAR1" or length + _TAIL > size:
            raise Damaged("it does not end as a Parquet file does")
        file.seek(size - _TAIL - length)
        return hashlib.sha256(file.read()).hexdigest()


def checked(row: ArchivedFile, *, whole: bool = False) -> Path:
    """Where the file lies on this machine, and is what was written: its end, or with `whole` all of it. Damaged, and
    then the row says so until it can be read again."""
    try:
        path = location.here(row.path, row.sha256)
        size = path.stat().st_size
        if size != row.size:
            raise Damaged(f"it has {size:,} bytes, not {row.size:,}")
        if footer_sha256(path) != row.footer_sha256 or (whole and location.sha256_of(path) != row.sha256):
            raise Damaged("it has another content than was written")
    except FileNotFoundError:
        raise damaged(row, "it is missing") from None
    except (OSError, Damaged) as error:
        raise damaged(row, str(error)) from error
    if row.problem:
        ArchivedFile.objects.filter(pk=row.pk).update(problem="")
    return path


def damaged(row: ArchivedFile, why: str) -> Damaged:
    """To be raised. Whoever looks after Waymark sees it on its health page."""
    ArchivedFile.objects.filter(pk=row.pk).update(problem=why[:1000])
    return Damaged(f"{location.place(row.path)}: {why}")


def groups(path: Path, kind: Kind) -> Iterator[pa.Table]:
    """All of the file, by row group."""
    with closing(_opened(path)) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, use_threads=False).cast(kind.schema)


def whole(row: ArchivedFile, kind: Kind) -> pa.Table:
    """All of the file, compared with its checksum first. Damaged."""
    found = pa.concat_tables(groups(checked(row, whole=True), kind))
    if found.num_rows != row.rows:
        raise damaged(row, f"it has {found.num_rows:,} rows, not {row.rows:,}")
    return found


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
